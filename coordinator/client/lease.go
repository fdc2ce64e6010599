package client

import (
	"context"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// State is what a client knows of its lease.
type State uint8

// The states. Held and Uncertain are the same to a worker: nobody else can have the resource yet.
const (
	Held      State = iota + 1 // renewals are answered
	Uncertain                  // a renewal has failed, is overdue or was refused; the deadline has not passed
	Lost                       // the deadline passed, or the coordinator said that the lease has ended
	Released                   // Release was called
)

func (s State) String() string {
	switch s {
	case Held:
		return "held"
	case Uncertain:
		return "uncertain"
	case Lost:
		return "lost"
	case Released:
		return "released"
	}
	return fmt.Sprintf("state(%d)", s)
}

// Lease is one lock that this client took, and the only source of its ticket. The client renews it until
// Release, loss or Close. Every method looks at the clock when it is called, so that a process that was
// stopped and goes on learns at once that its time is over. It is safe for concurrent use.
type Lease struct {
	c        *Client
	id       lease.ID
	resource lease.Resource
	token    lease.Token
	mode     lockpb.Mode
	values   context.Context // what Acquire was given

	// For the agenda, under its lock.
	slot int
	at   time.Duration

	mu       sync.Mutex
	over     State // 0 while held
	err      error // why it is over
	ticket   string
	ttl      time.Duration
	deadline time.Duration   // on the client's clock; never moves back
	span     time.Duration   // that it lies after the question that brought it; below ttl where a policy ends the hold
	ctx      context.Context // ends with the lease; nil until somebody asks for it
	end      context.CancelCauseFunc
	warning  chan struct{} // closed when the warning of this deadline has been given; nil until somebody asks for it
	warned   bool
	renewAt  time.Duration
	renewing *heartbeat // in flight with this lease; nil if none
	failure  error      // of the last renewal; nil after a success
	failures int        // in a row
	longest  bool       // failure says that the policy lets the lease stand no longer: it is not renewed any more
	asOf     int64      // of the last answer
	index    uint64

	release releasing
}

// margin is what a deadline is moved forward by, so that a client whose clock is slow by up to 0.1 % stops
// before the coordinator does.
func margin(ttl time.Duration) time.Duration { return ttl/1000 + 10*time.Millisecond }

// newLease makes the lease of an answer to a question that left at sent.
func newLease(ctx context.Context, c *Client, resp *lockpb.AcquireResponse, sent time.Duration) (*Lease, error) {
	id, err := lease.ParseID(resp.GetLeaseId())
	if err != nil {
		return nil, err
	}
	l := &Lease{
		c: c, id: id, resource: lease.Resource(resp.GetResource()),
		token: lease.Token(resp.GetFencingToken()), mode: resp.GetMode(),
		ticket: resp.GetTicket(), ttl: millis(resp.GetTtl()), asOf: resp.GetAsOf(), index: resp.GetIndex(),
		values: ctx,
	}
	if l.token == 0 || l.ttl <= 0 {
		return nil, fmt.Errorf("answer has token %d and TTL %v", l.token, l.ttl)
	}
	l.span = min(l.ttl, millis(resp.GetRemaining()))
	l.deadline = sent + millis(resp.GetRemaining()) - margin(l.ttl)
	l.renewAt = sent + renewAfter(l.span)
	return l, nil
}

func millis[T ~int32 | ~int64](n T) time.Duration { return time.Duration(n) * time.Millisecond }

// Resource is the name that is locked.
func (l *Lease) Resource() lease.Resource { return l.resource }

// ID is the lease's id, a secret: whoever has it, and the same identity, can renew and release the lease.
func (l *Lease) ID() lease.ID { return l.id }

// Token is the fencing token, and 0, which no store accepts, once the lease is over.
func (l *Lease) Token() lease.Token {
	if l.State() >= Lost {
		return 0
	}
	return l.token
}

// Ticket is the signed form of the grant, for the proxy. It is a secret. It stays the same until its key is retired; a
// renewal then brings another. Once the lease is over it is "", and with the option NoTicket until FetchTicket.
func (l *Lease) Ticket() string {
	l.check()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != 0 {
		return ""
	}
	return l.ticket
}

// TTL is the duration that each renewal asks for.
func (l *Lease) TTL() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.ttl
}

// Deadline is the instant at which the lease is lost unless it is renewed before. It lies before the one at
// which the coordinator could grant the resource to somebody else. It moves with each renewal; use
// Remaining where the machine may be suspended.
func (l *Lease) Deadline() time.Time { return time.Now().Add(l.Remaining()) }

// Remaining is the time to the deadline; 0 once the lease is over.
func (l *Lease) Remaining() time.Duration {
	now := l.check()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.over != 0 {
		return 0
	}
	return max(0, l.deadline-now)
}

// State is what is known now.
func (l *Lease) State() State {
	now := l.check()
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.over != 0:
		return l.over
	case l.failure != nil || now >= l.warnAt():
		return Uncertain
	}
	return Held
}

// Err is nil while the lease is held or uncertain. After a loss it wraps ErrLost and the cause: ErrExpired,
// ErrHoldTooLong, ErrLeaseEnded, ErrNotOwner or ErrClosed. After Release it is ErrReleased.
func (l *Lease) Err() error {
	l.mu.Lock()
	over, err := l.over, l.err
	l.mu.Unlock()
	if over != 0 {
		return err
	}
	l.check()
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// Unrenewed is why the last renewal brought nothing; nil if it did, and before the first. It wraps ErrHoldTooLong once
// the lease has been held as long as its policy allows: it stands until its deadline then and is not renewed any more.
func (l *Lease) Unrenewed() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failure
}

// Done is closed when the lease is over: before the coordinator could grant the resource to somebody else,
// or as soon as it has said that the lease has ended.
func (l *Lease) Done() <-chan struct{} { return l.Context().Done() }

// Context has the values of the context that Acquire was given and ends with the lease; its cause is Err.
// It does not end with Acquire's context: see Do for one that does.
func (l *Lease) Context() context.Context {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.ctx == nil {
		l.ctx, l.end = context.WithCancelCause(context.WithoutCancel(l.values))
		if l.over != 0 {
			l.end(l.err) // nobody has derived from it yet
		}
	}
	return l.ctx
}

// Warning is closed when the deadline comes near (Config.WarnBefore) because renewals go unanswered or the policy allows
// none, and when the lease is over. A worker that needs time to stop begins then. If a renewal succeeds after all,
// the next call returns a new channel.
func (l *Lease) Warning() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.warning == nil {
		l.warning = make(chan struct{})
		if l.warned {
			close(l.warning)
		}
	}
	return l.warning
}

// warn gives the warning, once. The caller holds mu.
func (l *Lease) warn() {
	if l.warned {
		return
	}
	l.warned = true
	if l.warning != nil {
		close(l.warning)
	}
}

// Describe tells about the lease in the terms of the API, for tools.
func (l *Lease) Describe() *lockpb.AcquireResponse {
	remaining := l.Remaining()
	l.mu.Lock()
	defer l.mu.Unlock()
	return &lockpb.AcquireResponse{
		LeaseId: l.id.String(), FencingToken: uint64(l.token), Resource: string(l.resource), Mode: l.mode,
		Ttl: int32(l.ttl.Milliseconds()), Remaining: int32(remaining.Milliseconds()), Ticket: l.ticket,
		ExpiresAt: timestamppb.New(time.Now().Add(remaining)), AsOf: l.asOf, Index: l.index,
	}
}

// warnAt is the instant of the warning. The caller holds mu.
func (l *Lease) warnAt() time.Duration {
	before := l.span / 5
	if w := l.c.cfg.WarnBefore; w > 0 {
		before = min(w, l.span/2)
	}
	return l.deadline - before
}

// check reads the clock and ends the lease if its deadline has passed.
func (l *Lease) check() time.Duration {
	now := l.c.clock.Now()
	l.mu.Lock()
	expired := l.over == 0 && now >= l.deadline
	l.mu.Unlock()
	if expired {
		l.expire()
	}
	return now
}

// expire ends a lease whose deadline has passed.
func (l *Lease) expire() {
	l.mu.Lock()
	cause := ErrExpired
	if l.longest {
		cause = fmt.Errorf("held as long as its policy allows: %w", l.failure)
	}
	l.mu.Unlock()
	l.lose(cause)
}

// lose ends the lease for a cause other than Release. Its holder is told, by Err and all that ends with the
// lease; what is worth a log line is for the holder to say.
func (l *Lease) lose(cause error) {
	if !gone(cause) {
		l.c.leftovers.add(string(l.resource), l.c.clock.Now(), l.TTL())
	}
	l.finish(Lost, fmt.Errorf("%w: %s: %w", ErrLost, l.resource, cause))
}

// finish ends the lease and stops its renewal. Only the first end counts.
func (l *Lease) finish(state State, err error) {
	l.mu.Lock()
	if l.over != 0 {
		l.mu.Unlock()
		return
	}
	l.over, l.err = state, err
	if l.renewing != nil {
		l.renewing.leave()
	}
	l.warn()
	l.c.agenda.remove(l)
	end := l.end
	l.mu.Unlock()
	if end != nil {
		end(err) // outside the lock: it may run the code of whoever derived a context
	}
}
