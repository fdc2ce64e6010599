package api

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/hot"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// Bounds of what is kept of one group.
const (
	hotResources  = 1024    // counted at once: see package hot for what that means
	waitsMeasured = 1 << 17 // waits whose beginning is remembered; those above are not measured
)

// tally makes figures of the entries of one group: how long leases are held and waits last, and what is hot.
type tally struct {
	metrics *Metrics
	seed    maphash.Seed

	mu    sync.Mutex // the hot resources are read by calls
	hot   *hot.Sketch
	waits map[uint64]lock.LeaseTime // when the wait of a request began, by a hash of its names; of the applying goroutine
}

func newTally(metrics *Metrics) *tally {
	return &tally{
		metrics: metrics, seed: maphash.MakeSeed(), hot: hot.New(hotResources), waits: map[uint64]lock.LeaseTime{},
	}
}

func (t *tally) restored() {
	t.mu.Lock()
	defer t.mu.Unlock()
	clear(t.waits)
}

func (t *tally) applied(a group.Applied) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.hot.At(a.Now)
	for i, cmd := range a.Commands {
		if acquire, ok := cmd.(lock.Acquire); ok {
			t.hot.Asked(acquire.Resource)
			if _, refused := a.Results[i].(lock.Refused); refused {
				t.hot.Refused(acquire.Resource)
			}
		}
	}
	for _, event := range a.Events {
		t.event(a.Now, event)
	}
}

func (t *tally) event(now lock.LeaseTime, event lock.Event) {
	switch e := event.(type) {
	case lock.WaitStarted:
		if len(t.waits) < waitsMeasured {
			t.waits[t.key(e.Identity, e.Client, e.Request)] = now
		}
	case lock.WaitEnded:
		t.hot.Refused(e.Resource)
		if waited, ok := t.waited(now, e.Identity, e.Client, e.Request); ok {
			t.metrics.waited(e.Cause.String(), waited)
		}
	case lock.LeaseGranted:
		if waited, ok := t.waited(now, e.Identity, e.Client, e.Request); ok {
			t.hot.Waited(e.Resource, waited)
			t.metrics.waited(outcomeGranted, waited)
		}
	case lock.LeaseEnded:
		t.hot.Held(e.Resource, now.Sub(e.Since))
		t.metrics.held(e.Cause, now.Sub(e.Since))
	default: // nothing that lasts
	}
}

// waited is how long a request waited, if it did and its beginning is remembered.
func (t *tally) waited(now lock.LeaseTime, identity lease.Identity, client lease.ClientID, request lease.RequestID) (time.Duration, bool) {
	if len(t.waits) == 0 {
		return 0, false
	}
	key := t.key(identity, client, request)
	began, ok := t.waits[key]
	delete(t.waits, key)
	return now.Sub(began), ok
}

func (t *tally) key(identity lease.Identity, client lease.ClientID, request lease.RequestID) uint64 {
	return maphash.Comparable(t.seed, [3]string{string(identity), string(client), string(request)})
}

// top lists the hottest resources of those that may be shown.
func (t *tally) top(most int, show func(lease.Resource) bool) []hot.Resource {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hot.Top(most, show)
}
