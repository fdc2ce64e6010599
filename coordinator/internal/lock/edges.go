package lock

import (
	"slices"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// Party is who waits or is waited for.
type Party struct {
	Owner   Owner
	Client  lease.ClientID
	Request lease.RequestID
}

// Edge says that an owner waits for another one, on one resource.
type Edge struct {
	Waiter Party
	Holder Party
	Lease  lease.ID // that the holder has; zero if it waits itself, ahead of the waiter
}

// Edges lists who waits for whom, the oldest waits first, for those who look for deadlocks across groups. An edge that
// others together stand for is left out: a waiter's to one that is behind another in its way. complete is false if
// there are more than limit.
func (m *Machine) Edges(limit int) (edges []Edge, complete bool) {
	complete = true
	add := func(e Edge) bool {
		if len(edges) >= limit {
			complete = false
			return false
		}
		edges = append(edges, e)
		return true
	}
	for _, w := range m.waitersInOrder() {
		if m.waiters.peek(w).attached && !m.edgesOf(w, add) {
			break
		}
	}
	return edges, complete
}

func (m *Machine) edgesOf(w slot, add func(Edge) bool) bool {
	rec := m.waiters.peek(w)
	r := m.resources[m.resourceOf(rec.request)]
	at, _ := m.place(r, rec.seq)
	waiter := m.partyOf(rec.request)
	for at--; at >= 0; at-- {
		other := m.waiters.peek(r.queue[at])
		if !other.attached || rec.mode == lease.Shared && other.mode == lease.Shared {
			continue
		}
		if !add(Edge{Waiter: waiter, Holder: m.partyOf(other.request)}) {
			return false
		}
		if other.mode == lease.Exclusive {
			return true // whose own edges are the rest
		}
	}
	if m.sharesWith(r, rec.mode) {
		return true
	}
	for l := range r.all() {
		if !add(Edge{Waiter: waiter, Holder: m.partyOf(l), Lease: m.termsOf(l).lease}) {
			return false
		}
	}
	return true
}

func (m *Machine) partyOf(q slot) Party {
	return Party{Owner: m.ownerOf(q), Client: m.nameOf(m.requests.peek(q).client), Request: m.wordsOf(q).id}
}

// killWait ends a wait that closes a deadlock across groups, if it is still there, and waits for the same.
func (m *Machine) killWait(c KillWait) Result {
	q, ok := m.find(c.Identity, c.Client, c.Request)
	if !ok || m.requests.peek(q).stage != StageWaiting {
		return Refused{Reason: ReasonNoSuchWait}
	}
	w := m.termsOf(q).waiter
	if !m.waiters.peek(w).attached || !m.waitsForLease(w, c.Lease) && !m.waitsBehind(w, c.Ahead) {
		return Refused{Reason: ReasonNoSuchWait}
	}
	name := m.resourceOf(m.waiters.peek(w).request)
	m.dropWait(w, WaitDeadlocked, slices.Clone(c.Cycle))
	m.promote(name)
	return Done{}
}

func (m *Machine) waitsForLease(w slot, id lease.ID) bool {
	l, ok := m.findLease(id)
	if !ok {
		return false
	}
	rec, held := m.waiters.peek(w), m.requests.peek(l)
	return m.isOn(l, m.resourceOf(rec.request)) && !(held.mode == lease.Shared && rec.mode == lease.Shared)
}

func (m *Machine) waitsBehind(w slot, ahead RequestRef) bool {
	q, ok := m.find(ahead.Identity, ahead.Client, ahead.Request)
	if !ok || m.requests.peek(q).stage != StageWaiting {
		return false
	}
	rec, other := m.waiters.peek(w), m.waiters.peek(m.termsOf(q).waiter)
	return other.attached && m.isOn(other.request, m.resourceOf(rec.request)) && other.seq < rec.seq &&
		!(other.mode == lease.Shared && rec.mode == lease.Shared)
}
