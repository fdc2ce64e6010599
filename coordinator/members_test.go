package coordinator

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// newcomer adds a node that is configured to join: it lists the first nodes, and itself.
func (r *running) newcomer(id string) (i int) {
	r.t.Helper()
	addresses := freeAddresses(r.t, 3)
	c := r.configs[0]
	c.Node, c.Dir = id, filepath.Join(r.t.TempDir(), id)
	c.Members = append(append([]Member(nil), c.Members...), Member{ID: id, Peer: addresses[0], GRPC: addresses[1], HTTP: addresses[2]})
	r.configs = append(r.configs, c)
	r.nodes = append(r.nodes, nil)
	return len(r.configs) - 1
}

func (r *running) self(i int) Member {
	m, _ := r.configs[i].member(r.configs[i].Node)
	return m
}

func (r *running) join(at, i int) (*lockpb.JoinResponse, error) {
	m := r.self(i)
	return r.cluster(at).Join(r.context(), &lockpb.JoinRequest{Node: &lockpb.Node{Id: m.ID, Peer: m.Peer, Grpc: m.GRPC, Http: m.HTTP}})
}

func (r *running) remove(at int, id string) error {
	_, err := r.cluster(at).Remove(r.context(), &lockpb.RemoveRequest{Id: id})
	return err
}

// holder holds a lock and renews it until it is stopped, through whichever node answers.
type holder struct {
	stop func()
	done sync.WaitGroup

	mu     sync.Mutex
	tokens []uint64
	lost   error
}

// hold takes a lock and renews it three times a TTL, at a node that is chosen anew each time.
func (r *running) hold(resource string, nodes func() []int) *holder {
	r.t.Helper()
	h := &holder{}
	ctx, cancel := context.WithCancel(r.context())
	h.stop = func() { cancel(); h.done.Wait() }
	r.t.Cleanup(h.stop)
	lease, err := r.locks(nodes()[0]).Acquire(ctx, &lockpb.AcquireRequest{Resource: resource, ClientId: "holder", RequestId: "1", Ttl: proto.Int32(6000)})
	check(r.t, err)
	h.done.Go(func() {
		ticker := time.NewTicker(2 * time.Second)
		defer ticker.Stop()
		for turn := 0; ; turn++ {
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
			out, err := r.renewSomewhere(ctx, lease.GetLeaseId(), nodes(), turn)
			h.mu.Lock()
			if err != nil && ctx.Err() == nil {
				h.lost = err
			} else if err == nil {
				h.tokens = append(h.tokens, out.GetFencingToken())
			}
			h.mu.Unlock()
		}
	})
	return h
}

func (r *running) renewSomewhere(ctx context.Context, id string, nodes []int, turn int) (out *lockpb.RenewResponse, err error) {
	for k := range nodes {
		attempt, cancel := context.WithTimeout(ctx, 3*time.Second)
		out, err = r.locks(nodes[(turn+k)%len(nodes)]).Renew(attempt, &lockpb.RenewRequest{LeaseId: id})
		cancel()
		if err == nil || ctx.Err() != nil {
			return out, err
		}
	}
	return out, err
}

// check reports whether the lock was held all the time.
func (h *holder) check(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.lost != nil {
		t.Errorf("the lock was lost: %v", h.lost)
	}
	for _, token := range h.tokens {
		if token != h.tokens[0] {
			t.Errorf("tokens %v", h.tokens)
		}
	}
}

// membersAt are the members, and how many vote, as a node knows them.
func (r *running) membersAt(i int) (ids []string, voters int) {
	r.t.Helper()
	status, err := r.cluster(i).Status(r.context(), &lockpb.StatusRequest{})
	check(r.t, err)
	for _, n := range status.GetNodes() {
		ids = append(ids, n.GetId())
		if n.GetVoter() {
			voters++
		}
	}
	return ids, voters
}

func TestNodesJoinAndLeave(t *testing.T) {
	for _, groups := range []int{1, 2} {
		t.Run(fmt.Sprintf("groups=%d", groups), func(t *testing.T) { testNodesJoinAndLeave(t, groups) })
	}
}

func testNodesJoinAndLeave(t *testing.T, groups int) {
	r := newGrouped(t, 3, groups)
	r.startAll()
	var mu sync.Mutex
	up := []int{0, 1, 2}
	nodes := func() []int { mu.Lock(); defer mu.Unlock(); return append([]int(nil), up...) }
	set := func(now ...int) { mu.Lock(); defer mu.Unlock(); up = now }
	held := r.hold("ledger/eu", nodes)

	// The fourth is started first, the fifth after its join has begun.
	fourth, fifth := r.newcomer("n4"), r.newcomer("n5")
	r.start(fourth)
	if _, err := r.join(0, fourth); err != nil {
		t.Fatal("join n4: ", err)
	}
	r.awaitReady(fourth)
	joined := make(chan error, 1)
	go func() { _, err := r.join(1, fifth); joined <- err }()
	r.start(fifth)
	if err := <-joined; err != nil {
		t.Fatal("join n5: ", err)
	}
	r.awaitReady(fifth)
	for i := range r.configs {
		r.until(i, "five members vote", func(*lockpb.StatusResponse) bool { ids, voters := r.membersAt(i); return len(ids) == 5 && voters == 5 })
	}

	// What is wrong with a join.
	_, err := r.join(2, fourth)
	wantReason(t, "a member joins", err, lockpb.Reason_MEMBER_EXISTS)
	other := r.newcomer("n4")
	_, err = r.join(2, other)
	wantReason(t, "another machine with a member's id", err, lockpb.Reason_MEMBER_EXISTS)
	wantReason(t, "a stranger leaves", r.remove(0, "n9"), lockpb.Reason_NO_SUCH_MEMBER)
	wantReason(t, "a node removes itself", r.remove(0, "n1"), lockpb.Reason_INVALID)
	_, err = r.cluster(0).Join(r.context(), &lockpb.JoinRequest{Node: &lockpb.Node{Id: "n6", Peer: "here", Grpc: "a:1", Http: "a:2"}})
	wantReason(t, "no address", err, lockpb.Reason_INVALID)
	for what, node := range map[string]*lockpb.Node{
		"no port":            {Id: "n6", Peer: "h:99999", Grpc: "h:1", Http: "h:2"},
		"one port for two":   {Id: "n6", Peer: "h:1", Grpc: "h:2", Http: "h:2"},
		"a port with a name": {Id: "n6", Peer: "h:1", Grpc: "h:grpc", Http: "h:2"},
	} {
		_, err = r.cluster(0).Join(r.context(), &lockpb.JoinRequest{Node: node})
		wantReason(t, what, err, lockpb.Reason_INVALID)
	}
	_, err = r.cluster(0).Join(r.context(), &lockpb.JoinRequest{Node: &lockpb.Node{Id: "n6", Peer: "h:1", Grpc: r.configs[1].Members[1].GRPC, Http: "h:2"}})
	wantReason(t, "an address at which calls reach a member", err, lockpb.Reason_MEMBER_EXISTS)

	// Leadership goes where it is sent.
	out, err := r.cluster(0).Transfer(r.context(), &lockpb.TransferRequest{To: "n5", Group: proto.Uint32(0)})
	check(t, err)
	if len(out.GetLeaders()) != 1 || out.GetLeaders()[0].GetNode() != "n5" {
		t.Errorf("leaders %v", out.GetLeaders())
	}
	_, err = r.cluster(0).Transfer(r.context(), &lockpb.TransferRequest{To: "n9"})
	wantReason(t, "to a stranger", err, lockpb.Reason_NO_SUCH_MEMBER)
	_, err = r.cluster(0).Transfer(r.context(), &lockpb.TransferRequest{Group: proto.Uint32(7)})
	wantReason(t, "of no group", err, lockpb.Reason_INVALID)
	if numbers := map[int]string{1: "there is one, 0", 2: "they are 0 to 1"}[groups]; !strings.Contains(err.Error(), numbers) {
		t.Errorf("of no group: %v, want %q", err, numbers)
	}

	// Two of the first three leave, one of them is asked to by the leader that it is.
	set(2, 3, 4)
	check(t, r.remove(3, "n1"))
	check(t, r.remove(4, "n2"))
	r.until(2, "three members are left", func(*lockpb.StatusResponse) bool {
		ids, _ := r.membersAt(2)
		return strings.Join(ids, " ") == "n3 n4 n5"
	})
	r.stop(0)
	r.stop(1)
	check(t, r.remove(2, "n5")) // the leader
	set(2, 3)
	r.stop(4)
	r.acquire(2, "ledger/us", "B")
	wantReason(t, "one of two", r.remove(2, "n5"), lockpb.Reason_NO_SUCH_MEMBER)
	held.stop()
	held.check(t)
	out2, err := r.locks(3).Get(r.context(), &lockpb.GetRequest{Resource: "ledger/eu"})
	check(t, err)
	if len(out2.GetLock().GetHolders()) != 1 {
		t.Errorf("ledger/eu: %v", out2.GetLock())
	}

	// A removed node that comes back says so, and does not disturb.
	r.start(0)
	r.until(0, "it says that it was removed", func(s *lockpb.StatusResponse) bool { return strings.Contains(s.GetPending(), "removed") })
	began := time.Now()
	_, err = r.locks(0).Get(r.context(), &lockpb.GetRequest{Resource: "ledger/eu"})
	wantReason(t, "a call at a removed node", err, lockpb.Reason_STOPPING)
	if !strings.Contains(err.Error(), "node n1 was removed from the cluster") || time.Since(began) > time.Second {
		t.Errorf("after %v: %v", time.Since(began), err)
	}
}

func wantReason(t *testing.T, what string, err error, want lockpb.Reason) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: accepted, want %v", what, want)
		return
	}
	if got, _ := refusalOf(t, err); got != want {
		t.Errorf("%s: %v (%v), want %v", what, got, err, want)
	}
}
