package invariant

import (
	"fmt"
	"slices"
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// history is what is known to be so after the steps so far: who holds and who waits.
type history struct {
	now       Instant
	leases    map[lease.IDHash]*holding
	holders   map[lease.Resource][]*holding
	held      map[Request]*holding
	waiters   map[Request]*place
	queues    map[lease.Resource][]*place
	headStart Instant
}

// holding is a live lease.
type holding struct {
	Granted
	stamped Instant       // its grant or last renewal
	stands  time.Duration // from then
}

func (h *holding) deadline() Instant { return h.stamped.Add(h.stands) }

// place is a request in a queue.
type place struct{ Queued }

func newHistory() *history {
	return &history{
		leases:  make(map[lease.IDHash]*holding),
		holders: make(map[lease.Resource][]*holding),
		held:    make(map[Request]*holding),
		waiters: make(map[Request]*place),
		queues:  make(map[lease.Resource][]*place),
	}
}

// clone copies all that later steps change.
func (h *history) clone() *history {
	twin := newHistory()
	twin.now, twin.headStart = h.now, h.headStart
	for name, holders := range h.holders {
		for _, l := range holders {
			l = new(*l)
			twin.leases[l.Lease], twin.held[l.Request] = l, l
			twin.holders[name] = append(twin.holders[name], l)
		}
	}
	for name, queue := range h.queues {
		for _, w := range queue {
			w = new(*w)
			twin.waiters[w.Request] = w
			twin.queues[name] = append(twin.queues[name], w)
		}
	}
	return twin
}

// follow takes a step that broke no rule. Steps that name what is not there are left to the rules and ignored here.
func (h *history) follow(e Event) error {
	if at, ok := instantOf(e); ok {
		if at < h.now {
			return fmt.Errorf("the history goes back in time: %v after %v (%T %+v)", at, h.now, e, e)
		}
		h.now = at
	}
	switch e := e.(type) {
	case Granted:
		h.unqueue(e.Request)
		l := &holding{Granted: e, stamped: e.At, stands: e.TTL}
		h.leases[e.Lease], h.held[e.Request] = l, l
		h.holders[e.Resource] = append(h.holders[e.Resource], l)
	case Renewed:
		h.leases[e.Lease].stamped, h.leases[e.Lease].stands = e.At, e.TTL
	case Ended:
		h.end(e.Lease)
	case Queued:
		p := &place{e}
		h.waiters[e.Request] = p
		h.queues[e.Resource] = append(h.queues[e.Resource], p)
	case Attached:
		h.attach(e.Request, true)
	case Detached:
		h.attach(e.Request, false)
	case Elected:
		h.headStart = e.HeadStart
		for _, w := range h.waiters {
			w.Attached = false
		}
	case Unqueued:
		h.unqueue(e.Request)
	}
	return nil
}

func instantOf(e Event) (Instant, bool) {
	switch e := e.(type) {
	case Granted:
		return e.At, true
	case Renewed:
		return e.At, true
	case Ended:
		return e.At, true
	case Queued:
		return e.At, true
	case Unqueued:
		return e.At, true
	case Forestalled:
		return e.At, true
	}
	return 0, false
}

func (h *history) end(id lease.IDHash) {
	l := h.leases[id]
	delete(h.leases, id)
	delete(h.held, l.Request)
	h.holders[l.Resource] = slices.DeleteFunc(h.holders[l.Resource], func(o *holding) bool { return o == l })
}

func (h *history) attach(r Request, there bool) {
	if w := h.waiters[r]; w != nil {
		w.Attached = there
	}
}

func (h *history) unqueue(r Request) {
	w := h.waiters[r]
	if w == nil {
		return
	}
	delete(h.waiters, r)
	h.queues[w.Resource] = slices.DeleteFunc(h.queues[w.Resource], func(o *place) bool { return o == w })
}
