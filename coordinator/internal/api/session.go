package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Bounds of one session.
const (
	maxSessionCalls   = 8192             // in progress; past it a call is answered OVERLOADED, and a client that sends on is not read
	maxSessionAway    = 1024             // of them that another node serves, and do not wait in a queue; twice as many with those that keep or end leases
	maxMessageCalls   = 1000             // in one message; more end the session
	maxSessionLeases  = 100_000          // in heartbeats that are in progress or whose answers are not sent; past it a heartbeat is answered OVERLOADED
	maxSessionMessage = 1 << 20          // bytes of a message of the client, and of answers that are sent together
	sessionStall      = 30 * time.Second // a client that reads nothing for so long is cut off
	sessionSweep      = 250 * time.Millisecond
	sessionStop       = 2 * time.Second // for the last answers of a node that stops
)

// session is one client's stream of calls. A call that this node can serve by itself, as the leader of its group, has no
// goroutine: all that came in one message are proposed together, and what their entries say is answered together. Every
// other call is served as its unary form is, in a goroutine.
//
// The reader begins calls, the writer ends them and sends answers; groups tell of results from goroutines of theirs.
type session struct {
	*Server
	ctx      context.Context // ends with the session; the cause says why
	end      context.CancelCauseFunc
	calling  context.Context // of the calls with a goroutine: ends with the session, and when the node stops
	hush     context.CancelFunc
	identity lease.Identity
	work     sync.WaitGroup // calls with a goroutine

	wake chan struct{} // capacity 1: there is something for the writer
	room chan struct{} // capacity 1: the writer has sent something

	mu       sync.Mutex
	calls    map[uint64]*sessionCall // those whose answer is wanted
	here     callList                // those that a group will tell of
	told     []*sessionCall
	answers  []*lockpb.Answer
	inside   int  // calls that are not over, those whose caller is gone too
	away     int  // calls with a goroutine that do not wait in a queue
	leases   int  // of the heartbeats whose answers are wanted and not sent
	last     bool // the client sends no more
	stopping bool
	over     bool
}

// sessionCall is one call of a session.
type sessionCall struct {
	group.Submission // of one that is served here

	session *session
	shard   *shard
	request *lockpb.Call
	op      operation
	began   time.Time
	until   time.Time // when its answer is no longer wanted, or can no longer be waited for
	leave   func()

	outcome group.Outcome // told by the group
	err     error
	wait    *group.Wait // of an acquire that may wait
	pulse   *pulse      // of a heartbeat that is one command

	// Under the session's lock.
	cancel   context.CancelFunc // of one that has a goroutine
	gone     bool               // its caller is
	answered bool
	listed   bool // in the list of those that a group will tell of
	before   *sessionCall
	after    *sessionCall
}

// Answered implements group.Caller.
func (c *sessionCall) Answered(outcome group.Outcome, err error) {
	x := c.session
	x.mu.Lock()
	defer x.mu.Unlock()
	c.outcome, c.err = outcome, err
	if !x.here.remove(c) {
		return // the session is over, and has given it up
	}
	x.told = append(x.told, c)
	signal(x.wake)
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // it is signalled already
	}
}

// errSessionDone ends a session whose client has closed it and has all answers.
var errSessionDone = errors.New("the session is done")

// Session implements lockpb.LocksServer.
func (s *Server) Session(stream lockpb.Locks_SessionServer) error {
	leave, refused := s.enter(false)
	if refused != nil {
		return refused
	}
	defer leave()
	x := s.newSession(stream.Context())
	defer context.AfterFunc(s.closing, x.hush)()
	// These two end with the stream, which this method's return ends: a send to a client that does not read has no
	// other end.
	go x.read(stream)
	go x.write(stream)
	select {
	case <-x.ctx.Done():
	case <-s.closing.Done():
		x.stop()
		select {
		case <-x.ctx.Done():
		case <-time.After(sessionStop):
		}
	}
	x.end(nil)
	x.abandonAll()
	return x.verdict()
}

func (s *Server) newSession(ctx context.Context) *session {
	x := &session{
		Server: s, identity: s.identity(ctx),
		wake: make(chan struct{}, 1), room: make(chan struct{}, 1),
		calls: make(map[uint64]*sessionCall),
	}
	x.ctx, x.end = context.WithCancelCause(ctx)
	x.calling, x.hush = context.WithCancel(x.ctx)
	return x
}

// stop refuses new calls and ends those that wait; the writer ends the session when the last answer is out.
func (x *session) stop() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stopping = true
	signal(x.wake)
}

// verdict is the status of a session that is over.
func (x *session) verdict() error {
	cause := context.Cause(x.ctx)
	var refused *refusal
	switch {
	case errors.Is(cause, errSessionDone):
		return nil
	case errors.As(cause, &refused):
		return refused
	case x.closing.Err() != nil:
		return refuse(lockpb.Reason_STOPPING, "the node is stopping")
	}
	return cause // of the stream
}

// read begins the calls of the client until the session ends.
func (x *session) read(stream lockpb.Locks_SessionServer) {
	for {
		var message frame
		err := stream.RecvMsg(&message)
		if errors.Is(err, io.EOF) {
			x.mu.Lock()
			x.last = true
			x.mu.Unlock()
			signal(x.wake)
			return
		}
		var request lockpb.SessionRequest
		if err == nil {
			err = message.readSession(&request)
		}
		if err == nil {
			err = x.receive(request.GetCalls())
		}
		if err != nil {
			x.end(err)
			return
		}
		if !x.awaitRoom() {
			return
		}
	}
}

// awaitRoom blocks while the client does not take its answers, so that what it sends meanwhile stays with it.
func (x *session) awaitRoom() bool {
	for {
		x.mu.Lock()
		backlog := len(x.answers) + len(x.told)
		x.mu.Unlock()
		if backlog < maxSessionCalls {
			return x.ctx.Err() == nil
		}
		select {
		case <-x.room:
		case <-x.ctx.Done():
			return false
		}
	}
}

// write answers until the session ends: whatever is ready goes out together.
func (x *session) write(stream lockpb.Locks_SessionServer) {
	stalled := time.AfterFunc(x.stall, func() {
		x.end(refuse(lockpb.Reason_OVERLOADED, fmt.Sprintf("the client has read no answer for %v", x.stall)))
	})
	stalled.Stop()
	defer stalled.Stop()
	sweep := time.NewTimer(sessionSweep)
	defer sweep.Stop()
	var asleep bool // the sweep is not needed
	leaders, changed := x.leaders(), x.news.next()
	for x.ctx.Err() == nil {
		told, answers := x.take()
		for _, c := range told {
			x.settle(c)
		}
		more, idle := x.ready()
		answers = append(answers, more...)
		for len(answers) > 0 || leaders != nil {
			var message *lockpb.SessionResponse
			message, answers = gather(answers, leaders)
			leaders = nil
			stalled.Reset(x.stall)
			if err := stream.SendMsg(message); err != nil {
				x.end(err)
				return
			}
			stalled.Stop()
			x.sent(message)
		}
		if idle != nil {
			x.end(idle)
			return
		}
		if asleep && x.busy() {
			asleep = false
			sweep.Reset(sessionSweep)
		}
		select {
		case <-x.wake:
		case <-changed:
			changed = x.news.next()
			leaders = x.leaders()
		case <-sweep.C:
			if asleep = !x.expire(time.Now()); !asleep {
				sweep.Reset(sessionSweep)
			}
		case <-x.ctx.Done():
		}
	}
}

// sent makes room for what may follow a message.
func (x *session) sent(message *lockpb.SessionResponse) {
	leases := 0
	for _, a := range message.GetAnswers() {
		leases += len(a.GetHeartbeat().GetBeats())
	}
	x.mu.Lock()
	x.leases -= leases
	x.mu.Unlock()
	signal(x.room)
}

// gather makes one message of the first answers.
func gather(answers []*lockpb.Answer, leaders []*lockpb.Leader) (message *lockpb.SessionResponse, rest []*lockpb.Answer) {
	n, size := 0, 0
	for n < len(answers) && n < maxMessageCalls && size < maxSessionMessage {
		size += answerSize(answers[n])
		n++
	}
	return &lockpb.SessionResponse{Answers: answers[:n], Leaders: leaders}, answers[n:]
}

// answerSize is about how long an answer is.
func answerSize(a *lockpb.Answer) int {
	const beat = 80
	size := 256
	switch kind := a.GetKind().(type) {
	case *lockpb.Answer_Acquire:
		size += len(kind.Acquire.GetTicket()) + len(kind.Acquire.GetResource())
	case *lockpb.Answer_Renew:
		size += len(kind.Renew.GetTicket()) + len(kind.Renew.GetResource())
	case *lockpb.Answer_Heartbeat:
		for _, b := range kind.Heartbeat.GetBeats() {
			size += beat + len(b.GetTicket())
			if b.GetRefusal() != nil {
				size += len(b.GetLeaseId()) + proto.Size(b.GetRefusal())
			}
		}
	}
	return size
}

// take removes what groups have told and what is ready to be sent.
func (x *session) take() (told []*sessionCall, answers []*lockpb.Answer) {
	x.mu.Lock()
	defer x.mu.Unlock()
	told, answers = x.told, x.answers
	x.told, x.answers = nil, nil
	return told, answers
}

// ready removes what is ready to be sent. If nothing can come any more, idle says how the session ends.
func (x *session) ready() (answers []*lockpb.Answer, idle error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	answers, x.answers = x.answers, nil
	switch {
	case len(x.calls) > 0 || len(x.told) > 0:
	case x.stopping:
		idle = refuse(lockpb.Reason_STOPPING, "the node is stopping")
	case x.last:
		idle = errSessionDone
	}
	return answers, idle
}

func (x *session) busy() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.here.first != nil
}

// abandonAll gives up the calls of a session that is over, as if each had been abandoned, and waits for what has to be
// done for them.
func (x *session) abandonAll() {
	x.mu.Lock()
	x.over = true // the reader may still be at a message
	left := make([]uint64, 0, len(x.calls))
	for id := range x.calls {
		left = append(left, id)
	}
	x.mu.Unlock()
	for _, id := range left {
		x.abandon(id)
	}
	patience := time.NewTimer(x.config.Budget)
	defer patience.Stop()
	for x.settleGone() {
		select {
		case <-x.wake:
		case <-patience.C:
			x.giveUp()
			return
		}
	}
	x.work.Wait()
}

// settleGone settles what groups have told a session that is over, and reports whether any call is not over yet.
func (x *session) settleGone() bool {
	told, _ := x.take()
	for _, c := range told {
		x.settle(c)
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.inside > 0
}

// giveUp forgets the calls that a group has told nothing of, for longer than any call may take.
func (x *session) giveUp() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for c := x.here.first; c != nil; c = x.here.first {
		x.here.remove(c)
		c.leave()
	}
}
