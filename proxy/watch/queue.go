package watch

import (
	"container/heap"
	"context"
	"sync"
	"time"

	"github.com/lychgate/lychgate/fencestore"
)

// job is a resource whose floor is to go up.
type job struct {
	resource string
	token    fencestore.Token // the newest that is known
	look     bool             // also where there is no older binding, if the store has a record
	failures int

	due    time.Time // not before
	number uint64    // of those that are due at the same time the first one comes first
}

// queue holds jobs, one for each resource, with its newest token only: however many grants come while the store is
// down, what is left to do is bounded by the resources that have bindings. A job that runs, and may hang, keeps no
// other one from being taken.
type queue struct {
	limit int
	told  func(n int) // of its length

	mu      sync.Mutex
	jobs    map[string]*job // those that run included
	heap    jobHeap
	number  uint64
	changed chan struct{} // closed at each change
}

func newQueue(limit int, told func(int)) *queue {
	return &queue{limit: limit, told: told, jobs: map[string]*job{}, changed: make(chan struct{})}
}

// push adds a job or makes the one that is there newer. It reports false when the queue is full.
func (q *queue) push(resource string, token fencestore.Token, look bool) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	j := q.jobs[resource]
	switch {
	case j == nil && len(q.jobs) >= q.limit:
		return false
	case j == nil:
		j = &job{resource: resource}
		q.jobs[resource] = j
		q.enter(j, 0)
	}
	j.token, j.look = max(j.token, token), j.look || look
	q.change()
	return true
}

// offer is push that waits for room. It fails when ctx ends first.
func (q *queue) offer(ctx context.Context, resource string, token fencestore.Token, look bool) error {
	for {
		q.mu.Lock()
		changed := q.changed
		q.mu.Unlock()
		if q.push(resource, token, look) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// take waits for a job that is due and returns a copy of it; done has to follow. It reports false when ctx has ended.
func (q *queue) take(ctx context.Context) (job, bool) {
	for ctx.Err() == nil {
		q.mu.Lock()
		var wake <-chan time.Time
		if len(q.heap) > 0 {
			wait := time.Until(q.heap[0].due)
			if wait <= 0 {
				taken := *heap.Pop(&q.heap).(*job)
				q.mu.Unlock()
				return taken, true
			}
			wake = time.After(wait)
		}
		changed := q.changed
		q.mu.Unlock()
		select {
		case <-wake:
		case <-changed:
		case <-ctx.Done():
		}
	}
	return job{}, false
}

// done ends a job that was taken. It comes back at once if a newer token has come meanwhile, and after the pause if
// that is not 0.
func (q *queue) done(taken job, pause time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	j := q.jobs[taken.resource]
	switch {
	case j.token > taken.token || j.look && !taken.look:
		j.failures = 0
		q.enter(j, 0)
	case pause > 0:
		j.failures++
		q.enter(j, pause)
	default:
		delete(q.jobs, taken.resource)
	}
	q.change()
}

// enter and change want q.mu held.
func (q *queue) enter(j *job, pause time.Duration) {
	q.number++
	j.number, j.due = q.number, time.Now().Add(pause)
	heap.Push(&q.heap, j)
}

func (q *queue) change() {
	close(q.changed)
	q.changed = make(chan struct{})
	q.told(len(q.jobs))
}

// jobHeap is in the order in which jobs are due.
type jobHeap []*job

func (h jobHeap) Len() int { return len(h) }

func (h jobHeap) Less(i, j int) bool {
	if !h[i].due.Equal(h[j].due) {
		return h[i].due.Before(h[j].due)
	}
	return h[i].number < h[j].number
}

func (h jobHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

func (h *jobHeap) Push(x any) { *h = append(*h, x.(*job)) }

func (h *jobHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	return last
}
