package clienttest

import (
	"slices"
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func (t *table) freeze(frozen bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.frozen = frozen
}

func (t *table) expire(resource string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.held[resource]
	if h != nil {
		t.end(h, lockpb.Reason_REQUEST_ENDED)
	}
	return h != nil
}

func (t *table) holder(resource string) (string, lease.Token, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	h := t.held[resource]
	if h == nil {
		return "", 0, false
	}
	return h.request.key.client, h.token, true
}

func (t *table) deadline(resource string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.held[resource]; h != nil {
		return h.deadline
	}
	return time.Time{}
}

func (t *table) waiting(resource string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.queues[resource])
}

// progress is how a request that comes now will stand in the queue; nil if it will not.
func (t *table) progress(m *lockpb.AcquireRequest) *lockpb.Progress {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, ahead := t.held[m.GetResource()], len(t.queues[m.GetResource()])
	if h == nil && ahead == 0 || m.GetWaitTimeout() == 0 {
		return nil
	}
	p := &lockpb.Progress{Position: int32(ahead + 1), Remaining: m.GetWaitTimeout(), AsOf: t.asOf(), Index: t.index}
	if h != nil {
		p.Holder = h.public()
	}
	return p
}

func (t *table) history() []Grant {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.grants)
}

// close stops every timer.
func (t *table) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, h := range t.leases {
		h.timer.Stop()
	}
	for _, r := range t.requests {
		for _, timer := range []*time.Timer{r.timer, r.grace} {
			if timer != nil {
				timer.Stop()
			}
		}
	}
}
