package api

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// progressEvery is how often a call that waits is told of its progress at most. What happens meanwhile is told at once
// then: a queue that moves costs one walk along it in this time, however many watch it and however often it moves.
const progressEvery = 100 * time.Millisecond

// queues tells the calls that wait on this node, and want to know, how their queues go.
type queues struct {
	count atomic.Int64  // of the places: where nobody asks, nothing is done
	news  chan struct{} // capacity 1: a queue has moved

	mu     sync.Mutex
	places map[lease.Resource]map[placeKey][]*place
	moved  map[lease.Resource]struct{}
}

// placeKey names a waiter of a resource.
type placeKey struct {
	identity lease.Identity
	client   lease.ClientID
	request  lease.RequestID
}

// place is a call that waits.
type place struct {
	queues   *queues
	resource lease.Resource
	key      placeKey
	news     chan *lockpb.Progress // capacity 1: the newest that was not taken yet

	position int         // that was told last
	holder   lease.Token // likewise
}

func newQueues() *queues {
	return &queues{
		news: make(chan struct{}, 1), places: map[lease.Resource]map[placeKey][]*place{}, moved: map[lease.Resource]struct{}{},
	}
}

// join registers a call whose request stands in the queue as it was told. What has changed since is told soon.
func (q *queues) join(cmd lock.Acquire, told lock.Waiting) *place {
	p := &place{
		queues: q, resource: cmd.Resource, key: placeKey{cmd.Identity, cmd.Client, cmd.Request},
		news: make(chan *lockpb.Progress, 1), position: told.Position, holder: told.Holder.Token,
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.places[p.resource] == nil {
		q.places[p.resource] = map[placeKey][]*place{}
	}
	q.places[p.resource][p.key] = append(q.places[p.resource][p.key], p) // several calls may wait for one request
	q.count.Add(1)
	q.move(p.resource)
	return p
}

// leave ends the interest in the queue.
func (p *place) leave() {
	p.queues.mu.Lock()
	defer p.queues.mu.Unlock()
	waiting := p.queues.places[p.resource]
	waiting[p.key] = slices.DeleteFunc(waiting[p.key], func(other *place) bool { return other == p })
	if len(waiting[p.key]) == 0 {
		delete(waiting, p.key)
	}
	if len(waiting) == 0 {
		delete(p.queues.places, p.resource)
		delete(p.queues.moved, p.resource)
	}
	p.queues.count.Add(-1)
}

// move notes that a resource's queue is not as it was. The lock is held.
func (q *queues) move(name lease.Resource) {
	if q.places[name] == nil {
		return
	}
	q.moved[name] = struct{}{}
	select {
	case q.news <- struct{}{}:
	default:
	}
}

// applied notes whose queue an entry has moved.
func (q *queues) applied(events []lock.Event) {
	if q.count.Load() == 0 || len(events) == 0 {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, event := range events {
		switch e := event.(type) {
		case lock.LeaseGranted:
			q.move(e.Resource)
		case lock.LeaseEnded:
			q.move(e.Resource)
		case lock.WaitEnded:
			q.move(e.Resource)
		default: // whoever joins a queue joins at its end
		}
	}
}

// all notes that every queue may have moved.
func (q *queues) all() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for name := range q.places {
		q.move(name)
	}
}

// run tells the calls of their progress until ctx is done.
func (q *queues) run(ctx context.Context, view func(func(*lock.Machine))) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-q.news:
		case <-ctx.Done():
			return
		}
		q.tell(view)
		pause.Reset(progressEvery)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

// tell looks at the queues that moved, each in a view of its own, and tells whom it concerns.
func (q *queues) tell(view func(func(*lock.Machine))) {
	q.mu.Lock()
	moved := q.moved
	q.moved = map[lease.Resource]struct{}{}
	q.mu.Unlock()
	for name := range moved {
		view(func(m *lock.Machine) { q.look(m, name) })
	}
}

// look walks a queue once, and tells those of its waiters who asked.
func (q *queues) look(m *lock.Machine, name lease.Resource) {
	q.mu.Lock() // within a view; nobody looks at the state while holding it
	defer q.mu.Unlock()
	waiting := q.places[name]
	if len(waiting) == 0 {
		return
	}
	info := m.Info()
	var h lock.Holder
	if holders := m.Get(name).Holders; len(holders) > 0 {
		h = holders[0]
	}
	position := 0
	for w := range m.Queue(name) {
		position++
		for _, p := range waiting[placeKey{w.Identity, w.Client, w.Request}] {
			p.offer(standing{position, w.Deadline}, h, info)
		}
	}
}

// standing is where a waiter stands in its queue, and until when.
type standing struct {
	position int
	deadline lock.LeaseTime
}

// offer tells a place how it stands, if that is news. What was not taken before is replaced.
func (p *place) offer(s standing, h lock.Holder, info lock.Info) {
	if s.position == p.position && h.Token == p.holder {
		return
	}
	p.position, p.holder = s.position, h.Token
	select {
	case <-p.news:
	default:
	}
	p.news <- progressOf(s, h, info.Index, info.Now)
}

func progressOf(s standing, h lock.Holder, index uint64, now lock.LeaseTime) *lockpb.Progress {
	out := &lockpb.Progress{
		Position: int32(min(s.position, 1<<31-1)), Remaining: milliseconds(s.deadline.Sub(now)), AsOf: int64(now), Index: index,
	}
	if h.Client != "" {
		out.Holder = holder(h, now)
	}
	return out
}
