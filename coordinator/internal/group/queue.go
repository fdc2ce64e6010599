package group

import (
	"container/list"
	"sync"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// proposal is a command on its way to a result. done is written once, by whoever takes it out of the queue.
type proposal struct {
	cmd  lock.Command
	done chan answer // capacity 1

	// The queue's own, under its mutex.
	class    class
	client   clientKey
	size     int
	place    *list.Element // nil once it has left the queue
	proposed bool          // it is in an entry now: its context can no longer take it back
}

// answer is how a proposal or a read ends: err is nil or an *Error.
type answer struct {
	outcome Outcome
	err     error
}

// reading is a linearizable read that waits for an entry proposed after it came.
type reading struct {
	done  chan answer   // capacity 1
	place *list.Element // nil once it has left the queue
}

// queue holds what waits for the next entry while this node leads, and refuses everything while it does not.
// It is bounded: acquires may fill half of it, what ends leases three quarters, renewals all of it, so that
// under overload the leases that are held are the last to suffer.
type queue struct {
	limit    int
	maxReads int
	ready    chan struct{} // capacity 1: there is something to take

	mu      sync.Mutex
	refusal *Error // why nothing is accepted; nil while the node leads
	classes [classes]list.List
	queued  int
	clients map[clientKey]*standing
	reads   list.List
}

// standing says where the queued commands of one client stand, so that the next joins them and they keep
// their order.
type standing struct {
	class class
	count int
}

// retryOverload is what a refused caller is told to wait: about as long as a full queue takes to drain.
const retryOverload = 100 * time.Millisecond

func newQueue(limits Limits) *queue {
	return &queue{
		limit:    limits.Queue,
		maxReads: limits.Reads,
		ready:    make(chan struct{}, 1),
		refusal:  &Error{Kind: NotLeader, Err: errNotServing},
		clients:  make(map[clientKey]*standing),
	}
}

// open starts to accept.
func (q *queue) open() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refusal = nil
}

// close refuses everything from now on, and answers what is queued, with a reason that means: not applied.
func (q *queue) close(reason *Error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.refusal = reason
	for c := range q.classes {
		for e := q.classes[c].Front(); e != nil; e = q.classes[c].Front() {
			p := e.Value.(*proposal)
			q.remove(p)
			p.done <- answer{err: reason}
		}
	}
	for e := q.reads.Front(); e != nil; e = q.reads.Front() {
		r := e.Value.(*reading)
		q.removeRead(r)
		r.done <- answer{err: reason}
	}
}

// push queues a command, or says why not. client is the zero value for a command without order.
func (q *queue) push(p *proposal, client clientKey) *Error {
	p.class, p.client, p.size = classOf(p.cmd), client, sizeOf(p.cmd)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refusal != nil {
		return q.refusal
	}
	if q.queued >= q.share(p.class) {
		return &Error{Kind: Overloaded, RetryAfter: retryOverload, Err: errQueueFull}
	}
	q.queued++
	if client != (clientKey{}) {
		s := q.clients[client]
		if s == nil {
			s = &standing{class: p.class}
			q.clients[client] = s
		}
		s.count++
		p.class = s.class
	}
	p.place = q.classes[p.class].PushBack(p)
	q.wake()
	return nil
}

// share is how long the queue may be for a command of this class to be accepted.
func (q *queue) share(c class) int {
	switch c {
	case renewing:
		return q.limit
	case ending:
		return q.limit / 4 * 3
	case acquiring, classes:
	}
	return q.limit / 2
}

// pushRead queues a read.
func (q *queue) pushRead(r *reading) *Error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.refusal != nil {
		return q.refusal
	}
	if q.reads.Len() >= q.maxReads {
		return &Error{Kind: Overloaded, RetryAfter: retryOverload, Err: errQueueFull}
	}
	r.place = q.reads.PushBack(r)
	q.wake()
	return nil
}

// withdraw takes a proposal back. It reports false if that is no longer possible: it is in an entry, or
// answered.
func (q *queue) withdraw(p *proposal) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if p.place == nil {
		return false
	}
	q.remove(p)
	return true
}

// withdrawRead takes a read back, if it still waits.
func (q *queue) withdrawRead(r *reading) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if r.place != nil {
		q.removeRead(r)
	}
}

// length is the number of commands that wait.
func (q *queue) length() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.queued
}

// take removes what the next entry carries: every class gets its share of it, and what a class leaves unused
// goes to the others, renewals first. All waiting reads ride along.
func (q *queue) take(commands, bytes int) ([]*proposal, []*reading) {
	q.mu.Lock()
	defer q.mu.Unlock()
	var taken [classes][]*proposal
	room := budget{commands, bytes}
	for c := range taken {
		share := budget{commands / shareOf[c], bytes / shareOf[c]}
		taken[c] = q.takeFrom(class(c), &share, &room, nil)
	}
	for c := range taken {
		rest := room
		taken[c] = q.takeFrom(class(c), &rest, &room, taken[c])
	}
	var all []*proposal
	for c := range taken {
		all = append(all, taken[c]...)
	}
	if q.queued > 0 {
		q.wake()
	}
	return all, q.takeReads()
}

func (q *queue) takeFrom(c class, share, room *budget, taken []*proposal) []*proposal {
	for e := q.classes[c].Front(); e != nil; e = q.classes[c].Front() {
		p := e.Value.(*proposal)
		if !share.fits(p.size) || !room.fits(p.size) {
			break
		}
		share.spend(p.size)
		room.spend(p.size)
		q.remove(p)
		p.proposed = true
		taken = append(taken, p)
	}
	return taken
}

func (q *queue) takeReads() []*reading {
	var reads []*reading
	for e := q.reads.Front(); e != nil; e = q.reads.Front() {
		r := e.Value.(*reading)
		q.removeRead(r)
		reads = append(reads, r)
	}
	return reads
}

func (q *queue) remove(p *proposal) {
	q.classes[p.class].Remove(p.place)
	p.place = nil
	q.queued--
	if s := q.clients[p.client]; s != nil {
		if s.count--; s.count == 0 {
			delete(q.clients, p.client)
		}
	}
}

func (q *queue) removeRead(r *reading) {
	q.reads.Remove(r.place)
	r.place = nil
}

func (q *queue) wake() {
	select {
	case q.ready <- struct{}{}:
	default:
	}
}

// budget is how many commands and estimated bytes may still be taken.
type budget struct{ commands, bytes int }

func (b *budget) fits(size int) bool { return b.commands > 0 && b.bytes >= size }

func (b *budget) spend(size int) {
	b.commands--
	b.bytes -= size
}
