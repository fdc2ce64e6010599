package client

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/coordinator/lockpb"
	"github.com/lychgate/lychgate/coordinator/lockpb/wire"
)

// Bounds of a session. A call beyond them is made by itself, outside of the session.
const (
	maxSessionCalls = 8000     // in progress; a coordinator allows a few more
	maxBacklog      = 4 << 20  // bytes that have not been sent yet
	maxMessageCalls = 1000     // in one message, as the API says
	maxMessageBytes = 64 << 10 // about; a coordinator takes more
	sessionIdle     = time.Minute
)

// Why a session does not take a call. It was certainly not sent then.
var (
	errSessionOver   = errors.New("the session has ended")
	errSessionFull   = errors.New("the session is full")
	errSessionAbsent = errors.New("the node has no sessions")
)

// session carries calls to one node over one stream. It is opened when it is made, and ends with its stream, after a
// minute without a call, or with close. Then it takes no calls any more; what was in progress has failed.
type session struct {
	addr  string
	owner sessionOwner
	ctx   context.Context
	end   context.CancelFunc
	wake  chan struct{} // capacity 1: there is something to send

	spare sync.Pool     // of *inflight that were answered
	last  atomic.Uint64 // id of a call

	closing context.Context // the client's: it ends calls, not the session
	heard   atomic.Bool     // the node has answered something: it is there, and the session goes on

	mu       sync.Mutex
	calls    map[uint64]*inflight
	queue    []*inflight // to be sent
	bytes    int         // in queue
	err      error       // why it is over
	wasHeard bool        // when it ended
	alarm    *time.Timer // for the first deadline of a call; nil until there was one
	first    time.Time   // when it rings; zero: not at all
}

// inflight is one call.
type inflight struct {
	id   uint64
	raw  []byte // until it is sent, or given up
	room []byte // for raw
	sent bool
	late time.Time           // when its caller is to be reminded of the time; zero: not at all
	done chan *lockpb.Answer // capacity 2: reminder, and the answer; closed if the session ends first
}

// reminder has the caller of a call look whether its context has ended. That is cheaper than a timer and a wait for several
// things for each call, of which hardly any comes to see its end.
var reminder = new(lockpb.Answer)

// remind wakes the caller of a call. The caller holds the session's mu, as whoever sends to done does.
func (c *inflight) remind() {
	if len(c.done) == 0 {
		c.done <- reminder
	}
}

// take receives the answer; nil if the session is over. It is there, or comes.
func (c *inflight) take() *lockpb.Answer {
	for {
		if answer := <-c.done; answer != reminder {
			return answer
		}
	}
}

// sessionOwner is told what a session learns. The session holds no lock of its own meanwhile.
type sessionOwner interface {
	learn(leaders []*lockpb.Leader)
	ended(s *session, heard bool, cause error) // once
}

// newSession makes one for the calls of a client that ends with closing.
func newSession(closing context.Context, addr string, owner sessionOwner) *session {
	s := &session{addr: addr, owner: owner, closing: closing, wake: make(chan struct{}, 1), calls: make(map[uint64]*inflight)}
	s.ctx, s.end = context.WithCancel(context.Background())
	return s
}

// run opens the stream and sends what is queued until the session ends.
func (s *session) run(conn *grpc.ClientConn) {
	defer s.end()
	defer context.AfterFunc(s.closing, s.remindAll)()
	stream, err := conn.NewStream(s.ctx, &lockpb.Locks_ServiceDesc.Streams[sessionStream], lockpb.Locks_Session_FullMethodName, grpc.ForceCodecV2(rawCodec{}))
	if err != nil {
		s.finish(err)
		return
	}
	var receiving sync.WaitGroup
	defer receiving.Wait()
	defer s.end()
	receiving.Go(func() { s.receive(stream) })
	idle := time.NewTimer(sessionIdle)
	defer idle.Stop()
	for {
		select {
		case <-s.wake:
			idle.Reset(sessionIdle)
		case <-idle.C:
			if s.expire() {
				return
			}
			idle.Reset(sessionIdle)
			continue
		case <-s.ctx.Done():
			return
		}
		runtime.Gosched() // others that are about to call can still join this message
		for message := s.take(); message != nil; message = s.take() {
			if stream.SendMsg(&message) != nil {
				return // the receiver learns why
			}
		}
	}
}

// expire ends a session that nobody uses.
func (s *session) expire() bool {
	s.mu.Lock()
	unused := len(s.calls) == 0 && len(s.queue) == 0
	s.mu.Unlock()
	if unused {
		s.finish(errSessionOver)
	}
	return unused
}

// receive hands out answers until the stream ends.
func (s *session) receive(stream grpc.ClientStream) {
	for {
		var message lockpb.SessionResponse
		if err := stream.RecvMsg(&message); err != nil {
			s.finish(err)
			s.end()
			return
		}
		s.deliver(&message)
	}
}

// deliver hands out the answers of one message.
func (s *session) deliver(message *lockpb.SessionResponse) {
	s.mu.Lock()
	if s.err == nil {
		s.heard.Store(true)
	}
	for _, answer := range message.GetAnswers() {
		if c := s.calls[answer.GetId()]; c != nil && c.sent {
			delete(s.calls, c.id)
			c.done <- answer
		}
	}
	s.mu.Unlock()
	if leaders := message.GetLeaders(); len(leaders) > 0 {
		s.owner.learn(leaders)
	}
}

// finish ends the session for its callers. Only the first cause counts.
func (s *session) finish(err error) {
	s.mu.Lock()
	if s.err != nil {
		s.mu.Unlock()
		return
	}
	s.err = err
	for _, c := range s.calls {
		close(c.done)
	}
	s.calls, s.queue = nil, nil
	if s.alarm != nil {
		s.alarm.Stop()
	}
	heard := s.heard.Swap(false)
	s.wasHeard = heard
	s.mu.Unlock()
	s.owner.ended(s, heard, err)
}

// take makes the next message of what is queued; nil if nothing is.
func (s *session) take() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.queue) == 0 {
		return nil
	}
	message := make([]byte, 0, min(s.bytes, maxMessageBytes+maxMessageBytes/8))
	taken, calls := 0, 0
	for _, c := range s.queue {
		if calls == maxMessageCalls || len(message) > maxMessageBytes {
			break
		}
		s.queue[taken] = nil
		taken++
		if c.raw != nil {
			calls++
			message = append(message, c.raw...)
			s.bytes -= len(c.raw)
			c.raw, c.sent = nil, true
		}
	}
	s.queue = s.queue[taken:]
	if len(s.queue) == 0 {
		s.queue = nil
	}
	if len(message) == 0 {
		return nil // all were given up
	}
	return message
}

// do makes one call. sent says whether it may have reached the node. An error of the node's own is in the answer.
func (s *session) do(ctx context.Context, call *lockpb.Call) (answer *lockpb.Answer, sent bool, err error) {
	c, err := s.enqueue(ctx, call)
	if err != nil {
		return nil, false, err
	}
	answer, answered := s.await(ctx, c)
	switch {
	case answer != nil:
		s.spare.Put(c) // nobody else has it: it was sent, and it is no more in calls
		return answer, true, nil
	case answered:
		door, cause := s.cause()
		return nil, c.sent && !door, cause
	}
	answer, sent = s.abandon(c)
	if answer != nil {
		return answer, true, nil
	}
	return nil, sent, ctx.Err()
}

// await blocks until a call is answered or ctx ends. An answer of nothing says that the session is over.
func (s *session) await(ctx context.Context, c *inflight) (answer *lockpb.Answer, answered bool) {
	e := endsOf(ctx)
	if e.closing == s.closing.Done() {
		e.closing = nil // remindAll tells
	}
	for {
		answer, ended := c.receive(e)
		if !ended && answer != reminder {
			return answer, true
		}
		if ctx.Err() == nil && !ended {
			continue
		}
		return nil, false
	}
}

// receive blocks until something comes for a call, or one of the ends has come that nobody reminds of.
func (c *inflight) receive(e ends) (answer *lockpb.Answer, ended bool) {
	if e.done == nil && e.closing == nil {
		return <-c.done, false
	}
	select {
	case answer := <-c.done:
		return answer, false
	case <-e.done:
	case <-e.closing:
	}
	return nil, true
}

func (s *session) enqueue(ctx context.Context, call *lockpb.Call) (c *inflight, err error) {
	deadline, bounded := ctx.Deadline()
	if bounded {
		call.Timeout = uint32(max(1, time.Until(deadline).Milliseconds()))
	}
	call.Id = s.last.Add(1)
	c, ok := s.spare.Get().(*inflight)
	if !ok {
		c = &inflight{room: make([]byte, 0, 256), done: make(chan *lockpb.Answer, 2)}
	}
	c.id, c.late, c.sent = call.GetId(), deadline, false
	if c.raw, err = wire.AppendCall(c.room[:0], call); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil:
		return nil, errors.Join(errSessionOver, s.err)
	case len(s.calls) >= maxSessionCalls || s.bytes >= maxBacklog:
		return nil, errSessionFull
	}
	s.calls[c.id] = c
	s.put(c)
	if bounded && (s.first.IsZero() || deadline.Before(s.first)) {
		s.setAlarm(deadline)
	}
	if s.closing.Err() != nil {
		c.remind() // it may have come after everybody was reminded
	}
	return c, nil
}

// setAlarm has late calls reminded at an instant. The caller holds mu.
func (s *session) setAlarm(at time.Time) {
	s.first = at
	if s.alarm == nil {
		s.alarm = time.AfterFunc(time.Until(at), s.remindLate)
	} else {
		s.alarm.Reset(time.Until(at))
	}
}

// remindLate reminds those whose deadline has come, and sets the alarm for the next.
func (s *session) remindLate() {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	var next time.Time
	for _, c := range s.calls {
		switch {
		case c.late.IsZero():
		case !now.Before(c.late):
			c.late = time.Time{}
			c.remind()
		case next.IsZero() || c.late.Before(next):
			next = c.late
		}
	}
	s.first = time.Time{}
	if !next.IsZero() {
		s.setAlarm(next)
	}
}

// remindAll reminds everybody that the client closes.
func (s *session) remindAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, c := range s.calls {
		c.remind()
	}
}

// put queues something to be sent. The caller holds mu.
func (s *session) put(c *inflight) {
	s.queue = append(s.queue, c)
	s.bytes += len(c.raw)
	select {
	case s.wake <- struct{}{}:
	default: // awake already
	}
}

// abandon gives a call up. It may have been answered in this moment; otherwise sent says whether the node knows of it.
func (s *session) abandon(c *inflight) (answer *lockpb.Answer, sent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[c.id] != c { // answered, or the session is over
		return c.take(), c.sent
	}
	delete(s.calls, c.id)
	if !c.sent {
		s.bytes -= len(c.raw)
		c.raw = nil
		if len(s.queue) > 2*maxSessionCalls { // while nothing can be sent, those that were given up would pile up
			s.queue = slices.DeleteFunc(s.queue, func(c *inflight) bool { return c.raw == nil })
		}
		return nil, false
	}
	id := s.last.Add(1)
	raw, err := wire.AppendCall(nil, &lockpb.Call{Id: id, Kind: &lockpb.Call_Abandon{Abandon: &lockpb.Abandon{Id: c.id}}})
	if err == nil { // it has two numbers
		s.put(&inflight{id: id, raw: raw})
	}
	return nil, true
}

// cause says why the session is over. door says that the node did not let it in: it has looked at no call.
func (s *session) cause() (door bool, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	code := status.Code(s.err)
	door = !s.wasHeard && refusedAtTheDoor(code)
	if code == codes.Unimplemented {
		return door, errors.Join(errSessionAbsent, s.err)
	}
	return door, s.err
}

// isHeard reports whether the node has answered, and the session goes on.
func (s *session) isHeard() bool { return s.heard.Load() }
