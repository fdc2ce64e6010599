package client

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Option changes one acquire.
type Option func(*options)

type options struct {
	ttl      time.Duration // 0: the cluster's default
	ttlGiven bool
	wait     time.Duration
	endless  bool // wait as long as the context lasts
	owner    string
	request  string
	mode     lockpb.Mode
	noTicket bool
	progress func(Progress)
	before   []func(context.Context, *Lease) error
}

// TTL asks for a lease of this duration instead of Config.TTL.
func TTL(d time.Duration) Option { return func(o *options) { o.ttl, o.ttlGiven = d, true } }

// Wait bounds the wait in the queue; past it the error is ErrWaitTimeout. 0 means not to wait.
// Without it Acquire waits as long as its context lasts.
func Wait(d time.Duration) Option { return func(o *options) { o.wait, o.endless = d, false } }

// Owner names the thread of this client for which the lease is taken.
func Owner(name string) Option { return func(o *options) { o.owner = name } }

// Shared takes the lock together with others who take it so; it waits behind an exclusive one that came before. Stores
// take the ticket of a shared lease for reading only.
func Shared() Option { return func(o *options) { o.mode = lockpb.Mode_SHARED } }

// RequestID names the request instead of a random id, so that an acquire repeated by another process with
// the same ClientID finds the first one's effect. For that, an acquire that fails is not cancelled then: what
// it may have been granted waits for the repetition, or runs out.
func RequestID(id string) Option { return func(o *options) { o.request = id } }

// Before has Acquire, TryAcquire and Do call fn with the new lease before they hand it out or start the work:
// typically to show its ticket to a store, so that every earlier holder is fenced before the first step of the
// work, whatever that is (pgxlease.BindFirst does so for PostgreSQL). The context that fn gets ends with the
// caller's and with the lease. If fn returns an error, or the lease is lost meanwhile, the lease is released
// and the call fails with that error, or one that wraps ErrLost. Given more than once, all are called in order.
func Before(fn func(context.Context, *Lease) error) Option {
	return func(o *options) { o.before = append(o.before, fn) }
}

// maxRound is how long one request waits in the queue; an endless Acquire then asks again, at the end of the
// queue. It halves where the coordinator allows less.
const maxRound = 5 * time.Minute

// Acquire takes the lock, waiting in the queue until it is granted, ctx ends, or the time of Wait is up. It
// survives leader changes and lost answers: it repeats the same request, which takes effect at most once. If
// it returns an error, nothing stays behind: what may have been granted is cancelled at the coordinator in
// the background.
//
// The caller must Release the lease, or Close the client and let it run out.
func (c *Client) Acquire(ctx context.Context, resource string, opts ...Option) (*Lease, error) {
	return c.acquire(ctx, resource, options{ttl: c.cfg.TTL, endless: true, mode: lockpb.Mode_EXCLUSIVE}, opts)
}

// TryAcquire takes the lock if it is free; if not, the error is ErrHeld and tells who has it. It is repeated
// while no coordinator can serve it, until ctx ends or Config.Patience has passed.
func (c *Client) TryAcquire(ctx context.Context, resource string, opts ...Option) (*Lease, error) {
	return c.acquire(ctx, resource, options{ttl: c.cfg.TTL, mode: lockpb.Mode_EXCLUSIVE}, opts)
}

func (c *Client) acquire(ctx context.Context, resource string, o options, opts []Option) (*Lease, error) {
	for _, opt := range opts {
		opt(&o)
	}
	if err := o.check(resource); err != nil {
		return nil, err
	}
	l, err := c.take(ctx, resource, o)
	if err != nil {
		return nil, err
	}
	if err := l.prepare(ctx, o.before); err != nil {
		return nil, err
	}
	return l, nil
}

// take gets the lease, within the time that the options allow.
func (c *Client) take(ctx context.Context, resource string, o options) (*Lease, error) {
	call, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer c.leave(call)
	ctx = call
	if !o.endless {
		patient := within(ctx, o.wait+c.cfg.Patience, gaveUp)
		defer patient.cancel()
		ctx = patient
	}
	return c.rounds(ctx, resource, o)
}

// check refuses what can never be sent; the coordinator knows the bounds.
func (o options) check(resource string) error {
	invalid := func(field, message string) error {
		return &Error{
			Op: "acquire", Resource: resource, Reason: lockpb.Reason_INVALID, Applied: lockpb.Applied_NO,
			Field: field, Code: codes.InvalidArgument, Message: message,
		}
	}
	if _, err := lease.ParseResource(resource); err != nil {
		return invalid("resource", err.Error())
	}
	if o.request != "" {
		if _, err := lease.ParseRequestID(o.request); err != nil {
			return invalid("request_id", err.Error())
		}
	}
	if o.ttlGiven && o.ttl < time.Millisecond {
		return invalid("ttl", fmt.Sprintf("ttl %v is below a millisecond", o.ttl))
	}
	for _, given := range [...]struct {
		field string
		d     time.Duration
	}{{"ttl", o.ttl}, {"wait_timeout", o.wait}} {
		if given.d < 0 || given.d > math.MaxInt32*time.Millisecond {
			return invalid(given.field, fmt.Sprintf("%s %v is out of range", given.field, given.d))
		}
	}
	return nil
}

// isMisdated reports whether a request was refused for its lease time: that came from a node that lags, or the cluster was
// restored since.
func isMisdated(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && (e.Reason == lockpb.Reason_REQUEST_TOO_OLD || e.Reason == lockpb.Reason_INVALID && e.Field == "as_of")
}

// rounds makes requests until one ends in a lease or in an error that another request would not cure.
func (c *Client) rounds(ctx context.Context, resource string, o options) (*Lease, error) {
	now := c.clock.Now()
	until := now + o.wait
	round, tooOld := maxRound, 0
	for nth := 1; ; nth++ {
		end := max(now, until)
		if o.endless {
			end = now + round
		}
		l, err := c.ask(ctx, resource, o, now, end)
		misdated := isMisdated(err)
		if misdated {
			c.asOf.forget()
		}
		switch {
		case err == nil:
			return l, nil
		case o.request != "": // the caller's own request has one life
			return nil, err
		case errors.Is(err, errLapsed), errors.Is(err, ErrRequestEnded): // granted and ended again
		case misdated && tooOld < 3:
			tooOld++
		case end > now && errors.Is(err, ErrAlreadyHeld) && c.leftovers.has(resource, c.clock.Now()):
		case o.endless && errors.Is(err, ErrWaitTimeout):
		case o.endless && errors.Is(err, ErrWaitTooLong) && round > time.Second:
			round /= 2
		default:
			return nil, err
		}
		if !sleep(ctx, pause(nth, 0)) {
			return nil, fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		now = c.clock.Now()
	}
}

// errLapsed says that a grant ran out before it could be confirmed.
var errLapsed = errors.New("grant ran out before it was confirmed")

// question is one request, with its id, from its first attempt to its end.
type question struct {
	msg    *lockpb.AcquireRequest // nil until the first attempt
	asked  time.Duration          // when it was made
	maybe  bool                   // an attempt may have taken effect
	number uint64
	waits  bool // in the queue
}

// ask makes one request, which waits from now to until; it does not wait if they are the same. If it fails after the
// request may have taken effect, the request is cancelled, unless it has a name under which the caller can repeat it.
func (c *Client) ask(ctx context.Context, resource string, o options, now, until time.Duration) (*Lease, error) {
	q := &question{asked: now, waits: until > now}
	l, err := c.answer(ctx, q, resource, o, until)
	if err == nil {
		err = c.hold(l)
	}
	if err == nil {
		c.numbers.end(q.number)
		return l, nil
	}
	if q.maybe && o.request == "" {
		c.abandon(q)
	} else {
		c.numbers.end(q.number)
	}
	return nil, err
}

// answer repeats the request until it is answered, and confirms a grant that came late.
func (c *Client) answer(ctx context.Context, q *question, resource string, o options, until time.Duration) (*Lease, error) {
	var resp *lockpb.AcquireResponse
	var sent time.Duration
	err := repeat(ctx, func(ctx context.Context) error {
		prompt, err := c.pose(ctx, q, resource, o)
		if err != nil {
			return err
		}
		if sent = q.asked; !prompt {
			sent = c.clock.Now()
		}
		left := max(0, until-sent)
		if q.waits {
			q.msg.WaitTimeout = int32(max(1, left.Milliseconds())) // 0 would mean not to wait
		}
		attempt := within(ctx, left+c.cfg.AttemptTimeout, noAnswer)
		defer attempt.cancel()
		resp, err = c.acquireOnce(attempt, q.msg, o)
		if e, ok := errors.AsType[*Error](err); !ok || e.Applied != lockpb.Applied_NO {
			q.maybe = true
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	l, err := newLease(ctx, c, resp, sent)
	if err != nil {
		return nil, fmt.Errorf("acquire %s: %w", resource, err)
	}
	now := c.clock.Now()
	c.asOf.learn(l.id.Group(), resp.GetAsOf(), now)
	// A grant out of the queue or to an earlier attempt may have less left than a TTL, because the coordinator takes back
	// what nobody confirms or because it began before; or the answer was waited for. What a free lock has less than a TTL
	// at once, its policy has taken off.
	late := q.waits || resp.GetRetried()
	if late && resp.GetRemaining() < resp.GetTtl() || now-sent >= l.span/20 {
		err = c.confirm(ctx, l)
	}
	return l, err
}

// pose makes the message of a question, before its first attempt. Every attempt sends the same but for the
// time left to wait, so that the coordinator can tell a copy from another request. prompt says that nothing had to be waited
// for since the question was asked.
func (c *Client) pose(ctx context.Context, q *question, resource string, o options) (prompt bool, _ error) {
	if q.msg != nil {
		return false, nil
	}
	waited, err := c.abandoned.none(ctx, resource)
	if err != nil {
		return false, &Error{Op: "acquire", Resource: resource, Applied: lockpb.Applied_NO, Code: codes.Canceled, Err: err}
	}
	asOf, known := c.knownTime(resource, q.asked)
	if !known || waited {
		asOf, err = c.leaseTime(ctx, resource)
	}
	if err != nil {
		if e, ok := errors.AsType[*Error](err); ok {
			e.Op, e.Resource, e.Applied = "acquire", resource, lockpb.Applied_NO // it was not sent
		}
		return false, err
	}
	id := o.request
	if id == "" {
		id = rand.Text()
	}
	var acknowledged uint64
	q.number, acknowledged = c.numbers.begin()
	q.msg = &lockpb.AcquireRequest{
		Resource: resource, ClientId: c.id, RequestId: id, Owner: o.owner, Mode: o.mode, NoTicket: o.noTicket,
		Ttl: ttlField(o.ttl), AsOf: asOf, Sequence: q.number, Acknowledged: acknowledged,
	}
	return known && !waited, nil
}

// confirm renews a late grant before it is reported as held, so that its holder starts with a whole TTL
// counted from a question just sent, or with what its policy leaves of it.
func (c *Client) confirm(ctx context.Context, l *Lease) error {
	resp, sent, err := c.renew(ctx, &lockpb.RenewRequest{LeaseId: l.id.String()})
	switch {
	case gone(err):
		return fmt.Errorf("acquire %s: %w", l.resource, errLapsed)
	case err != nil && !errors.Is(err, ErrHoldTooLong):
		return err
	}
	l.mu.Lock()
	if err == nil {
		l.extend(renewalOf(resp), sent)
	} else {
		l.stop(err) // it was confirmed before, and stands as it is
	}
	l.mu.Unlock()
	if c.clock.Now() >= l.deadline {
		return fmt.Errorf("acquire %s: %w", l.resource, errLapsed)
	}
	return nil
}

// hold puts a lease under the care of the client.
func (c *Client) hold(l *Lease) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return ErrClosed
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.plan()
	return nil
}

// ttlField is a TTL as the API has it; 0 is left out.
func ttlField(d time.Duration) *int32 {
	if d == 0 {
		return nil
	}
	return new(int32(d.Milliseconds()))
}
