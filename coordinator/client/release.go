package client

import (
	"context"
	"errors"
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// releasing is the state of a lease's release at the coordinator.
type releasing struct {
	turn    chan struct{} // holds one: whoever put it in may use the rest
	done    bool          // the coordinator has confirmed the end
	unknown bool          // an earlier attempt may have taken effect
}

// take blocks until it is the caller's turn, or reports false because ctx has ended.
func (r *releasing) take(ctx context.Context) bool {
	select {
	case r.turn <- struct{}{}:
		return true
	default: // another release is under way
	}
	select {
	case r.turn <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
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
	ctx, leave, err := l.c.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	now := l.check()
	l.finish(Released, ErrReleased)
	if !l.release.take(ctx) {
		return &Error{Op: "release", Resource: string(l.resource), Applied: lockpb.Applied_MAYBE, Err: context.Cause(ctx)}
	}
	defer func() { <-l.release.turn }()
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
	ctx, leave, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	return c.release(ctx, id, c.clock.Now(), new(bool))
}

// release repeats a release until it is answered; it began at now. unknown says that an earlier attempt may have taken
// effect, and is kept up to date: then "no such lease" is what success looks like.
func (c *Client) release(ctx context.Context, id lease.ID, now time.Duration, unknown *bool) (resp *lockpb.ReleaseResponse, err error) {
	ctx, cancel := within(ctx, c.cfg.Patience, gaveUp)
	defer cancel()
	err = repeat(ctx, func(ctx context.Context) error {
		attempt, cancel := within(ctx, c.cfg.AttemptTimeout, noAnswer)
		defer cancel()
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
