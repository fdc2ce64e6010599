package lock

import (
	"cmp"
	"slices"

	"github.com/lychgate/lychgate/chaos/seeded"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// await makes a request and puts it at the end of its resource's queue.
func (m *Machine) await(c Acquire, by slot) slot {
	w := m.waiters.take()
	t := m.termsFor(c)
	t.waiter = w
	q := m.remember(c, by, StageWaiting, &t)
	rec := waiterRecord{
		request: q, mode: c.Mode, seq: m.requests.peek(q).seq,
		deadline: m.now.Add(c.Wait), grace: m.now.Add(m.config.Grace),
		call: c.Call, attached: c.Call != 0,
	}
	m.waiters.put(w, rec)
	m.byLease.add(m.hashOfLease(q), q)
	m.awaits[awaitKey{m.requests.peek(q).client, c.Resource}] = q
	m.endings.set(w, rec.ends(), rec.seq)
	r := m.resource(c.Resource)
	r.queue = append(r.queue, w)
	m.tenants.edit(m.clientOf(q).tenant).waiters++
	if rec.attached {
		m.watch(w)
	}
	m.emit(WaitStarted(m.waiterOf(w)))
	return w
}

// attach says that a call waits for the request again. If only its caller was missing, it is granted on the spot:
// the answer carries the grant, so it is not a late one.
func (m *Machine) attach(w slot, call uint64) Result {
	if call == 0 {
		return m.waitingOf(w)
	}
	if !m.waiters.peek(w).attached {
		m.waiters.edit(w).attached = true
		m.watch(w)
		if cycle := m.cycleThrough(w); cycle != nil {
			m.waiters.edit(w).attached = false
			m.unwatch(w)
			return Refused{Reason: ReasonDeadlock, Cycle: cycle}
		}
		v := m.waiterOf(w)
		m.emit(WaitAttached{Resource: v.Resource, Identity: v.Identity, Client: v.Client, Request: v.Request})
	}
	rec := m.waiters.edit(w)
	rec.call = call
	m.endings.set(w, rec.ends(), rec.seq)
	q := rec.request
	m.grantNext(m.resources[m.resourceOf(rec.request)], w)
	if m.requests.peek(q).stage == StageHeld {
		return Granted{Grant: m.grantOf(q), Retried: true}
	}
	return m.waitingOf(w)
}

// detach is the news that a call went away. Another call may have taken its place meanwhile.
func (m *Machine) detach(c Detach) Result {
	q, ok := m.find(c.Identity, c.Client, c.Request)
	if !ok {
		return Done{}
	}
	if m.requests.peek(q).stage != StageWaiting {
		return Done{}
	}
	at := m.termsOf(q).waiter
	if w := m.waiters.get(at); w.attached && (w.call == c.Call || seeded.Is(seeded.StaleDetach)) {
		m.unattach(at)
		name := m.resourceOf(w.request)
		m.emit(WaitDetached{Resource: name, Identity: c.Identity, Client: c.Client, Request: c.Request})
		m.promote(name) // an exclusive one who is away is passed by shared ones
	}
	return Done{}
}

// unattach starts a waiter's grace; one whose grace is running keeps it.
func (m *Machine) unattach(w slot) {
	if !m.waiters.get(w).attached {
		return
	}
	m.unwatch(w)
	rec := m.waiters.edit(w)
	rec.attached, rec.grace = false, m.now.Add(m.config.Grace)
	m.endings.set(w, rec.ends(), rec.seq)
}

// promote grants a resource to those who are next and can have it together, if any. A waiter whose own time is up is
// dropped here and now, whatever its timer has got to, so that it cannot be granted first.
func (m *Machine) promote(name lease.Resource) {
	r := m.lookUp(name)
	if r == nil || r.holders() > 0 && m.requests.peek(r.first()).mode == lease.Exclusive {
		return
	}
	m.dropOverdue(r)
	m.grantNext(r, none)
}

// grantNext grants the waiters that are next. All but here, whose call this command is, learn of it as an event.
func (m *Machine) grantNext(r *resource, here slot) {
	for _, w := range m.nextRun(r) {
		m.grantWaiter(w, w != here)
	}
}

// nextRun finds the waiters that are next: the first whose caller is there, if its mode fits those who hold the
// resource, and if it is shared the shared ones behind it up to the next exclusive one that is there. During the head
// start nobody passes one who is away. The waiters' own time must not be up: see dropOverdue.
func (m *Machine) nextRun(r *resource) []slot {
	if r.attached == 0 && !seeded.Is(seeded.UnattachedGranted) {
		return nil
	}
	if seeded.Is(seeded.LastInFirstOut) {
		r = r.reversed()
	}
	var run []slot
	for _, w := range r.queue {
		rec := m.waiters.peek(w)
		if !rec.attached && !seeded.Is(seeded.UnattachedGranted) {
			if m.now < m.headStart && !seeded.Is(seeded.HeadStartIgnored) {
				break
			}
			continue
		}
		if !m.sharesWith(r, rec.mode) || !m.isOpen(r, rec.mode) || len(run) > 0 && rec.mode == lease.Exclusive {
			break
		}
		run = append(run, w)
		if rec.mode == lease.Exclusive {
			break
		}
	}
	return run
}

// grantWaiter takes a waiter out of the queue and gives it the lease. Without tokens it goes on waiting.
func (m *Machine) grantWaiter(w slot, late bool) {
	q := m.waiters.peek(w).request
	name := m.resourceOf(q)
	token, ok := m.tokenFor(m.resources[name])
	if !ok {
		return
	}
	t := m.termsOf(q)
	t.waiter, t.token, t.since = none, token, m.now
	m.respell(q, &t)
	g := m.describe(q, &t)
	m.begin(q, &g, late)
	m.unqueue(w)
}

// dropOverdue ends the waits of a resource whose time is up.
func (m *Machine) dropOverdue(r *resource) {
	if _, due := m.endings.due(m.now); !due || seeded.Is(seeded.OverdueGranted) {
		return
	}
	for _, w := range slices.Clone(r.queue) {
		if m.waiters.peek(w).ends() <= m.now {
			m.giveUp(w)
		}
	}
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
	m.dropWait(w, cause, nil)
}

// dropWait is endWait with the deadlock that it ends.
func (m *Machine) dropWait(w slot, cause WaitCause, cycle []Owner) {
	rec := m.waiters.get(w)
	v, at := m.waiterOf(w), m.waitingOf(w)
	m.emit(WaitEnded{
		Resource: v.Resource, Identity: v.Identity, Client: v.Client, Request: v.Request,
		Cause: cause, Position: at.Position, Blocker: at.Holder, Cycle: cycle,
	})
	m.byLease.remove(m.hashOfLease(rec.request), rec.request)
	m.unqueue(w)
	stage := StageEnded
	if cause == WaitCancelled {
		stage = StageCancelled
	}
	t := m.termsOf(rec.request)
	m.settle(rec.request, stage, m.wordsOf(rec.request), &t)
}

// unqueue forgets a waiter.
func (m *Machine) unqueue(w slot) {
	rec := m.waiters.get(w)
	name := m.resourceOf(rec.request)
	r := m.resources[name]
	if rec.attached {
		m.unwatch(w)
	}
	at, _ := m.place(r, rec.seq)
	r.queue = slices.Delete(r.queue, at, at+1)
	m.tenants.edit(m.clientOf(rec.request).tenant).waiters--
	m.tidy(name, r)
	m.endings.remove(w)
	delete(m.awaits, awaitKey{m.requests.peek(rec.request).client, name})
	m.waiters.remove(w)
}

// place finds a waiter in the queue; the head is 0.
func (m *Machine) place(r *resource, seq uint64) (int, bool) {
	return slices.BinarySearchFunc(r.queue, seq, func(w slot, seq uint64) int {
		return cmp.Compare(m.waiters.peek(w).seq, seq)
	})
}
