package coordinator

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func newGrouped(t testing.TB, nodes, groups int) *running {
	t.Helper()
	r := newRunning(t, nodes)
	for i := range r.configs {
		r.configs[i].Groups = groups
	}
	return r
}

// of finds a name for a resource of each group.
func resourceOf(group, groups uint16, salt string) string {
	for i := 0; ; i++ {
		name := fmt.Sprintf("%s/%d", salt, i)
		if lease.GroupOf(lease.Resource(name), groups) == group {
			return name
		}
	}
}

// acquire takes a lease that outlasts any test.
func (r *running) acquire(i int, resource, client string) *lockpb.AcquireResponse {
	r.t.Helper()
	out, err := r.locks(i).Acquire(r.context(), &lockpb.AcquireRequest{
		Resource: resource, ClientId: client, RequestId: client + "-" + strings.ReplaceAll(resource, "/", "-"), Ttl: new(int32(time.Minute.Milliseconds())),
	})
	check(r.t, err)
	return out
}

// Any node takes calls for the resources of all groups; each group counts its own tokens, and its leases say whose they are.
func TestResourcesAreSpreadOverGroups(t *testing.T) {
	const groups = 3
	r := newGrouped(t, 3, groups)
	r.startAll()
	seen := make(map[uint16]int)
	last := make(map[uint16]uint64)
	var names []string
	for n := range 30 {
		name := fmt.Sprintf("spread/%02d", n)
		names = append(names, name)
		out := r.acquire(n%3, name, "A")
		id, err := lease.ParseID(out.GetLeaseId())
		check(t, err)
		group := lease.GroupOf(lease.Resource(name), groups)
		if id.Group() != group {
			t.Errorf("%s is of group %d, its lease of %d", name, group, id.Group())
		}
		if out.GetFencingToken() <= last[group] {
			t.Errorf("%s: token %d after %d in group %d", name, out.GetFencingToken(), last[group], group)
		}
		seen[group]++
		last[group] = out.GetFencingToken()
		if _, err := r.locks((n+1)%3).Renew(r.context(), &lockpb.RenewRequest{LeaseId: out.GetLeaseId()}); err != nil {
			t.Errorf("renewal at another node: %v", err)
		}
	}
	if len(seen) != groups {
		t.Errorf("resources per group: %v", seen)
	}
	if got := r.list(1, "spread/", 7); !slices.Equal(got, names) {
		t.Errorf("listed %v", got)
	}
	status, err := r.cluster(0).Status(r.context(), &lockpb.StatusRequest{})
	check(t, err)
	var leases uint64
	for i, g := range status.GetGroups() {
		if g.GetGroup() != uint32(i) || g.GetLeader() == "" {
			t.Errorf("group %d: %v", i, g)
		}
		leases += g.GetLeases()
	}
	if len(status.GetGroups()) != groups || leases == 0 {
		t.Errorf("status %v", status)
	}
}

// list pages through resources and gives their names.
func (r *running) list(i int, prefix string, page int32) (names []string) {
	r.t.Helper()
	for after := ""; ; {
		out, err := r.locks(i).List(r.context(), &lockpb.ListRequest{Prefix: prefix, After: after, Limit: page})
		check(r.t, err)
		for _, l := range out.GetLocks() {
			names = append(names, l.GetResource())
		}
		if after = out.GetNext(); after == "" {
			return names
		}
	}
}

// The number of groups cannot be changed, neither in a folder that has data nor in one that was emptied.
func TestNumberOfGroupsIsFixed(t *testing.T) {
	r := newGrouped(t, 3, 2)
	r.startAll()
	r.stop(2)
	refused := func(groups int, want string) {
		t.Helper()
		r.configs[2].Groups = groups
		r.start(2)
		select {
		case err := <-r.nodes[2].ended:
			r.nodes[2] = nil
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("groups: %d: ended with %v", groups, err)
			}
		case <-time.After(patient):
			t.Fatalf("groups: %d: the node goes on", groups)
		}
	}
	refused(3, "created with groups: 2, and the configuration says 3")
	refused(1, "created with groups: 2")
	check(t, os.RemoveAll(r.configs[2].Dir))
	refused(3, "is configured with groups: 2, and this node with groups: 3")
	refused(1, "is configured with groups: 2, and this node with groups: 1")
	r.configs[2].Groups = 2
	r.start(2)
	r.awaitReady(2)
}

// Members that are configured with other numbers create no cluster, and do once they agree.
func TestGroupsThatDifferAtCreation(t *testing.T) {
	r := newGrouped(t, 2, 2)
	r.configs[1].Groups = 3
	r.start(0)
	r.start(1)
	r.until(0, "it waits", func(s *lockpb.StatusResponse) bool { return s.GetBlank() && s.GetPending() != "" })
	r.stop(1)
	r.configs[1].Groups = 2
	r.start(1)
	r.awaitReady(0)
	r.awaitReady(1)
}

// A cancel reaches the request without the name of its resource.
func TestCancelWithoutResource(t *testing.T) {
	const groups = 3
	r := newGrouped(t, 3, groups)
	r.startAll()
	for group := range uint16(groups) {
		name := resourceOf(group, groups, "cancel")
		held, request := r.acquire(0, name, "A"), fmt.Sprintf("b%d", group)
		waiting := make(chan error, 1)
		ctx, cancel := context.WithTimeout(r.context(), patient)
		defer cancel()
		go func() {
			_, err := r.locks(1).Acquire(ctx, &lockpb.AcquireRequest{Resource: name, ClientId: "B", RequestId: request, WaitTimeout: 50_000})
			waiting <- err
		}()
		r.waiting(name, 1)
		out, err := r.locks(2).Cancel(r.context(), &lockpb.CancelRequest{ClientId: "B", RequestId: request})
		if err != nil || out.GetWas() != lockpb.RequestState_WAITING {
			t.Errorf("group %d: %v, %v", group, out, err)
		}
		if reason, _ := refusalOf(t, <-waiting); reason != lockpb.Reason_REQUEST_CANCELLED {
			t.Errorf("group %d: the waiter got %v", group, reason)
		}
		// Every group remembers it.
		_, err = r.locks(0).Acquire(r.context(), &lockpb.AcquireRequest{Resource: resourceOf((group+1)%groups, groups, "late"), ClientId: "B", RequestId: request})
		if reason, _ := refusalOf(t, err); reason != lockpb.Reason_REQUEST_CANCELLED {
			t.Errorf("a late copy in another group: %v", reason)
		}
		out, err = r.locks(1).Cancel(r.context(), &lockpb.CancelRequest{ClientId: "A", RequestId: "A-" + strings.ReplaceAll(name, "/", "-"), Resource: name})
		if err != nil || out.GetWas() != lockpb.RequestState_HELD {
			t.Errorf("group %d, with the resource: %v, %v", group, out, err)
		}
		if _, err := r.locks(0).Renew(r.context(), &lockpb.RenewRequest{LeaseId: held.GetLeaseId()}); err == nil {
			t.Error("the lease lives on")
		}
	}
}

// waiting waits until so many requests are queued.
func (r *running) waiting(resource string, want int32) {
	r.t.Helper()
	for deadline := time.Now().Add(patient); time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) { // between two looks
		out, err := r.locks(0).Get(r.context(), &lockpb.GetRequest{Resource: resource})
		check(r.t, err)
		if out.GetLock().GetWaiting() == want {
			return
		}
	}
	r.t.Fatalf("not %d wait for %s", want, resource)
}

// A lease id of a group that is not there names no lease.
func TestLeaseOfAnotherGroup(t *testing.T) {
	r := newGrouped(t, 1, 2)
	r.startAll()
	held := r.acquire(0, resourceOf(1, 2, "x"), "A")
	id, err := lease.ParseID(held.GetLeaseId())
	check(t, err)
	var random [14]byte
	copy(random[:], id[2:])
	for _, group := range []uint16{0, 2, 65535} {
		_, err := r.locks(0).Renew(r.context(), &lockpb.RenewRequest{LeaseId: lease.NewID(group, random).String()})
		if reason, applied := refusalOf(t, err); reason != lockpb.Reason_LEASE_ENDED || applied != lockpb.Applied_NO {
			t.Errorf("group %d: %v, applied %v", group, reason, applied)
		}
	}
	if _, err := r.locks(0).Release(r.context(), &lockpb.ReleaseRequest{LeaseId: held.GetLeaseId()}); err != nil {
		t.Error(err)
	}
}

// What a stopped node led is led by others: no lease is lost in any group.
func TestGroupsFailOver(t *testing.T) {
	const groups = 3
	r := newGrouped(t, 3, groups)
	r.startAll()
	var held []*lockpb.AcquireResponse
	for group := range uint16(groups) {
		held = append(held, r.acquire(0, resourceOf(group, groups, "over"), "A"))
	}
	r.stop(1)
	for group, l := range held {
		out, err := r.locks(0).Renew(r.context(), &lockpb.RenewRequest{LeaseId: l.GetLeaseId()})
		if err != nil || out.GetFencingToken() != l.GetFencingToken() {
			t.Errorf("group %d: %v, %v", group, out, err)
		}
	}
	next := r.acquire(2, resourceOf(0, groups, "after"), "B")
	if next.GetFencingToken() <= held[0].GetFencingToken() {
		t.Errorf("token %d after %d", next.GetFencingToken(), held[0].GetFencingToken())
	}
	r.start(1)
	r.awaitReady(1)
	if _, err := r.locks(1).Renew(r.context(), &lockpb.RenewRequest{LeaseId: held[2].GetLeaseId()}); err != nil {
		t.Errorf("through the node that came back: %v", err)
	}
}

// Each group has an audit log without a gap.
func TestAuditLogOfEachGroup(t *testing.T) {
	const groups = 3
	r := newGrouped(t, 1, groups)
	r.startAll()
	for group := range uint16(groups) {
		r.acquire(0, resourceOf(group, groups, "audit"), "A")
	}
	r.stop(0)
	for group := range uint16(groups) {
		granted := 0
		covered := uint64(0)
		for _, l := range auditLines(t, r.configs[0].groupAuditFile(group)) {
			if l.Group != group || l.From > covered+1 {
				t.Errorf("group %d: line from %d of group %d after %d", group, l.From, l.Group, covered)
			}
			covered = l.Index
			if l.Decision == "granted" {
				granted++
			}
		}
		if granted != 1 {
			t.Errorf("group %d: %d grants", group, granted)
		}
	}
}

type auditLine struct {
	Group       uint16
	From, Index uint64
	Decision    string
}

func auditLines(t *testing.T, path string) (lines []auditLine) {
	t.Helper()
	f, err := os.Open(path)
	check(t, err)
	defer func() { check(t, errors.Join(f.Close())) }()
	for scanner := bufio.NewScanner(f); scanner.Scan(); {
		var l auditLine
		check(t, json.Unmarshal(scanner.Bytes(), &l))
		lines = append(lines, l)
	}
	return lines
}

// Each node leads as many groups as the others, also after one was away, and no lease is lost on the way.
func TestLeadersAreSpread(t *testing.T) {
	const groups = 3
	r := newGrouped(t, 3, groups)
	r.startAll()
	spread := func(s *lockpb.StatusResponse) bool {
		for i, g := range s.GetGroups() {
			if g.GetLeader() != fmt.Sprintf("n%d", i+1) {
				return false
			}
		}
		return true
	}
	r.until(0, "leaders are spread", spread)
	var held []*lockpb.AcquireResponse
	for group := range uint16(groups) {
		held = append(held, r.acquire(0, resourceOf(group, groups, "spread"), "A"))
	}
	r.stop(1)
	r.until(0, "another node leads", func(s *lockpb.StatusResponse) bool {
		return s.GetGroups()[1].GetLeader() == "n1" || s.GetGroups()[1].GetLeader() == "n3"
	})
	r.start(1)
	r.awaitReady(1)
	r.until(0, "leaders are spread again", spread)
	for group, l := range held {
		if out, err := r.locks(0).Renew(r.context(), &lockpb.RenewRequest{LeaseId: l.GetLeaseId()}); err != nil || out.GetFencingToken() != l.GetFencingToken() {
			t.Errorf("group %d: %v, %v", group, out, err)
		}
	}
}

// Two clients that wait for each other in different groups: one of them is told, with the cycle, and the other goes on when
// that one lets go. Waits that are no cycle are left alone.
func TestDeadlockAcrossGroups(t *testing.T) {
	const groups = 3
	r := newGrouped(t, 3, groups)
	r.startAll()
	first, second := resourceOf(0, groups, "knot"), resourceOf(2, groups, "knot")
	a, b := r.acquire(0, first, "A"), r.acquire(1, second, "B")
	type outcome struct {
		out *lockpb.AcquireResponse
		err error
	}
	wait := func(i int, resource, client string) chan outcome {
		done := make(chan outcome, 1)
		go func() {
			out, err := r.locks(i).Acquire(r.context(), &lockpb.AcquireRequest{
				Resource: resource, ClientId: client, RequestId: client + "-waits", WaitTimeout: 55_000,
			})
			done <- outcome{out, err}
		}()
		return done
	}
	bystander := wait(2, first, "C") // B stands behind it, but to end its wait would not help
	r.waiting(first, 1)
	aWaits := wait(2, second, "A")
	r.waiting(second, 1)
	bWaits := wait(0, first, "B")
	other := aWaits
	held := b
	var lost outcome
	select {
	case lost = <-bWaits:
	case lost = <-aWaits:
		other, held = bWaits, a
	case got := <-bystander:
		t.Fatalf("C was told: %v", got.err)
	case <-time.After(patient):
		t.Fatal("nobody was told")
	}
	if reason, applied := refusalOf(t, lost.err); reason != lockpb.Reason_DEADLOCK || applied != lockpb.Applied_NO {
		t.Fatalf("the victim got %v, applied %v", lost.err, applied)
	}
	for _, detail := range status.Convert(lost.err).Details() {
		if refusal, ok := detail.(*lockpb.Refusal); ok && len(refusal.GetCycle()) != 3 {
			t.Errorf("cycle %v", refusal.GetCycle())
		}
	}
	_, err := r.locks(0).Release(r.context(), &lockpb.ReleaseRequest{LeaseId: held.GetLeaseId()})
	check(t, err)
	if held == a { // C was before B
		got := <-bystander
		check(t, got.err)
		_, err := r.locks(0).Release(r.context(), &lockpb.ReleaseRequest{LeaseId: got.out.GetLeaseId()})
		check(t, err)
	}
	if got := <-other; got.err != nil {
		t.Errorf("the other: %v", got.err)
	}
}
