package api

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// talk is a client's side of a session.
type talk struct {
	c       *cluster
	stream  lockpb.Locks_SessionClient
	hangUp  context.CancelFunc
	last    uint64
	answers map[uint64]*lockpb.Answer
	leaders []*lockpb.Leader
}

func (c *cluster) talk(n *node) *talk {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.context())
	stream, err := n.locks.Session(ctx)
	check(c.t, err)
	return &talk{c: c, stream: stream, hangUp: cancel, answers: map[uint64]*lockpb.Answer{}}
}

// send sends calls in one message and returns the number of the first.
func (t *talk) send(calls ...*lockpb.Call) uint64 {
	t.c.t.Helper()
	first := t.last + 1
	for _, call := range calls {
		t.last++
		call.Id = t.last
	}
	check(t.c.t, t.stream.Send(&lockpb.SessionRequest{Calls: calls}))
	return first
}

// read takes one message.
func (t *talk) read() error {
	m, err := t.stream.Recv()
	if err != nil {
		return err
	}
	if len(m.GetLeaders()) > 0 {
		t.leaders = m.GetLeaders()
	}
	for _, a := range m.GetAnswers() {
		if t.answers[a.GetId()] != nil {
			t.c.t.Errorf("call %d is answered twice", a.GetId())
		}
		t.answers[a.GetId()] = a
	}
	return nil
}

// answer waits for the answer of a call.
func (t *talk) answer(id uint64) *lockpb.Answer {
	t.c.t.Helper()
	for t.answers[id] == nil {
		check(t.c.t, t.read())
	}
	return t.answers[id]
}

// end reads until the session is over and returns its status.
func (t *talk) end() error {
	for {
		if err := t.read(); err != nil {
			return err
		}
	}
}

func (t *talk) wantFailure(id uint64, reason lockpb.Reason, applied lockpb.Applied) {
	t.c.t.Helper()
	f := t.answer(id).GetFailure()
	if r := f.GetRefusal(); r.GetReason() != reason || r.GetApplied() != applied || f.GetMessage() == "" || codes.Code(f.GetCode()) != outwardOf(reason).code {
		t.c.t.Errorf("call %d: got %v, want %v, applied %v", id, t.answers[id], reason, applied)
	}
}

func acquireCall(in *lockpb.AcquireRequest) *lockpb.Call {
	return &lockpb.Call{Kind: &lockpb.Call_Acquire{Acquire: in}}
}

func releaseCall(id string) *lockpb.Call {
	return &lockpb.Call{Kind: &lockpb.Call_Release{Release: &lockpb.ReleaseRequest{LeaseId: id}}}
}

func heartbeatCall(ids ...string) *lockpb.Call {
	return &lockpb.Call{Kind: &lockpb.Call_Heartbeat{Heartbeat: &lockpb.HeartbeatRequest{LeaseIds: ids}}}
}

func abandonCall(id uint64) *lockpb.Call {
	return &lockpb.Call{Kind: &lockpb.Call_Abandon{Abandon: &lockpb.Abandon{Id: id}}}
}

// Every call does in a session what it does by itself, on the leader and elsewhere.
func TestSessionServesEveryCall(t *testing.T) {
	c := newCluster(t, 3)
	for _, n := range []*node{c.leader(), c.followers()[0]} {
		s := c.talk(n)
		const many = 300
		var calls []*lockpb.Call
		for i := range many {
			in := acquireOf(fmt.Sprintf("%s/r%d", n.id, i), "A", fmt.Sprintf("%s-%d", n.id, i), time.Duration(i%2)*20*time.Second)
			in.NoTicket = i%3 == 0
			calls = append(calls, acquireCall(in))
		}
		first := s.send(calls...)
		var ids []string
		for i := range uint64(many) {
			got := s.answer(first + i).GetAcquire()
			if got.GetResource() != fmt.Sprintf("%s/r%d", n.id, i) || got.GetFencingToken() == 0 || (got.GetTicket() == "") != (i%3 == 0) {
				t.Fatalf("call %d was answered %v", first+i, s.answers[first+i])
			}
			if i == 1 {
				c.checkTicket(got, "A")
			}
			ids = append(ids, got.GetLeaseId())
		}
		for len(s.leaders) != 1 || s.leaders[0].GetNode() != c.leader().id || s.leaders[0].GetGrpc() == "" {
			if err := s.read(); err != nil { // it is told when it changes
				t.Fatalf("%s says that the leaders are %v: %v", n.id, s.leaders, err)
			}
		}
		renew := s.send(
			&lockpb.Call{Kind: &lockpb.Call_Renew{Renew: &lockpb.RenewRequest{LeaseId: ids[0]}}},
			heartbeatCall(ids...),
			&lockpb.Call{Kind: &lockpb.Call_Cancel{Cancel: &lockpb.CancelRequest{ClientId: "A", RequestId: n.id + "-1", Resource: n.id + "/r1"}}})
		if got := s.answer(renew).GetRenew(); got.GetLeaseId() != ids[0] || got.GetTicket() == "" {
			t.Errorf("renewal: %v", s.answers[renew])
		}
		if got := s.answer(renew + 1).GetHeartbeat().GetBeats(); len(got) != many || got[0].GetRemaining() == 0 || got[0].GetTicket() != "" {
			t.Errorf("heartbeat: %d beats, the first %v", len(got), got[0])
		}
		if got := s.answer(renew + 2).GetCancel(); got.GetWas() != lockpb.RequestState_HELD {
			t.Errorf("cancel: %v", s.answers[renew+2])
		}
		again := s.send(acquireCall(acquireOf(n.id+"/r0", "B", n.id, 0)))
		s.wantFailure(again, lockpb.Reason_REASON_HELD, lockpb.Applied_NO)
		s.send(releaseCall(ids[0]), releaseCall(ids[1]), acquireCall(acquireOf("", "B", "2", 0)))
		if got := s.answer(again + 1).GetRelease(); got.GetResource() != n.id+"/r0" {
			t.Errorf("release: %v", s.answers[again+1])
		}
		s.wantFailure(again+2, lockpb.Reason_LEASE_ENDED, lockpb.Applied_NO)
		s.wantFailure(again+3, lockpb.Reason_INVALID, lockpb.Applied_NO)
		check(t, s.stream.CloseSend())
		if err := s.end(); status.Code(err) != codes.Unknown || err.Error() != "EOF" {
			t.Errorf("the session ended with %v", err)
		}
		if left := n.server.calls.Load(); left != 0 {
			c.until("no call is counted", func() bool { return n.server.calls.Load() == 0 })
		}
	}
}

// A wait is granted by a release in the same session; one that is abandoned, or whose session breaks, is detached and
// keeps its place; a call that times out is answered so.
func TestWaitsInASession(t *testing.T) {
	c := newCluster(t, 3)
	for i, n := range []*node{c.leader(), c.followers()[0]} {
		r := fmt.Sprintf("r%d", i)
		s, other := c.talk(n), c.talk(n)
		held := c.acquire(n, acquireOf(r, "A", r, 0))
		waits := s.send(acquireCall(acquireOf(r, "B", r, 30*time.Second)))
		c.untilWaiting(r, 1)
		s.send(acquireCall(acquireOf(r, "C", r, 30*time.Second)))
		c.untilWaiting(r, 2)
		other.send(acquireCall(acquireOf(r, "D", r, 30*time.Second)))
		c.untilWaiting(r, 3)
		late := other.send(acquireCall(acquireOf(r, "E", r, 200*time.Millisecond)))
		other.wantFailure(late, lockpb.Reason_WAIT_TIMEOUT, lockpb.Applied_NO)
		attached := func() (clients []string) {
			for _, w := range c.look(n, r).GetWaiters() {
				if w.GetAttached() {
					clients = append(clients, w.GetClientId())
				}
			}
			return clients
		}
		s.send(abandonCall(waits + 1))
		c.until("the abandoned wait is detached", func() bool { return slices.Equal(attached(), []string{"B", "D"}) })
		other.hangUp()
		c.until("the wait of a broken session is detached", func() bool { return slices.Equal(attached(), []string{"B"}) })
		if waiting := c.look(n, r).GetWaiting(); waiting != 3 {
			t.Errorf("%d wait, want all in their places", waiting)
		}
		s.send(releaseCall(held.GetLeaseId()))
		if got := s.answer(waits).GetAcquire(); got.GetRemaining() != got.GetTtl() || got.GetFencingToken() <= held.GetFencingToken() {
			t.Errorf("granted %v", s.answers[waits])
		}
		c.until("only the session counts", func() bool { return n.server.calls.Load() == 1 })
		s.hangUp()
	}
}

// The first answer is lost, and the node asks again: one effect, and the same lease.
func TestLostAnswerInASession(t *testing.T) {
	c := newCluster(t, 1)
	n := c.leader()
	s := c.talk(n)
	n.group.loseAnswers(1, func(cmd lock.Command) bool { _, ok := cmd.(lock.Acquire); return ok })
	first := s.send(acquireCall(acquireOf("r", "A", "1", 0)))
	got := s.answer(first).GetAcquire()
	if got.GetFencingToken() != 1 || !got.GetRetried() || got.GetRemaining() != got.GetTtl() {
		t.Errorf("acquire: %v", s.answers[first])
	}
	n.group.loseAnswers(1, func(cmd lock.Command) bool { _, ok := cmd.(lock.Release); return ok })
	second := s.send(releaseCall(got.GetLeaseId()))
	s.wantFailure(second, lockpb.Reason_LEASE_ENDED, lockpb.Applied_MAYBE) // perhaps by the first attempt
}

// Every session tells of the next leader, and waits go on through it.
func TestSessionOutlivesTheLeader(t *testing.T) {
	c := newCluster(t, 3)
	old := c.leader()
	s := c.talk(c.followers()[0])
	held := c.acquire(old, acquireOf("r", "A", "1", 0))
	waits := s.send(acquireCall(acquireOf("r", "B", "1", 30*time.Second)))
	c.untilWaiting("r", 1)
	c.disconnect(old)
	for len(s.leaders) == 0 || s.leaders[0].GetNode() == old.id || s.leaders[0].GetNode() == "" {
		check(t, s.read())
	}
	s.send(releaseCall(held.GetLeaseId()))
	if got := s.answer(waits).GetAcquire(); got.GetFencingToken() <= held.GetFencingToken() {
		t.Errorf("granted %v", s.answers[waits])
	}
}

// A node that stops answers what waits, ends its sessions, and says so.
func TestSessionEndsWithItsNode(t *testing.T) {
	c := newCluster(t, 1)
	n := c.leader()
	s := c.talk(n)
	c.acquire(n, acquireOf("r", "A", "1", 0))
	waits := s.send(acquireCall(acquireOf("r", "B", "1", 30*time.Second)))
	c.untilWaiting("r", 1)
	n.server.Stop()
	s.wantFailure(waits, lockpb.Reason_STOPPING, lockpb.Applied_MAYBE)
	wantRefusal(t, s.end(), lockpb.Reason_STOPPING, lockpb.Applied_NO)
}

// What no client of this API sends ends the session that sent it, with a reason, and nothing else.
func TestSessionRefusesNonsense(t *testing.T) {
	c := newCluster(t, 1)
	n := c.leader()
	for name, message := range map[string]*lockpb.SessionRequest{
		"no kind":        {Calls: []*lockpb.Call{{Id: 1}}},
		"too many calls": {Calls: slices.Repeat([]*lockpb.Call{abandonCall(1)}, maxMessageCalls+1)},
		"one id twice": {Calls: []*lockpb.Call{
			{Id: 7, Kind: acquireCall(acquireOf("r", "A", "1", time.Second)).GetKind()},
			{Id: 7, Kind: acquireCall(acquireOf("r", "B", "1", time.Second)).GetKind()},
		}},
	} {
		s := c.talk(n)
		check(t, s.stream.Send(message))
		if r := wantRefusal(t, s.end(), lockpb.Reason_INVALID, lockpb.Applied_NO); r.message == "" {
			t.Errorf("%s: no message", name)
		}
	}
	s := c.talk(n)
	if err := s.stream.SendMsg(&lockpb.AcquireRequest{Resource: "not a message of sessions"}); err != nil {
		t.Fatal(err)
	}
	wantRefusal(t, s.end(), lockpb.Reason_INVALID, lockpb.Applied_NO)
	ok := c.talk(n)
	if got := ok.answer(ok.send(acquireCall(acquireOf("after", "A", "1", 0)))); got.GetAcquire() == nil {
		t.Errorf("afterwards: %v", got)
	}
	c.until("nothing is left behind", func() bool { return n.server.calls.Load() == 1 })
}

// A session has a bound; those that keep and end leases come in after it is reached.
func TestSessionIsBounded(t *testing.T) {
	c := newCluster(t, 1)
	server := c.leader().server
	server.config.MaxCalls = 4 * maxSessionCalls
	x := server.newSession(t.Context())
	now := time.Now()
	admit := func(call *lockpb.Call) bool {
		c, err := x.admit(call, now)
		check(t, err)
		return c != nil
	}
	id := uint64(0)
	next := func(call *lockpb.Call) *lockpb.Call {
		id++
		call.Id = id
		return call
	}
	for range maxSessionCalls {
		if !admit(next(acquireCall(acquireOf("r", "A", "1", 0)))) {
			t.Fatalf("call %d was refused", id)
		}
	}
	if admit(next(acquireCall(acquireOf("r", "A", "1", 0)))) {
		t.Error("an acquire was let in beyond the bound")
	}
	if got := x.answers[0].GetFailure().GetRefusal(); got.GetReason() != lockpb.Reason_OVERLOADED || got.GetRetryAfter() == 0 {
		t.Errorf("refused with %v", got)
	}
	if !admit(next(releaseCall("x"))) {
		t.Error("a release was not let in")
	}
	for admit(next(heartbeatCall("x"))) {
		if id > 2*maxSessionCalls {
			t.Fatal("heartbeats have no bound")
		}
	}
}

// Calls for another node cost a goroutine here and a call of their own there, so they are fewer. Those that wait in a queue cost
// nothing meanwhile.
func TestCallsForAnotherNodeAreBounded(t *testing.T) {
	c := newCluster(t, 3)
	x := c.followers()[0].server.newSession(t.Context())
	defer x.abandonAll()
	defer x.end(nil)
	x.away = maxSessionAway
	begin := func(id uint64, call *lockpb.Call) *lockpb.Refusal {
		call.Id = id
		check(t, x.receive([]*lockpb.Call{call}))
		x.mu.Lock()
		defer x.mu.Unlock()
		for _, a := range x.answers {
			if a.GetId() == id {
				return a.GetFailure().GetRefusal()
			}
		}
		return nil
	}
	if got := begin(1, acquireCall(acquireOf("r", "A", "1", 0))); got.GetReason() != lockpb.Reason_OVERLOADED || got.GetRetryAfter() == 0 || got.GetApplied() != lockpb.Applied_NO {
		t.Errorf("an acquire beyond the bound: %v", got)
	}
	if got := begin(2, acquireCall(acquireOf("s", "A", "2", time.Minute))); got.GetReason() == lockpb.Reason_OVERLOADED {
		t.Error("an acquire that may wait was refused")
	}
	if got := begin(3, releaseCall(newLeaseID(0).String())); got.GetReason() == lockpb.Reason_OVERLOADED {
		t.Error("a release was refused")
	}
	x.mu.Lock()
	x.away = 2*maxSessionAway + 10 // whatever comes back meanwhile
	x.mu.Unlock()
	if got := begin(4, releaseCall(newLeaseID(0).String())); got.GetReason() != lockpb.Reason_OVERLOADED {
		t.Errorf("a release beyond the bound: %v", got)
	}
	// One that may have taken effect is not said to have none.
	call := acquireCall(acquireOf("t", "A", "3", 0))
	call.Id = 5
	admitted, err := x.admit(call, time.Now())
	check(t, err)
	x.anywhere(admitted, true)
	x.mu.Lock()
	defer x.mu.Unlock()
	last := x.answers[len(x.answers)-1]
	if got := last.GetFailure().GetRefusal(); last.GetId() != 5 || got.GetReason() != lockpb.Reason_OUTCOME_UNKNOWN {
		t.Errorf("one that may have taken effect: %v", last)
	}
}

// The answers of heartbeats are long, so their leases are bounded too, until the answers are sent.
func TestLeasesInASessionAreBounded(t *testing.T) {
	c := newCluster(t, 1)
	x := c.leader().server.newSession(t.Context())
	ids := slices.Repeat([]string{""}, maxHeartbeat)
	admit := func(id uint64) *sessionCall {
		call := heartbeatCall(ids...)
		call.Id = id
		c, err := x.admit(call, time.Now())
		check(t, err)
		return c
	}
	const all = maxSessionLeases / maxHeartbeat
	var calls []*sessionCall
	for id := range uint64(all) {
		if c := admit(id); c != nil {
			calls = append(calls, c)
		}
	}
	if len(calls) != all || admit(all) != nil {
		t.Fatalf("%d heartbeats were let in, or one more", len(calls))
	}
	if got := x.answers[0].GetFailure().GetRefusal(); got.GetReason() != lockpb.Reason_OVERLOADED || got.GetRetryAfter() == 0 {
		t.Errorf("refused with %v", got)
	}
	x.finish(calls[0], &lockpb.Answer{Kind: &lockpb.Answer_Heartbeat{Heartbeat: &lockpb.HeartbeatResponse{Beats: make([]*lockpb.Beat, maxHeartbeat)}}}, nil)
	if admit(all+1) != nil {
		t.Error("one was let in for an answer that is not sent")
	}
	_, answers := x.take()
	x.sent(&lockpb.SessionResponse{Answers: answers})
	x.finish(calls[1], nil, refuse(lockpb.Reason_NO_LEADER, "none"))
	x.abandon(calls[2].request.GetId())
	x.finish(calls[2], nil, nil)
	for id := uint64(all + 2); id < all+5; id++ {
		if admit(id) == nil {
			t.Errorf("no room after an answer was sent, one was a refusal, and one is not wanted: %d leases", x.leases)
		}
	}
	if admit(all+5) != nil {
		t.Error("there is more room than was made")
	}
}

// One heartbeat has a bound of bytes in a session as it has by itself, and what it says of refused leases counts.
func TestLongHeartbeatsInASession(t *testing.T) {
	c := newCluster(t, 1)
	s := c.talk(c.leader())
	long := s.send(heartbeatCall(slices.Repeat([]string{strings.Repeat("x", maxHeartbeatRequest/maxHeartbeat)}, maxHeartbeat)...))
	s.wantFailure(long, lockpb.Reason_INVALID, lockpb.Applied_NO)
	answer := &lockpb.Answer{Kind: &lockpb.Answer_Heartbeat{Heartbeat: &lockpb.HeartbeatResponse{
		Beats: slices.Repeat([]*lockpb.Beat{{LeaseId: strings.Repeat("x", 60), Refusal: refuse(lockpb.Reason_INVALID, "").detail}}, maxHeartbeat),
	}}}
	if about, size := answerSize(answer), proto.Size(answer); about < size {
		t.Errorf("an answer of %d bytes counts as %d", size, about)
	}
}

// A client that sends and does not read is not read either, and is cut off. Others go on.
func TestSessionThatDoesNotRead(t *testing.T) {
	c := newCluster(t, 1)
	n := c.leader()
	n.server.stall = 300 * time.Millisecond
	held := c.acquire(n, acquireOf("r", "A", "1", 0))
	s := c.talk(n)
	ids := slices.Repeat([]string{held.GetLeaseId()}, maxHeartbeat)
	var sending sync.WaitGroup
	defer sending.Wait()
	defer s.hangUp()
	sending.Go(func() {
		for id := uint64(1); ; id++ {
			if s.stream.Send(&lockpb.SessionRequest{Calls: []*lockpb.Call{{Id: id, Kind: heartbeatCall(ids...).GetKind()}}}) != nil {
				return
			}
		}
	})
	c.until("the session is there", func() bool { return n.server.calls.Load() > 0 })
	c.until("the session is cut off", func() bool { return n.server.calls.Load() == 0 })
	c.release(n, held)
	wantRefusal(t, s.end(), lockpb.Reason_OVERLOADED, lockpb.Applied_NO)
}

// A stream that breaks with calls in it leaves nothing behind but what they did.
func TestSessionBreaksInTheMiddle(t *testing.T) {
	c := newCluster(t, 1)
	n := c.leader()
	for i := range 20 {
		s := c.talk(n)
		var calls []*lockpb.Call
		for j := range 50 {
			calls = append(calls, acquireCall(acquireOf(fmt.Sprintf("r%d/%d", i, j), "A", fmt.Sprintf("%d-%d", i, j), time.Duration(j%3)*time.Second)))
		}
		s.send(calls...)
		if i%2 == 0 {
			s.answer(1)
		}
		s.hangUp()
		if err := s.end(); !errors.Is(err, context.Canceled) && status.Code(err) != codes.Canceled {
			t.Errorf("ended with %v", err)
		}
	}
	c.until("nothing is left behind", func() bool { return n.server.calls.Load() == 0 })
	out, err := n.locks.Acquire(c.context(), acquireOf("r19/0", "A", "19-0", 0)) // the same request again
	if err != nil || out.GetFencingToken() == 0 {
		t.Errorf("afterwards: %v, %v", out, err)
	}
}
