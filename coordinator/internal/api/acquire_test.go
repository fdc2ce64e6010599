package api

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// A wait through a follower is granted by the release, in milliseconds, with a whole TTL: the server confirms a late
// grant, which would else stand for a claim window only.
func TestWaitIsGrantedWithAWholeTTL(t *testing.T) {
	c := newCluster(t, 3)
	follower := c.followers()[0]
	held := c.acquire(follower, acquireOf("r", "A", "1", 0))
	waiting := c.begin(follower, acquireOf("r", "B", "1", 20*time.Second))
	c.untilWaiting("r", 1)
	if w := c.look(follower, "r").GetWaiters()[0]; !w.GetAttached() || w.GetClientId() != "B" {
		t.Errorf("waiter %v", w)
	}
	c.release(follower, held)
	got, err := waiting.wait(t)
	check(t, err)
	if got.GetFencingToken() <= held.GetFencingToken() {
		t.Errorf("token %d after %d", got.GetFencingToken(), held.GetFencingToken())
	}
	if ttl := testLockConfig().DefaultTTL; duration(got.GetRemaining()) != ttl || duration(got.GetTtl()) != ttl {
		t.Errorf("remaining %d of %d ms, want all of %v", got.GetRemaining(), got.GetTtl(), ttl)
	}
	if left := duration(c.look(follower, "r").GetHolders()[0].GetRemaining()); left <= testLockConfig().ClaimWindow {
		t.Errorf("the lease stands for %v: it was not confirmed", left)
	}
}

func TestWaitTimesOut(t *testing.T) {
	c := newCluster(t, 3)
	for _, n := range []*node{c.leader(), c.followers()[0]} {
		held := c.acquire(n, acquireOf("r/"+n.id, "A", n.id, 0))
		begin := time.Now()
		_, err := n.locks.Acquire(c.context(), acquireOf("r/"+n.id, "B", n.id, 300*time.Millisecond))
		r := wantRefusal(t, err, lockpb.Reason_WAIT_TIMEOUT, lockpb.Applied_NO)
		if h := r.detail.GetHolder(); h.GetClientId() != "A" || h.GetFencingToken() != held.GetFencingToken() || h.GetHeldFor() < 250 {
			t.Errorf("the refusal names the holder %v", h)
		}
		if took := time.Since(begin); took < 300*time.Millisecond {
			t.Errorf("waited only %v", took)
		}
		if waiting := c.look(n, "r/"+n.id).GetWaiting(); waiting != 0 {
			t.Errorf("%d still wait", waiting)
		}
	}
}

// The holder that a wait in vain is told of is the one at its end.
func TestWaitTimesOutBehindTheNextHolder(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	first := c.acquire(n, acquireOf("r", "A", "1", 0))
	second := c.begin(n, acquireOf("r", "B", "1", 20*time.Second))
	c.untilWaiting("r", 1)
	third := c.begin(n, acquireOf("r", "C", "1", 1500*time.Millisecond))
	c.untilWaiting("r", 2)
	c.release(n, first)
	held, err := second.wait(t)
	check(t, err)
	_, err = third.wait(t)
	r := wantRefusal(t, err, lockpb.Reason_WAIT_TIMEOUT, lockpb.Applied_NO)
	if h := r.detail.GetHolder(); h.GetClientId() != "B" || h.GetFencingToken() != held.GetFencingToken() {
		t.Errorf("the refusal names the holder %v", h)
	}
}

// A node that ends a wait itself, because the cluster has not in time, tells as much.
func TestANodeThatEndsAWaitTellsWhereItStood(t *testing.T) {
	c := newCluster(t, 3)
	for _, n := range []*node{c.leader(), c.followers()[0]} {
		for try := 0; !c.endsAWait(n, fmt.Sprintf("r/%s/%d", n.id, try)); try++ {
			if try == 10 {
				t.Fatal("the leader changes all the time")
			}
		}
	}
}

// endsAWait lets a node end a wait long before its time. It reports false if the leader changed meanwhile: then the node sends
// the request to the next one, and learns only that it has ended.
func (c *cluster) endsAWait(n *node, name string) bool {
	t := c.t
	term := n.group.Status().Term
	held := c.acquire(n, acquireOf(name, "A", name, 0))
	c.begin(n, acquireOf(name, "B", name, 20*time.Second))
	c.untilWaiting(name, 1)
	in := acquireOf(name, "C", name, 20*time.Second)
	third := c.begin(n, in)
	c.untilWaiting(name, 2)
	_, ended := n.server.shards[0].endWait(c.context(), in)
	_, err := third.wait(t)
	if n.group.Status().Term != term {
		return false
	}
	for _, r := range []*refusal{ended, wantRefusal(t, err, lockpb.Reason_WAIT_TIMEOUT, lockpb.Applied_NO)} {
		if r.reason() != lockpb.Reason_WAIT_TIMEOUT || r.detail.GetPosition() != 2 ||
			r.detail.GetHolder().GetFencingToken() != held.GetFencingToken() {
			t.Errorf("refused with %v", r.detail)
		}
	}
	return true
}

func TestQueueIsBounded(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	c.acquire(n, acquireOf("r", "A", "1", 0))
	for _, client := range []string{"1", "2", "3", "4", "5"} {
		c.begin(n, acquireOf("r", client, "1", 20*time.Second))
	}
	c.untilWaiting("r", 5)
	_, err := n.locks.Acquire(c.context(), acquireOf("r", "6", "1", 20*time.Second))
	wantRefusal(t, err, lockpb.Reason_TOO_MANY_WAITERS, lockpb.Applied_NO)
}

// The client's call hangs on a follower, which hangs on the leader. The leader dies; the follower attaches the
// request to the next leader by itself, and the client only sees its grant.
func TestWaitOutlivesTheLeader(t *testing.T) {
	c := newCluster(t, 3)
	old, follower := c.leader(), c.followers()[0]
	held := c.acquire(follower, &lockpb.AcquireRequest{Resource: "r", ClientId: "A", RequestId: "1", Ttl: proto.Int32(60_000)})
	first := c.begin(follower, acquireOf("r", "B", "1", 25*time.Second))
	c.untilWaiting("r", 1)
	second := c.begin(follower, acquireOf("r", "C", "1", 25*time.Second))
	c.untilWaiting("r", 2)

	old.kill()
	c.until("another leads, and both wait there", func() bool {
		out, err := follower.locks.Get(c.context(), &lockpb.GetRequest{Resource: "r"})
		if err != nil || out.GetLock().GetWaiting() != 2 {
			return false
		}
		waiters := out.GetLock().GetWaiters()
		return waiters[0].GetAttached() && waiters[1].GetAttached()
	})
	c.release(follower, held)
	b, err := first.wait(t)
	check(t, err)
	c.release(follower, b)
	d, err := second.wait(t)
	check(t, err)
	if b.GetFencingToken() <= held.GetFencingToken() || d.GetFencingToken() <= b.GetFencingToken() {
		t.Errorf("tokens %d, %d, %d", held.GetFencingToken(), b.GetFencingToken(), d.GetFencingToken())
	}
}

// Whenever a caller cancels, before its acquire came, while it waits or once it holds, nothing is left behind.
func TestCancelAtEachStep(t *testing.T) {
	c := newCluster(t, 3)
	n := c.followers()[0]
	cancel := func(client, request string, want lockpb.RequestState) {
		t.Helper()
		out, err := n.locks.Cancel(c.context(), &lockpb.CancelRequest{ClientId: client, RequestId: request})
		check(t, err)
		if out.GetWas() != want {
			t.Errorf("cancel of %s/%s: it was %v, want %v", client, request, out.GetWas(), want)
		}
	}
	cancel("A", "early", lockpb.RequestState_UNKNOWN)
	_, err := n.locks.Acquire(c.context(), acquireOf("r", "A", "early", 0))
	wantRefusal(t, err, lockpb.Reason_REQUEST_CANCELLED, lockpb.Applied_NO)

	held := c.acquire(n, acquireOf("r", "A", "held", 0))
	waiting := c.begin(n, acquireOf("r", "B", "waits", 20*time.Second))
	c.untilWaiting("r", 1)
	cancel("B", "waits", lockpb.RequestState_WAITING)
	_, err = waiting.wait(t)
	wantRefusal(t, err, lockpb.Reason_REQUEST_CANCELLED, lockpb.Applied_NO)

	cancel("A", "held", lockpb.RequestState_HELD)
	_, err = n.locks.Renew(c.context(), &lockpb.RenewRequest{LeaseId: held.GetLeaseId()})
	wantRefusal(t, err, lockpb.Reason_LEASE_ENDED, lockpb.Applied_NO)
	cancel("A", "held", lockpb.RequestState_ENDED)
	if l := c.look(n, "r"); len(l.GetHolders()) != 0 || l.GetWaiting() != 0 {
		t.Errorf("left behind: %v", l)
	}
}

// A caller that goes away without a word is detached at once: the lock is not granted to it, and a retry with the same
// request finds its place.
func TestCallerGoesAwayWhileItWaits(t *testing.T) {
	c := newCluster(t, 3)
	for _, n := range []*node{c.leader(), c.followers()[0]} {
		name := "r/" + n.id
		held := c.acquire(n, acquireOf(name, "A", n.id, 0))
		gone := c.begin(n, acquireOf(name, "B", n.id, 20*time.Second))
		c.untilWaiting(name, 1)
		gone.quit()
		c.until("the waiter is detached", func() bool { return !c.look(n, name).GetWaiters()[0].GetAttached() })
		c.release(n, held)
		if l := c.look(n, name); len(l.GetHolders()) != 0 {
			t.Errorf("granted to nobody: %v", l)
		}
		back := c.acquire(n, acquireOf(name, "B", n.id, 20*time.Second))
		if back.GetFencingToken() <= held.GetFencingToken() {
			t.Errorf("token %d after %d", back.GetFencingToken(), held.GetFencingToken())
		}
	}
}

// The answer to an acquire is lost after it was committed. The node itself tries again and answers with the one grant.
func TestLostAnswerIsFoundAgain(t *testing.T) {
	c := newCluster(t, 3)
	leader, follower := c.leader(), c.followers()[0]
	for _, n := range []*node{leader, follower} {
		leader.group.loseAnswers(2, isAcquire)
		got := c.acquire(n, acquireOf("r/"+n.id, "A", n.id, 0))
		if !got.GetRetried() {
			t.Errorf("%s: the answer does not say that it was repeated", n.id)
		}
		if h := c.look(n, "r/"+n.id).GetHolders(); len(h) != 1 || h[0].GetFencingToken() != got.GetFencingToken() {
			t.Errorf("%s: held by %v, answered token %d", n.id, h, got.GetFencingToken())
		}
	}
}

// The client itself tries again, at another node and under another leader: the same lease and token.
func TestRetryAtTheNextLeader(t *testing.T) {
	c := newCluster(t, 3)
	in := acquireOf("r", "A", "1", 0)
	in.AsOf = c.leader().server.shards[0].now() // as a client that knows lease time; it must repeat it
	old := c.leader()
	first := c.acquire(old, in)
	old.kill()
	c.until("there is another leader", func() bool { n := c.aliveLeader(old); return n != nil })
	again := c.acquire(c.aliveLeader(old), in)
	if again.GetLeaseId() != first.GetLeaseId() || again.GetFencingToken() != first.GetFencingToken() || !again.GetRetried() {
		t.Errorf("first %v, again %v", first, again)
	}
}

func (c *cluster) aliveLeader(dead *node) *node {
	for _, n := range c.nodes {
		if _, self := n.group.Leader(); self && n != dead && n.server.Ready() == nil {
			return n
		}
	}
	return nil
}

// A grant that came late is renewed before it is reported. When the answer to that renewal is lost, the node finds
// the grant again.
func TestLostConfirmation(t *testing.T) {
	c := newCluster(t, 3)
	leader := c.leader()
	held := c.acquire(leader, acquireOf("r", "A", "1", 0))
	waiting := c.begin(leader, acquireOf("r", "B", "1", 20*time.Second))
	c.untilWaiting("r", 1)
	leader.group.loseAnswers(1, func(cmd lock.Command) bool { _, ok := cmd.(lock.Renew); return ok })
	c.release(leader, held)
	got, err := waiting.wait(t)
	check(t, err)
	if duration(got.GetRemaining()) != testLockConfig().DefaultTTL || !got.GetRetried() {
		t.Errorf("got %v", got)
	}
}

// Nothing is granted without a quorum, and the refusal says so in time. What was held stands once it is back.
func TestNoQuorum(t *testing.T) {
	c := newCluster(t, 3)
	leader := c.leader()
	held := c.acquire(leader, &lockpb.AcquireRequest{Resource: "held", ClientId: "A", RequestId: "1", Ttl: proto.Int32(60_000)})
	for _, n := range c.nodes {
		c.disconnect(n)
	}
	c.until("nobody leads", func() bool {
		for _, n := range c.nodes {
			if n.server.Ready() == nil {
				return false
			}
		}
		return true
	})
	calls := map[string]func(n *node) error{
		"acquire": func(n *node) error {
			_, err := n.locks.Acquire(c.context(), acquireOf("r", "B", n.id, 0))
			return err
		},
		"waiting acquire": func(n *node) error {
			_, err := n.locks.Acquire(c.context(), acquireOf("r", "B", n.id+"w", 20*time.Second))
			return err
		},
		"renew": func(n *node) error {
			_, err := n.locks.Renew(c.context(), &lockpb.RenewRequest{LeaseId: held.GetLeaseId()})
			return err
		},
	}
	var wg sync.WaitGroup
	for name, call := range calls {
		for _, n := range c.nodes {
			wg.Go(func() {
				r := received(errorOf(t, name, call(n)), "?")
				if r.reason() != lockpb.Reason_NO_LEADER || r.maybe() {
					t.Errorf("%s at %s: %v", name, n.id, r.detail)
				}
			})
		}
	}
	wg.Wait()
	c.connect(c.nodes...)
	n := c.leader()
	if l := c.look(n, "r"); len(l.GetHolders()) != 0 || l.GetWaiting() != 0 {
		t.Errorf("granted without a quorum: %v", l)
	}
	renewed, err := n.locks.Renew(c.context(), &lockpb.RenewRequest{LeaseId: held.GetLeaseId()})
	check(t, err)
	if renewed.GetFencingToken() != held.GetFencingToken() {
		t.Errorf("token %d became %d", held.GetFencingToken(), renewed.GetFencingToken())
	}
}

// errorOf reports a call that should have failed.
func errorOf(t *testing.T, name string, err error) error {
	t.Helper()
	if err == nil {
		t.Errorf("%s was accepted", name)
	}
	return err
}

// The quorum is lost while a call waits. Its node ends it soon after the wait is over; since the cancel did not
// commit, the outcome is unknown.
func TestWaitEndsWithoutAQuorum(t *testing.T) {
	c := newCluster(t, 3)
	n := c.followers()[0]
	c.acquire(n, acquireOf("r", "A", "1", 0))
	const wait = 4 * time.Second // longer than the node looks for a leader for a call that is in no queue
	begin := time.Now()
	waiting := c.begin(n, acquireOf("r", "B", "1", wait))
	c.untilWaiting("r", 1)
	for _, other := range c.nodes {
		c.disconnect(other)
	}
	_, err := waiting.wait(t)
	wantRefusal(t, err, lockpb.Reason_OUTCOME_UNKNOWN, lockpb.Applied_MAYBE)
	if took := time.Since(begin); took < wait {
		t.Errorf("ended after %v", took)
	}
}

// The cluster does not end the wait in time, because its clock stands still say. The node does, and cancels.
func TestNodeEndsAWaitThatIsOver(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	c.acquire(n, acquireOf("r", "A", "1", 0))
	in := acquireOf("r", "B", "1", 5*time.Second)
	in.AsOf = n.server.shards[0].now()
	c.begin(n, in)
	c.untilWaiting("r", 1)
	// A second copy of the call asks for less; the queue keeps the deadline of the first.
	in = proto.CloneOf(in)
	in.WaitTimeout = 100
	_, err := n.locks.Acquire(c.context(), in)
	if r := wantRefusal(t, err, lockpb.Reason_WAIT_TIMEOUT, lockpb.Applied_NO); r.detail.GetHolder().GetClientId() != "A" {
		t.Errorf("the refusal names the holder %v", r.detail.GetHolder())
	}
	if l := c.look(n, "r"); l.GetWaiting() != 0 {
		t.Errorf("still waits: %v", l)
	}
}

// A node's timer must not take back what another copy of the request was granted and answered: the holder works.
func TestNodeThatEndsAWaitKeepsTheLease(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	in := acquireOf("r", "A", "1", 100*time.Millisecond)
	in.AsOf = n.server.shards[0].now()
	held := c.acquire(n, in)
	// The answers to the second copy are lost until its wait is over and the node cancels.
	var over atomic.Bool
	lost := func(cmd lock.Command, _ group.Outcome, _ error) error {
		if _, ok := cmd.(lock.Cancel); ok {
			over.Store(true)
		}
		if isAcquire(cmd) && !over.Load() {
			return &group.Error{Kind: group.Unknown}
		}
		return nil
	}
	n.group.spoil.Store(&lost)
	again, err := n.locks.Acquire(c.context(), in)
	check(t, err)
	if !over.Load() {
		t.Fatal("the node did not end the wait")
	}
	if again.GetLeaseId() != held.GetLeaseId() || again.GetFencingToken() != held.GetFencingToken() || !again.GetRetried() {
		t.Errorf("got %v, want the lease of %v", again, held)
	}
	if holders := c.look(n, "r").GetHolders(); len(holders) != 1 || holders[0].GetFencingToken() != held.GetFencingToken() {
		t.Errorf("holders %v", holders)
	}
}

// A node whose replica lags stamps a request with a lease time that the cluster has forgotten already. The caller, who
// gave none, hears nothing of that.
func TestLaggingNodeStampsAgain(t *testing.T) {
	c := newCluster(t, 1)
	config := c.nodes[0].server.config
	config.Metrics = NewMetrics(prometheus.NewRegistry())
	lagging := &laggard{Group: c.nodes[0].group}
	s, err := New(config, lagging)
	check(t, err)
	out, err := s.Acquire(c.context(), acquireOf("r", "A", "1", 0))
	check(t, err)
	if out.GetRetried() || lagging.refusals.Load() == 0 {
		t.Errorf("got %v after %d refusals", out, lagging.refusals.Load())
	}
	// A caller who said how old the request is has to hear it.
	in := acquireOf("r", "B", "1", 0)
	in.AsOf = 1
	_, err = s.Acquire(c.context(), in)
	wantRefusal(t, err, lockpb.Reason_REQUEST_TOO_OLD, lockpb.Applied_NO)
}

// laggard is a group whose replica is at the beginning of lease time for the first few looks, and which refuses what
// was stamped then.
type laggard struct {
	Group
	looks, refusals atomic.Int32
}

func (l *laggard) View(fn func(*lock.Machine)) {
	if l.looks.Add(1) > 3 {
		l.Group.View(fn)
		return
	}
	m := lock.New()
	m.Apply(1, lock.Entry{Now: 1})
	fn(m)
}

func (l *laggard) Propose(ctx context.Context, cmd lock.Command) (group.Outcome, error) {
	if a, ok := cmd.(lock.Acquire); ok && a.AsOf == 1 {
		l.refusals.Add(1)
		return group.Outcome{Result: lock.Refused{Reason: lock.ReasonRequestTooOld}}, nil
	}
	return l.Group.Propose(ctx, cmd)
}

// The wait is the one parameter that copies of a request may differ in. One that does not wait is told that it is not
// its own yet, and leaves the place of the one that does.
func TestCopyThatDoesNotWait(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	held := c.acquire(n, acquireOf("r", "A", "1", 0))
	waiting := c.begin(n, acquireOf("r", "B", "1", 20*time.Second))
	c.untilWaiting("r", 1)
	_, err := n.locks.Acquire(c.context(), acquireOf("r", "B", "1", 0))
	wantRefusal(t, err, lockpb.Reason_REASON_HELD, lockpb.Applied_MAYBE)
	c.release(n, held)
	_, err = waiting.wait(t)
	check(t, err)
}

// A call that cannot be registered to wait, past the bound on waits for one, does not enter the queue.
func TestNothingQueuesThatNobodyWaitsFor(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	config := n.server.config
	config.Metrics, config.Patience = NewMetrics(prometheus.NewRegistry()), 10*time.Millisecond
	deaf := &deafGroup{Group: n.group}
	s, err := New(config, deaf)
	check(t, err)
	c.acquire(n, acquireOf("r", "A", "1", 0))
	_, err = s.Acquire(c.context(), acquireOf("r", "B", "1", 20*time.Second))
	wantRefusal(t, err, lockpb.Reason_NO_LEADER, lockpb.Applied_NO)
	if w := c.look(n, "r").GetWaiters(); len(w) != 0 {
		t.Errorf("waiting: %v", w)
	}
}

// deafGroup is a group whose waits have all ended before they begin.
type deafGroup struct{ Group }

func (deafGroup) Await(identity lease.Identity, client lease.ClientID, request lease.RequestID) *group.Wait {
	idle, err := group.New(group.Config{
		Node: "n1", Members: []group.Member{{ID: "n1", Peer: "n1:1"}}, Cluster: "idle", Dir: "unused", Lock: testLockConfig(),
	})
	if err != nil {
		panic(err)
	}
	return idle.Await(identity, client, request)
}

// A break whose outcome is unknown is not repeated: the second one would end the next holder.
func TestBreakIsNotRepeated(t *testing.T) {
	c := newCluster(t, 3)
	leader := c.leader()
	held := c.acquire(leader, acquireOf("r", "A", "1", 0))
	leader.group.loseAnswers(1, func(cmd lock.Command) bool { _, ok := cmd.(lock.Break); return ok })
	_, err := c.followers()[0].locks.Break(c.context(), &lockpb.BreakRequest{Resource: "r"})
	wantRefusal(t, err, lockpb.Reason_OUTCOME_UNKNOWN, lockpb.Applied_MAYBE)
	next := c.acquire(leader, acquireOf("r", "B", "1", 0))
	if got, want := next.GetFencingToken(), held.GetFencingToken()+2; got != want {
		t.Errorf("token %d, want %d: one break and one grant", got, want)
	}
}

// A release whose first answer was lost converges: the second attempt finds the lease ended, and says that this may
// be its own doing.
func TestRepeatedReleaseConverges(t *testing.T) {
	c := newCluster(t, 3)
	leader := c.leader()
	held := c.acquire(leader, acquireOf("r", "A", "1", 0))
	leader.group.loseAnswers(1, func(cmd lock.Command) bool { _, ok := cmd.(lock.Release); return ok })
	_, err := c.followers()[0].locks.Release(c.context(), &lockpb.ReleaseRequest{LeaseId: held.GetLeaseId()})
	wantRefusal(t, err, lockpb.Reason_LEASE_ENDED, lockpb.Applied_MAYBE)
	if l := c.look(leader, "r"); len(l.GetHolders()) != 0 {
		t.Errorf("still held: %v", l)
	}
}

// A node that stops ends the calls that wait on it; the request can be taken up elsewhere.
func TestStopEndsWaitingCalls(t *testing.T) {
	c := newCluster(t, 3)
	n := c.followers()[0]
	held := c.acquire(n, acquireOf("r", "A", "1", 0))
	in := acquireOf("r", "B", "1", 20*time.Second)
	in.AsOf = n.server.shards[0].now()
	waiting := c.begin(n, in)
	c.untilWaiting("r", 1)
	n.server.Stop()
	_, err := waiting.wait(t)
	wantRefusal(t, err, lockpb.Reason_STOPPING, lockpb.Applied_MAYBE)
	_, err = n.locks.Acquire(c.context(), acquireOf("r", "C", "1", 0))
	wantRefusal(t, err, lockpb.Reason_STOPPING, lockpb.Applied_NO)
	if n.server.Ready() == nil {
		t.Error("a stopping node is ready")
	}
	again := c.begin(c.leader(), in)
	c.until("it waits elsewhere", func() bool {
		w := c.look(c.leader(), "r").GetWaiters()
		return len(w) == 1 && w[0].GetAttached()
	})
	c.release(c.leader(), held)
	if _, err := again.wait(t); err != nil {
		t.Error(err)
	}
}

// The caller's deadline is near: it gets an answer before it, not a dead line.
func TestAnswerComesBeforeTheCallersDeadline(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	slow := func(cmd lock.Command, _ group.Outcome, _ error) error {
		if isAcquire(cmd) {
			return &group.Error{Kind: group.NotLeader}
		}
		return nil
	}
	n.group.spoil.Store(&slow)
	ctx, cancel := context.WithTimeout(c.context(), time.Second)
	defer cancel()
	_, err := n.locks.Acquire(ctx, acquireOf("r", "A", "1", 0))
	wantRefusal(t, err, lockpb.Reason_NO_LEADER, lockpb.Applied_NO)
	if ctx.Err() != nil {
		t.Error("the deadline passed first")
	}
}
