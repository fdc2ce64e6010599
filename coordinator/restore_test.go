package coordinator

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
	"github.com/lychgate/lychgate/coordinator/ticket"
)

func (r *running) saveTo(i int) string {
	r.t.Helper()
	path := filepath.Join(r.t.TempDir(), "backup")
	check(r.t, os.WriteFile(path, r.save(i), 0o600))
	return path
}

// forget stops all nodes and removes the folders of some.
func (r *running) forget(folders ...int) {
	r.t.Helper()
	for i := range r.nodes {
		r.stop(i)
	}
	for _, i := range folders {
		check(r.t, os.RemoveAll(r.configs[i].Dir))
	}
}

// rejoinAll starts the others with empty folders and joins them.
func (r *running) rejoinAll(at int, others ...int) {
	r.t.Helper()
	for _, i := range others {
		check(r.t, os.RemoveAll(r.configs[i].Dir))
		r.start(i)
		if _, err := r.join(at, i); err != nil {
			r.t.Fatalf("join %s: %v", r.configs[i].Node, err)
		}
		r.awaitReady(i)
	}
}

// A backup is older than the last grants. What is issued after it was restored is above them all the same.
func TestARestoredBackupIssuesNothingTwice(t *testing.T) {
	const groups = 2
	r := newGrouped(t, 3, groups)
	r.startAll()
	name := func(g uint16, salt string) string { return resourceOf(g, groups, salt) }
	before := r.acquire(0, name(0, "before"), "A")
	r.acquire(0, name(1, "before"), "A")
	_, err := r.cluster(0).PutPolicy(r.context(), &lockpb.PutPolicyRequest{Policy: &lockpb.Policy{Of: &lockpb.Policy_Prefix{Prefix: "p/"}}})
	check(t, err)
	backup := r.saveTo(0)
	highest := map[uint16]uint64{}
	for _, salt := range []string{"x", "y", "z"} { // which the backup does not have
		for g := range uint16(groups) {
			highest[g] = r.acquire(1, name(g, salt), "B").GetFencingToken()
		}
	}
	oldKeys, err := ticket.ParseDocument(r.jwks(0))
	check(t, err)
	r.forget(0, 1, 2)

	config := r.configs[0]
	made, err := Recover(config, Recovery{Snapshot: backup})
	check(t, err)
	if made.Incarnation == 0 || made.Groups != groups || made.Ended != 2 || made.Node != "n1" || made.Cluster != oldKeys.Ring.Cluster() {
		t.Errorf("recovered %+v", made)
	}
	r.start(0)
	r.awaitReady(0)
	for g := range uint16(groups) {
		out := r.acquire(0, name(g, "x"), "C")
		if out.GetFencingToken() <= highest[g] || lease.Token(out.GetFencingToken()).Incarnation() != made.Incarnation {
			t.Errorf("group %d: token %d after %d", g, out.GetFencingToken(), highest[g])
		}
	}
	_, err = r.locks(0).Renew(r.context(), &lockpb.RenewRequest{LeaseId: before.GetLeaseId()})
	wantReason(t, "a lease of the old life", err, lockpb.Reason_LEASE_ENDED)
	policies, err := r.cluster(0).Policies(r.context(), &lockpb.PoliciesRequest{})
	check(t, err)
	if len(policies.GetPolicies()) != 1 {
		t.Errorf("policies %v", policies)
	}
	newKeys, err := ticket.ParseDocument(r.jwks(0))
	check(t, err)
	if _, err := newKeys.Ring.Verify(before.GetTicket()); err == nil {
		t.Error("a ticket of the old life verifies")
	}
	if newKeys.Incarnation != made.Incarnation {
		t.Errorf("the keys are of incarnation %d, want %d", newKeys.Incarnation, made.Incarnation)
	}

	r.rejoinAll(0, 1, 2)
	r.stop(0) // the others go on without it
	r.acquire(1, "after", "D")
}

func (r *running) jwks(i int) []byte {
	r.t.Helper()
	code, text := r.get(i, ticket.Path)
	if code != 200 {
		r.t.Fatalf("keys of node %d: %d %s", i+1, code, text)
	}
	return []byte(text)
}

func TestASurvivorGoesOnAlone(t *testing.T) {
	r := newRunning(t, 3)
	r.startAll()
	last := r.acquire(r.leader(), "ledger/eu", "A").GetFencingToken()
	r.until(1, "it has the lease", func(s *lockpb.StatusResponse) bool { return s.GetLeases() == 1 })
	r.forget(0, 2)
	made, err := Recover(r.configs[1], Recovery{Known: []uint32{7}, Incarnation: 9})
	check(t, err)
	if made.Incarnation != 9 || made.Ended != 1 || len(made.Aside) != 1 {
		t.Errorf("recovered %+v", made)
	}
	r.start(1)
	r.awaitReady(1)
	if out := r.acquire(1, "ledger/eu", "B"); out.GetFencingToken() <= last || lease.Token(out.GetFencingToken()).Incarnation() != 9 {
		t.Errorf("token %d after %d", out.GetFencingToken(), last)
	}
	r.rejoinAll(1, 0, 2)
}

// Two of three old folders are a majority of the cluster that was given up. Started again they disturb the new one by nothing,
// serve nobody as soon as they have met it, and say why; emptied they join.
func TestOldFoldersAreNotLetIn(t *testing.T) {
	r := newGrouped(t, 3, 2)
	r.startAll()
	r.acquire(0, "ledger/eu", "A")
	r.forget()
	_, err := Recover(r.configs[1], Recovery{Incarnation: 9})
	check(t, err)
	r.start(1)
	r.awaitReady(1)
	held := r.acquire(1, "ledger/eu", "B")
	before := r.until(1, "it leads", func(s *lockpb.StatusResponse) bool { return s.GetLeader() == "n2" })

	for _, old := range []int{0, 2} {
		r.start(old)
	}
	for _, old := range []int{0, 2} {
		s := r.until(old, "it says that its folder is old", func(s *lockpb.StatusResponse) bool {
			return len(s.GetGroups()) == 2 && strings.Contains(s.GetGroups()[0].GetPending(), "life 0, which was replaced by life 9") &&
				strings.Contains(s.GetGroups()[1].GetPending(), "life 0, which was replaced by life 9") && s.GetLeader() == ""
		})
		if s.GetBlank() {
			t.Errorf("node %d says %v", old+1, s)
		}
		_, err := r.locks(old).Acquire(r.context(), &lockpb.AcquireRequest{Resource: "ledger/eu", ClientId: "C", RequestId: "1"})
		if removed := lockpb.Reason_STOPPING; reasonOf(err) != removed { // what it says once it has asked the new cluster, too
			wantReason(t, "an acquire at an old node", err, lockpb.Reason_NO_LEADER)
		}
	}
	after, err := r.cluster(1).Status(r.context(), &lockpb.StatusRequest{})
	check(t, err)
	if after.GetTerm() != before.GetTerm() || after.GetLeader() != "n2" || after.GetPending() != "" {
		t.Errorf("term %d and leader %s, before %d and %s; pending %q", after.GetTerm(), after.GetLeader(), before.GetTerm(), before.GetLeader(), after.GetPending())
	}
	if _, err := r.locks(1).Renew(r.context(), &lockpb.RenewRequest{LeaseId: held.GetLeaseId()}); err != nil {
		t.Errorf("the new holder: %v", err)
	}
	r.stop(0)
	r.stop(2)
	r.rejoinAll(1, 0, 2)
}

func TestTwoRestoresOfOneBackupDiffer(t *testing.T) {
	r := newRunning(t, 1)
	r.startAll()
	backup := r.saveTo(0)
	r.forget(0)
	seen := map[uint32]bool{}
	for range 8 { // all of them equal: one time in 256^7
		config := r.configs[0]
		config.Dir = t.TempDir()
		made, err := Recover(config, Recovery{Snapshot: backup, Known: []uint32{5}})
		check(t, err)
		if made.Incarnation <= 5 {
			t.Errorf("incarnation %d is not above 5", made.Incarnation)
		}
		seen[made.Incarnation] = true
	}
	if len(seen) == 1 {
		t.Errorf("all took %v", seen)
	}
}

func TestWhatCannotBeRestored(t *testing.T) {
	r := newGrouped(t, 1, 2)
	r.startAll()
	r.acquire(0, "ledger/eu", "A")
	backup := r.saveTo(0)
	whole, err := os.ReadFile(backup)
	check(t, err)
	r.forget()
	changed := func(change func([]byte) []byte) string {
		path := filepath.Join(t.TempDir(), "backup")
		check(t, os.WriteFile(path, change(append([]byte(nil), whole...)), 0o600))
		return path
	}
	full := t.TempDir()
	check(t, os.MkdirAll(filepath.Join(full, "group-0"), 0o700))
	for name, c := range map[string]struct {
		how    Recovery
		dir    string
		groups int
		is     error
		says   string
	}{
		"cut":                   {how: Recovery{Snapshot: changed(func(b []byte) []byte { return b[:len(b)/2] })}, is: ErrSnapshotCut},
		"a flipped bit":         {how: Recovery{Snapshot: changed(func(b []byte) []byte { b[len(b)/3] ^= 1; return b })}, is: ErrSnapshotDamaged},
		"another kind of file":  {how: Recovery{Snapshot: changed(func([]byte) []byte { return []byte("hello") })}, is: ErrSnapshotForeign},
		"no file":               {how: Recovery{Snapshot: filepath.Join(t.TempDir(), "none")}, is: os.ErrNotExist},
		"another number":        {how: Recovery{Snapshot: backup}, groups: 3, says: "has 2 groups"},
		"a folder in use":       {how: Recovery{Snapshot: backup}, dir: full, says: "is not empty"},
		"an old incarnation":    {how: Recovery{Snapshot: backup, Known: []uint32{4}, Incarnation: 4}, says: "is not above 4"},
		"tokens at their end":   {how: Recovery{Snapshot: backup, Known: []uint32{lease.MaxIncarnation}}, says: "tokens can grow no more"},
		"too large a number":    {how: Recovery{Snapshot: backup, Incarnation: lease.MaxIncarnation + 1}, says: "the highest that there is"},
		"a survivor of nothing": {how: Recovery{}, says: "not a survivor's"},
	} {
		config := r.configs[0]
		config.Dir = filepath.Join(t.TempDir(), "fresh")
		if c.dir != "" {
			config.Dir = c.dir
		}
		if c.groups != 0 {
			config.Groups = c.groups
		}
		_, err := Recover(config, c.how)
		if err == nil || (c.is != nil && !errors.Is(err, c.is)) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: got %v, want %v %q", name, err, c.is, c.says)
		}
		if left, err := filepath.Glob(filepath.Join(config.Dir, "*")); err != nil || (c.dir == "" && len(left) > 0) {
			t.Errorf("%s: left behind %v", name, left)
		}
	}
}
