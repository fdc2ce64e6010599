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
// of that earlier, so that leases taken together are not renewed together.
func renewAfter(ttl time.Duration) time.Duration {
	third := ttl / 3
	return third - rand.N(third/10+1)
}

// keep is the client's one loop: it gives warnings, ends what is overdue and starts renewals.
func (c *Client) keep() {
	timer := time.NewTimer(lookAtLeast)
	defer timer.Stop()
	for c.root.Err() == nil {
		now := c.clock.Now()
		l, wait := c.agenda.due(now, lookAtLeast)
		if l != nil {
			l.attend(now)
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

// attend does what is due for l and puts it back on the agenda.
func (l *Lease) attend(now time.Duration) {
	l.mu.Lock()
	if l.over != 0 {
		l.c.agenda.remove(l)
		l.mu.Unlock()
		return
	}
	if now >= l.deadline {
		l.mu.Unlock()
		l.lose(ErrExpired)
		return
	}
	if !l.warned && now >= l.warnAt() {
		l.warned = true
		close(l.warning)
	}
	if l.renewing == nil && now >= l.renewAt {
		l.startRenewal()
	}
	l.plan()
	l.mu.Unlock()
}

// plan puts a live lease on the agenda for the next thing that it needs. The caller holds mu.
func (l *Lease) plan() {
	next := l.deadline
	if !l.warned {
		next = min(next, l.warnAt())
	}
	if l.renewing == nil {
		next = min(next, l.renewAt)
	}
	l.c.agenda.set(l, next)
}

// renewal is one that is in flight.
type renewal struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// startRenewal sends one renewal in a goroutine of the client's. There is at most one for a lease, so their
// number is bounded by that of the leases, and each by attemptTimeout. The caller holds mu and is the loop,
// so the client's work cannot have been waited for yet.
func (l *Lease) startRenewal() {
	timeout := min(l.attemptTimeout(), l.deadline-l.c.clock.Now())
	ctx, cancel := within(l.c.root, timeout, noAnswer)
	r := &renewal{cancel: cancel, done: make(chan struct{})}
	l.renewing = r
	l.c.work.Go(func() {
		defer close(r.done)
		defer cancel()
		sent := l.c.clock.Now()
		resp, err := l.c.locks.Renew(ctx, &lockpb.RenewRequest{LeaseId: l.id.String()})
		l.renewed(resp, sent, err)
	})
}

// attemptTimeout leaves room for several attempts in what remains after a third of the TTL. The caller holds mu.
func (l *Lease) attemptTimeout() time.Duration {
	return min(l.c.cfg.AttemptTimeout, max(l.ttl/6, 100*time.Millisecond))
}

// renewed takes the answer to a renewal that left at sent.
func (l *Lease) renewed(resp *lockpb.RenewResponse, sent time.Duration, err error) {
	var ended error
	l.mu.Lock()
	l.renewing = nil
	switch {
	case l.over != 0:
	case err == nil:
		l.extend(resp, sent)
		l.plan()
	case gone(err):
		ended = err
	default:
		l.failure = err
		l.failures++
		l.renewAt = l.c.clock.Now() + min(pause(l.failures, retryAfter(err)), l.ttl/10)
		l.plan()
	}
	l.mu.Unlock()
	switch {
	case ended != nil:
		l.lose(ended)
	case err != nil:
		l.c.log.Debug("renewal failed", "resource", l.resource, "token", uint64(l.token), "err", err)
	}
}

// extend applies an answer. A deadline never moves back: each that was computed was a promise, and the
// coordinator's own only grows. The caller holds mu.
func (l *Lease) extend(resp *lockpb.RenewResponse, sent time.Duration) {
	l.c.asOf.learn(resp.GetAsOf(), l.c.clock.Now())
	if ttl := millis(resp.GetTtl()); ttl > 0 {
		l.ttl = ttl
	}
	if t := resp.GetTicket(); t != "" {
		l.ticket = t
	}
	l.asOf, l.index = resp.GetAsOf(), resp.GetIndex()
	l.failure, l.failures = nil, 0
	l.renewAt = sent + renewAfter(l.ttl)
	if d := sent + millis(resp.GetRemaining()) - margin(l.ttl); d > l.deadline {
		l.deadline = d
		if l.warned && l.c.clock.Now() < l.warnAt() {
			l.warned, l.warning = false, make(chan struct{})
		}
	}
}

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
	ctx, leave, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := within(ctx, c.cfg.Patience, gaveUp)
	defer cancel()
	resp, _, err := c.renew(ctx, &lockpb.RenewRequest{LeaseId: id.String(), Ttl: ttlField(ttl)})
	return resp, err
}

// renew repeats a renewal until it is answered, and tells when the answered attempt was sent.
func (c *Client) renew(ctx context.Context, req *lockpb.RenewRequest) (resp *lockpb.RenewResponse, sent time.Duration, err error) {
	err = repeat(ctx, func(ctx context.Context) error {
		attempt, cancel := within(ctx, c.cfg.AttemptTimeout, noAnswer)
		defer cancel()
		sent = c.clock.Now()
		var err error
		resp, err = c.locks.Renew(attempt, req)
		return err
	})
	return resp, sent, err
}
