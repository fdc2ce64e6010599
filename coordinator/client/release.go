package client

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// releasing is the state of a lease's release at the coordinator. Whoever has the turn may use done and unknown.
type releasing struct {
	done    bool // the coordinator has confirmed the end
	unknown bool // an earlier attempt may have taken effect

	mu    sync.Mutex
	taken bool          // the turn
	free  chan struct{} // closed when it is given back; nil while nobody waits for that
}

// take blocks until it is the caller's turn, or reports false because ctx has ended.
func (r *releasing) take(ctx context.Context) bool {
	for {
		free := r.tryTake()
		if free == nil {
			return true
		}
		select {
		case <-free:
		case <-ctx.Done():
			return false
		}
	}
}

// tryTake takes the turn, or tells when to try again.
func (r *releasing) tryTake() (free <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.taken {
		r.taken = true
		return nil
	}
	if r.free == nil {
		r.free = make(chan struct{})
	}
	return r.free
}

// give gives the turn back.
func (r *releasing) give() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken = false
	if r.free != nil {
		close(r.free)
		r.free = nil
	}
}

// Release ends the lease. From the call on it counts as released here, whatever happens: no renewal leaves
// any more, Done is closed, and the holder must have stopped its work before. Release then tells the
// coordinator, and repeats that until it has an answer, ctx ends, or Config.Patience has passed.
//
// An error means that the coordinator has not confirmed: without a further call the lease runs out by
// itself. Calling Release again goes on where the last call ended, and returns nil once the coordinator has
// confirmed. If the lease had been lost before, the error wraps ErrLost, and the coordinator is told all the
// same.
func (l *Lease) Release(ctx context.Context) error {
	call, err := l.c.enter(ctx)
	if err != nil {
		return err
	}
	defer l.c.leave(call)
	ctx = call
	now := l.check()
	l.finish(Released, ErrReleased)
	if !l.release.take(ctx) {
		return &Error{Op: "release", Resource: string(l.resource), Applied: lockpb.Applied_MAYBE, Err: context.Cause(ctx)}
	}
	defer l.release.give()
	err = l.tell(ctx, now)
	if lost := l.Err(); errors.Is(lost, ErrLost) {
		return lost // what the coordinator said of it changes nothing
	}
	return err
}

// tell releases at the coordinator unless that has been confirmed. The caller has the turn.
func (l *Lease) tell(ctx context.Context, now time.Duration) error {
	if l.release.done {
		return nil
	}
	_, err := l.c.release(ctx, l.id, now, &l.release.unknown)
	l.release.done = err == nil || errors.Is(err, ErrLeaseEnded)
	if !l.release.done {
		l.c.leftovers.add(string(l.resource), l.c.clock.Now(), l.TTL())
	}
	return err
}

// ReleaseLease releases a lease that is kept by its id, and not by a Lease, and repeats as Lease.Release
// does. A repeated release that finds the lease ended has succeeded; its answer is then empty. For tools.
func (c *Client) ReleaseLease(ctx context.Context, id lease.ID) (*lockpb.ReleaseResponse, error) {
	call, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer c.leave(call)
	ctx = call
	return c.release(ctx, id, c.clock.Now(), new(bool))
}

// release repeats a release until it is answered; it began at now. unknown says that an earlier attempt may have taken
// effect, and is kept up to date: then "no such lease" is what success looks like.
func (c *Client) release(ctx context.Context, id lease.ID, now time.Duration, unknown *bool) (resp *lockpb.ReleaseResponse, err error) {
	b := within(ctx, c.cfg.Patience, gaveUp)
	defer b.cancel()
	ctx = b
	err = repeat(ctx, func(ctx context.Context) error {
		attempt := within(ctx, c.cfg.AttemptTimeout, noAnswer)
		defer attempt.cancel()
		var err error
		resp, err = c.locks.Release(attempt, &lockpb.ReleaseRequest{LeaseId: id.String()})
		if e, ok := errors.AsType[*Error](err); ok {
			*unknown = *unknown || e.Applied == lockpb.Applied_MAYBE // also a node's own earlier attempt
			if *unknown && e.Reason == lockpb.Reason_LEASE_ENDED {
				resp = &lockpb.ReleaseResponse{}
				return nil
			}
		}
		return err
	})
	if err == nil && resp.GetAsOf() != 0 {
		c.asOf.learn(id.Group(), resp.GetAsOf(), now) // it is at least as new as that
	}
	return resp, err
}
