package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// lookAtLeast bounds how long the loop sleeps: its timers stand still in suspend, the leases' clock does not.
const lookAtLeast = time.Second

// renewAfter is when to renew after the last question that was answered: at a third of the TTL, up to a tenth
// of that earlier, so that clients that began together do not renew together.
func renewAfter(ttl time.Duration) time.Duration {
	third := ttl / 3
	return third - rand.N(third/10+1)
}

// ahead is how much earlier than that a lease is renewed together with one that is due.
func ahead(ttl time.Duration) time.Duration { return ttl / 15 }

// keep is the client's one loop: it gives warnings, ends what is overdue and starts renewals.
func (c *Client) keep() {
	timer := time.NewTimer(lookAtLeast)
	defer timer.Stop()
	for c.root.Err() == nil {
		now := c.clock.Now()
		l, wait := c.agenda.due(now, lookAtLeast)
		if l != nil {
			if l.attend(now) {
				c.renewTogether(l, now)
			}
			continue
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
		case <-c.agenda.changed:
		case <-c.root.Done():
		}
	}
}

// attend does what is due for l, puts it back on the agenda, and reports whether it is to be renewed.
func (l *Lease) attend(now time.Duration) (due bool) {
	l.mu.Lock()
	if l.over != 0 {
		l.c.agenda.remove(l)
		l.mu.Unlock()
		return false
	}
	if now >= l.deadline {
		l.mu.Unlock()
		l.expire()
		return false
	}
	if now >= l.warnAt() {
		l.warn()
	}
	due = l.renewing == nil && !l.longest && now >= l.renewAt
	if !due {
		l.plan()
	}
	l.mu.Unlock()
	return due
}

// plan puts a live lease on the agenda for the next thing that it needs. The caller holds mu.
func (l *Lease) plan() {
	next := l.deadline
	if !l.warned {
		next = min(next, l.warnAt())
	}
	if l.renewing == nil && !l.longest {
		next = min(next, l.renewAt)
	}
	l.c.agenda.set(l, next)
}

// attemptTimeout leaves room for several attempts in what remains after a third of the TTL. The caller holds mu.
func (l *Lease) attemptTimeout() time.Duration {
	return min(l.c.cfg.AttemptTimeout, max(l.ttl/6, 100*time.Millisecond))
}

// renewal is what the coordinator says of a renewed lease. What it leaves out is as it was.
type renewal struct {
	remaining time.Duration
	ttl       time.Duration
	ticket    string
	asOf      int64 // 0: not known
	index     uint64
}

func renewalOf(r *lockpb.RenewResponse) renewal {
	return renewal{millis(r.GetRemaining()), millis(r.GetTtl()), r.GetTicket(), r.GetAsOf(), r.GetIndex()}
}

// extend applies the answer to a question that left at sent. A deadline never moves back: each that was computed was a
// promise, and the coordinator's own only grows. The caller holds mu.
func (l *Lease) extend(r renewal, sent time.Duration) {
	if r.asOf > 0 {
		l.c.asOf.learn(l.id.Group(), r.asOf, l.c.clock.Now())
	}
	if r.ttl > 0 {
		l.ttl = r.ttl
	}
	if r.ticket != "" {
		l.ticket = r.ticket
	}
	l.asOf, l.index = max(l.asOf, r.asOf), max(l.index, r.index)
	l.failure, l.failures, l.longest = nil, 0, false
	span := min(l.ttl, r.remaining)
	l.renewAt = sent + renewAfter(span)
	if d := sent + r.remaining - margin(l.ttl); d > l.deadline {
		l.deadline, l.span = d, span
		if l.warned && l.c.clock.Now() < l.warnAt() {
			l.warned, l.warning = false, nil
		}
	}
}

// stop takes the refusal of a renewal that would have the lease stand longer than its policy allows. It stands until its
// deadline. The caller holds mu.
func (l *Lease) stop(refusal error) { l.failure, l.longest = refusal, true }

// gone reports whether a renewal was refused in a way that ends the lease for good.
func gone(err error) bool { return errors.Is(err, ErrLeaseEnded) || errors.Is(err, ErrNotOwner) }

func retryAfter(err error) time.Duration {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.RetryAfter
	}
	return 0
}

// RenewLease renews a lease that is kept by its id, and not by a Lease, and repeats while no coordinator can
// serve it (at most Config.Patience). ttl 0 keeps the lease's. For tools.
func (c *Client) RenewLease(ctx context.Context, id lease.ID, ttl time.Duration) (*lockpb.RenewResponse, error) {
	call, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer c.leave(call)
	ctx = call
	b := within(ctx, c.cfg.Patience, gaveUp)
	defer b.cancel()
	ctx = b
	resp, _, err := c.renew(ctx, &lockpb.RenewRequest{LeaseId: id.String(), Ttl: ttlField(ttl)})
	return resp, err
}

// renew repeats a renewal until it is answered, and tells when the answered attempt was sent.
func (c *Client) renew(ctx context.Context, req *lockpb.RenewRequest) (resp *lockpb.RenewResponse, sent time.Duration, err error) {
	err = repeat(ctx, func(ctx context.Context) error {
		attempt := within(ctx, c.cfg.AttemptTimeout, noAnswer)
		defer attempt.cancel()
		sent = c.clock.Now()
		var err error
		resp, err = c.locks.Renew(attempt, req)
		return err
	})
	return resp, sent, err
}
