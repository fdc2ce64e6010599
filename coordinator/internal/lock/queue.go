package lock

import (
	"cmp"
	"slices"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// await puts a request at the end of its resource's queue.
func (m *Machine) await(c Acquire, q slot) slot {
	rec := waiterRecord{
		claim: m.claimOf(c, q), seq: m.requests.get(q).seq,
		deadline: m.now.Add(c.Wait), grace: m.now.Add(m.config.Grace),
		call: c.Call, attached: c.Call != 0,
	}
	w := m.waiters.add(rec)
	m.requests.edit(q).claim = w
	m.byLease[c.Lease] = q
	m.awaits[awaitKey{m.requests.get(q).client, c.Resource}] = q
	m.endings.set(w, rec.ends(), rec.seq)
	r := m.resource(c.Resource)
	r.queue = append(r.queue, w)
	m.emit(WaitStarted(m.waiterOf(w)))
	return w
}

// attach says that a call waits for the request again. If only its caller was missing, it is granted on the spot:
// the answer carries the grant, so it is not a late one.
func (m *Machine) attach(w slot, call uint64) Result {
	if call == 0 {
		return m.waitingOf(w)
	}
	if !m.waiters.get(w).attached {
		v := m.waiterOf(w)
		m.emit(WaitAttached{Resource: v.Resource, Identity: v.Identity, Client: v.Client, Request: v.Request})
	}
	rec := m.waiters.edit(w)
	rec.call, rec.attached = call, true
	m.endings.set(w, rec.ends(), rec.seq)
	name, q := rec.resource, rec.request
	r := m.resources[name]
	if next, ok := m.eligible(r); ok && next == w && len(r.holders) == 0 {
		m.grantWaiter(w, false)
	}
	if req := m.requests.get(q); req.stage == StageHeld {
		return Granted{Grant: m.grantOf(req.claim), Retried: true}
	}
	return m.waitingOf(w)
}

// detach is the news that a call went away. Another call may have taken its place meanwhile.
func (m *Machine) detach(c Detach) Result {
	q, ok := m.find(c.Identity, c.Client, c.Request)
	if !ok {
		return Done{}
	}
	r := m.requests.get(q)
	if r.stage != StageWaiting {
		return Done{}
	}
	if w := m.waiters.get(r.claim); w.attached && w.call == c.Call {
		m.unattach(r.claim)
		m.emit(WaitDetached{Resource: w.resource, Identity: c.Identity, Client: c.Client, Request: c.Request})
	}
	return Done{}
}

// unattach starts a waiter's grace; one whose grace is running keeps it.
func (m *Machine) unattach(w slot) {
	if !m.waiters.get(w).attached {
		return
	}
	rec := m.waiters.edit(w)
	rec.attached, rec.grace = false, m.now.Add(m.config.Grace)
	m.endings.set(w, rec.ends(), rec.seq)
}

// promote grants a free resource to the next waiter that is there, if any. A waiter whose own time is up is dropped
// here and now, whatever its timer has got to, so that it cannot be granted first.
func (m *Machine) promote(name lease.Resource) {
	r := m.resources[name]
	if r == nil || len(r.holders) > 0 {
		return
	}
	m.dropOverdue(name, r)
	if w, ok := m.eligible(r); ok {
		m.grantWaiter(w, true)
	}
}

// eligible finds the waiter that is next: the first whose caller is there, but during the head start none that is
// not the head. Its own time must not be up: see dropOverdue.
func (m *Machine) eligible(r *resource) (slot, bool) {
	for i, w := range r.queue {
		if i > 0 && m.now < m.headStart {
			break
		}
		if m.waiters.get(w).attached {
			return w, true
		}
	}
	return 0, false
}

// grantWaiter takes a waiter out of the queue and gives it the lease. Without tokens it goes on waiting.
func (m *Machine) grantWaiter(w slot, late bool) {
	token, ok := m.issue()
	if !ok {
		return
	}
	c := m.waiters.get(w).claim
	m.grant(c, token, late)
	m.unqueue(w)
}

// dropOverdue ends the waits of a resource whose time is up.
func (m *Machine) dropOverdue(name lease.Resource, r *resource) {
	if _, due := m.endings.due(m.now); !due {
		return
	}
	for _, w := range slices.Clone(r.queue) {
		if m.waiters.get(w).ends() <= m.now {
			m.giveUp(w)
		}
	}
	m.tidy(name, r)
}

// giveUp ends a wait whose time is up.
func (m *Machine) giveUp(w slot) {
	if m.waiters.get(w).deadline <= m.now {
		m.endWait(w, WaitTimedOut)
		return
	}
	m.endWait(w, WaitAbandoned)
}

// endWait takes a waiter out of the queue without a grant.
func (m *Machine) endWait(w slot, cause WaitCause) {
	rec := m.waiters.get(w)
	c := m.clientOf(rec.request)
	m.emit(WaitEnded{
		Resource: rec.resource, Identity: c.identity, Client: c.name,
		Request: m.requests.get(rec.request).id, Cause: cause,
	})
	delete(m.byLease, rec.id)
	m.unqueue(w)
	if cause == WaitCancelled {
		m.settle(rec.request, StageCancelled)
		return
	}
	m.settle(rec.request, StageEnded)
}

// unqueue forgets a waiter.
func (m *Machine) unqueue(w slot) {
	rec := m.waiters.get(w)
	r := m.resources[rec.resource]
	at, _ := m.place(r, rec.seq)
	r.queue = slices.Delete(r.queue, at, at+1)
	m.tidy(rec.resource, r)
	m.endings.remove(w)
	delete(m.awaits, awaitKey{m.requests.get(rec.request).client, rec.resource})
	m.waiters.remove(w)
}

// place finds a waiter in the queue; the head is 0.
func (m *Machine) place(r *resource, seq uint64) (int, bool) {
	return slices.BinarySearchFunc(r.queue, seq, func(w slot, seq uint64) int {
		return cmp.Compare(m.waiters.get(w).seq, seq)
	})
}
