package client

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// abandoned are the requests that are being cancelled, by resource. A new request for the same resource waits
// for them, because the coordinator would refuse it: this client may still hold or await the lock.
type abandoned struct {
	mu      sync.Mutex
	pending map[string][]chan struct{}
}

func (a *abandoned) add(resource string) (done func()) {
	ch := make(chan struct{})
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.pending == nil {
		a.pending = make(map[string][]chan struct{})
	}
	a.pending[resource] = append(a.pending[resource], ch)
	return func() {
		close(ch)
		a.mu.Lock()
		defer a.mu.Unlock()
		rest := slices.DeleteFunc(a.pending[resource], func(c chan struct{}) bool { return c == ch })
		if a.pending[resource] = rest; len(rest) == 0 {
			delete(a.pending, resource)
		}
	}
}

// none blocks until no request for the resource is being cancelled, or ctx ends. It reports whether it had to.
func (a *abandoned) none(ctx context.Context, resource string) (waited bool, _ error) {
	a.mu.Lock()
	pending := slices.Clone(a.pending[resource])
	a.mu.Unlock()
	for _, ch := range pending {
		select {
		case <-ch:
		case <-ctx.Done():
			return true, context.Cause(ctx)
		}
	}
	return len(pending) > 0, nil
}

// leftovers are the resources of which the coordinator may still count a lease or a request as this client's, although
// nobody here has it any more: a lease that was lost, or a release or cancel that was not confirmed. They run out by
// themselves; until then the coordinator refuses the client's next acquire, and that is no fault of its caller.
type leftovers struct {
	mu    sync.Mutex
	until map[string]time.Duration // on the client's clock; an estimate
	full  int                      // entries at which those that are over are dropped
}

// add notes a leftover with this TTL. Outages make it last longer than that, since they stop the coordinator's clock.
func (l *leftovers) add(resource string, now, ttl time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.until == nil {
		l.until = make(map[string]time.Duration)
	}
	if len(l.until) >= l.full {
		for r, until := range l.until {
			if until <= now {
				delete(l.until, r)
			}
		}
		l.full = 2*len(l.until) + 64
	}
	l.until[resource] = max(l.until[resource], now+2*ttl)
}

func (l *leftovers) has(resource string, now time.Duration) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now < l.until[resource]
}

// assumedTTL stands in for the cluster's default, which a client does not know.
const assumedTTL = time.Minute

// abandon cancels a request in the background. The caller is within a call of the client, so Close waits.
func (c *Client) abandon(q *question) {
	done := c.abandoned.add(q.msg.GetResource())
	c.work.Go(func() {
		defer done()
		c.cancel(q)
	})
}

// cancel ends an abandoned request at the coordinator, whatever has become of it, and gives up after
// Config.CancelTimeout: then a waiter leaves the queue because its caller is gone, and a lease runs out.
func (c *Client) cancel(q *question) {
	defer c.numbers.end(q.number)
	patient := within(context.Background(), c.cfg.CancelTimeout, gaveUp)
	defer patient.cancel()
	req := &lockpb.CancelRequest{ClientId: c.id, RequestId: q.msg.GetRequestId(), AsOf: q.msg.GetAsOf(), Resource: q.msg.GetResource()}
	err := repeat(patient, func(ctx context.Context) error {
		attempt := within(ctx, c.cfg.AttemptTimeout, noAnswer)
		defer attempt.cancel()
		_, err := c.locks.Cancel(attempt, req)
		return err
	})
	if err != nil {
		c.leftovers.add(q.msg.GetResource(), c.clock.Now(), or(millis(q.msg.GetTtl()), assumedTTL))
		c.log.Warn("abandoned acquire not cancelled", "resource", q.msg.GetResource(), "err", err)
	}
}
