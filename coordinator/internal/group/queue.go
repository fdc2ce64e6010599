package group

import (
	"container/list"
	"slices"
	"sync"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// proposal is a command on its way to a result. done is written once, by whoever takes it out of the queue.
type proposal struct {
	cmd  lock.Command
	done chan answer // capacity 1

	client   clientKey      // whose order it keeps; zero for none
	deadline lock.LeaseTime // of the lease that it renews

	caller Caller // told instead of done; nil: nobody
	group  *Group // with caller: its errors name the leader

	// The queue's own, under its mutex.
	class    class
	size     int
	queued   bool
	ahead    *proposal // in a fifo
	behind   *proposal // in a fifo
	arrived  uint64    // in a line by deadline
	position int       // in a line by deadline
}

// answer is how a proposal or a read ends.
type answer struct {
	outcome Outcome
	err     *Error // nil if it has an outcome
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
	maxSize  int           // a command counts for at most this, so that it fits its class's share of an entry
	ready    chan struct{} // capacity 1: there is something to take

	mu      sync.Mutex
	refusal *Error // why nothing is accepted; nil while the node leads
	lines   [classes]line
	queued  int
	clients map[clientKey]standing
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
		maxSize:  limits.BatchBytes / slices.Max(shareOf[:]),
		ready:    make(chan struct{}, 1),
		refusal:  &Error{Kind: NotLeader, Err: errNotServing},
		clients:  make(map[clientKey]standing),
		lines:    [classes]line{renewing: &byDeadline{}, ending: &fifo{}, acquiring: &fifo{}},
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
	for _, l := range q.lines {
		for p := l.first(); p != nil; p = l.first() {
			q.remove(p)
			p.finish(answer{err: reason})
		}
	}
	for e := q.reads.Front(); e != nil; e = q.reads.Front() {
		r := e.Value.(*reading)
		q.removeRead(r)
		r.done <- answer{err: reason}
	}
}

// push queues a command, or says why not.
func (q *queue) push(p *proposal) *Error {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.pushLocked(p)
}

// pushLocked is push for a caller that holds mu.
func (q *queue) pushLocked(p *proposal) *Error {
	p.class, p.size = classOf(p.cmd), min(sizeOf(p.cmd), q.maxSize)
	if q.refusal != nil {
		return q.refusal
	}
	if q.queued >= q.share(p.class) {
		return &Error{Kind: Overloaded, RetryAfter: retryOverload, Err: errQueueFull}
	}
	q.join(p)
	q.lines[p.class].add(p)
	p.queued = true
	q.queued++
	q.wake()
	return nil
}

// join moves a command to the class in which its client's earlier ones stand.
func (q *queue) join(p *proposal) {
	if p.client == (clientKey{}) {
		return
	}
	s, queued := q.clients[p.client]
	if !queued {
		s.class = p.class
	}
	s.count++
	q.clients[p.client] = s
	p.class = s.class
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
	if !p.queued {
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
	for p := q.lines[c].first(); p != nil; p = q.lines[c].first() {
		if !share.fits(p.size) || !room.fits(p.size) {
			break
		}
		share.spend(p.size)
		room.spend(p.size)
		q.remove(p)
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
	q.lines[p.class].drop(p)
	p.queued = false
	q.queued--
	if p.client == (clientKey{}) {
		return
	}
	s := q.clients[p.client]
	if s.count--; s.count == 0 {
		delete(q.clients, p.client)
	} else {
		q.clients[p.client] = s
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
