package lock

import (
	"time"

	"github.com/lychgate/lychgate/chaos/seeded"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// De-duplication. A record is made when a request takes effect, at lease time P, and says until = max(P, AsOf) +
// window. It leaves when the request is over and now > until (or its client acknowledged it). Any copy of the
// request carries the same AsOf ≤ until − window < now − window, so it is refused as too old: no copy can take a
// second effect. An AsOf ahead of the cluster keeps its record the longer, and is refused if it is ahead by more
// than a window, so that nobody can make the machine remember for ever. A copy that was stamped anew, by a node for
// a client that sends no AsOf, prolongs the record by the same rule. An acknowledged record's copies have a number
// up to acknowledged, which is remembered until all of them are too old as well.

// window is how long a request may be retried.
func (m *Machine) window() time.Duration { return m.config.MaxWait + m.config.RetryWindow }

// outsideWindow says why a request may not be executed whatever it asks for; 0 means that it may.
func (m *Machine) outsideWindow(c Acquire, by slot) Reason {
	if reason := m.outsideTime(c.AsOf); reason != 0 {
		return reason
	}
	if c.Sequence != 0 && (c.Sequence <= c.Acknowledged || by != none && c.Sequence <= m.clients.peek(by).acknowledged) {
		return ReasonRequestTooOld
	}
	return 0
}

func (m *Machine) outsideTime(asOf LeaseTime) Reason {
	switch {
	case asOf < m.now.Add(-m.window()):
		return ReasonRequestTooOld
	case asOf > m.now.Add(m.window()):
		return ReasonRequestAhead
	}
	return 0
}

func (m *Machine) find(identity lease.Identity, name lease.ClientID, id lease.RequestID) (slot, bool) {
	client, ok := m.findClient(identity, name)
	if !ok {
		return 0, false
	}
	return m.findRequest(client, id)
}

// clientOf is a request's client, for a look at it.
func (m *Machine) clientOf(q slot) *clientRecord { return m.clients.peek(m.requests.peek(q).client) }

// remember makes the record of an acquire that takes effect.
func (m *Machine) remember(c Acquire, by slot, s Stage, t *terms) slot {
	anew := by == none
	if anew {
		by = m.newClient(c.Identity, c.Client)
	}
	q := m.record(by, m.texts.spell(&words{resource: c.Resource, owner: c.Owner, id: c.Request}, t), s)
	m.requests.edit(q).mode = c.Mode
	m.number(by, q, c.Sequence)
	if anew {
		m.acknowledge(c, by)
	}
	return q
}

// record makes a request's record.
func (m *Machine) record(client slot, at text, s Stage) slot {
	m.departures.remove(client)
	q := m.requests.add(requestRecord{seq: m.nextSeq(), client: client, cell: at.cell, class: at.class, stage: s})
	m.byRequest.add(m.hashOfRequest(q), q)
	c := m.clients.edit(client)
	c.requests++
	m.tenants.edit(c.tenant).requests++
	return q
}

// respell writes a request's terms anew.
func (m *Machine) respell(q slot, t *terms) {
	w := m.wordsOf(q)
	m.rewrite(q, &w, t)
}

func (m *Machine) rewrite(q slot, w *words, t *terms) {
	r := m.requests.edit(q)
	m.texts.remove(r.text())
	at := m.texts.spell(w, t)
	r.cell, r.class = at.cell, at.class
}

// fingerprintOf is the fingerprint of the acquire that a request was.
func (m *Machine) fingerprintOf(q slot) uint64 {
	r := m.requests.peek(q)
	w, t := m.texts.words(r.text()), m.texts.terms(r.text())
	return fingerprintIn(&w, &t, r.mode)
}

func fingerprintIn(w *words, t *terms, mode lease.Mode) uint64 {
	switch t.imprint {
	case imprintTTL:
		return fingerprintOf(w.resource, w.owner, mode, t.ttl)
	case imprintNoTTL:
		return fingerprintOf(w.resource, w.owner, mode, 0)
	case imprintNone, imprintKept:
	}
	return t.fingerprint
}

// imprintOf keeps a fingerprint.
func imprintOf(fingerprint uint64) (imprint, uint64) {
	if fingerprint == 0 {
		return imprintNone, 0
	}
	return imprintKept, fingerprint
}

func (m *Machine) newClient(by lease.Identity, name lease.ClientID) slot {
	tenant := m.enter(by)
	return m.addClient(clientRecord{identity: m.tenants.peek(tenant).latest, seq: m.nextSeq(), tenant: tenant}, name)
}

func (m *Machine) untilFor(asOf LeaseTime) LeaseTime { return max(m.now, asOf).Add(m.window()) }

// prolong keeps a record for the copies of a retry that was just seen.
func (m *Machine) prolong(q slot, asOf LeaseTime) {
	until := m.untilFor(min(asOf, m.now.Add(m.window())))
	if r := m.requests.peek(q); r.stage.over() {
		if until > r.due {
			m.oblivions.remove(q)
			m.requests.edit(q).due = until
			m.oblivions.add(q)
		}
		return
	}
	if t := m.termsOf(q); until > t.until {
		t.until = until
		m.respell(q, &t)
	}
}

// acknowledge hears up to which number a client will never retry: the records up to it go, those of live leases and
// waiters when they end.
func (m *Machine) acknowledge(c Acquire, client slot) {
	if c.Acknowledged <= m.clients.peek(client).acknowledged {
		return
	}
	rec := m.clients.edit(client)
	rec.acknowledged = c.Acknowledged
	rec.until = max(rec.until, m.now.Add(m.window()))
	gone := m.numberedOf(rec, m.placeOf(rec, c.Acknowledged+1))
	m.cutList(rec, 0, len(gone))
	for _, q := range gone {
		if m.requests.peek(q).stage.over() {
			m.oblivions.remove(q)
			m.forget(q)
		}
	}
}

// settle says that nothing is left of a request with these words and terms. Its record stays until no copy can do harm.
func (m *Machine) settle(q slot, s Stage, w words, t *terms) {
	r := m.requests.edit(q)
	r.stage, r.due, r.behind, r.unclaimed = s, t.until, 0, false
	if seeded.Is(seeded.MemoryTooShort) {
		r.due = m.now
	}
	if t.sequence != 0 && t.sequence <= m.clients.peek(r.client).acknowledged {
		m.forget(q)
		return
	}
	over := terms{sequence: t.sequence}
	over.imprint, over.fingerprint = imprintOf(fingerprintIn(&w, t, r.mode))
	r.mode = 0
	m.rewrite(q, &words{id: w.id}, &over)
	m.oblivions.add(q)
}

// forget drops the record of a request that is over and in no calendar.
func (m *Machine) forget(q slot) {
	rec := m.requests.get(q)
	c := m.clients.edit(rec.client)
	c.requests--
	m.tenants.edit(c.tenant).requests--
	c.until = max(c.until, rec.due)
	if n := m.sequenceOf(q); n > c.acknowledged {
		m.unnumber(c, q, n)
	}
	m.byRequest.remove(m.hashOfRequest(q), q)
	m.texts.remove(rec.text())
	m.requests.remove(q)
	if c.requests == 0 {
		m.depart(rec.client)
	}
}

// depart drops a client that has no requests, as soon as its acknowledgement protects nothing any more.
func (m *Machine) depart(client slot) {
	c := m.clients.get(client)
	if c.acknowledged != 0 && c.until >= m.now {
		m.departures.set(client, c.until.Add(1), c.seq)
		return
	}
	m.departures.remove(client)
	m.dropClient(client)
	m.exit(c.tenant)
}

// cancel ends whatever the request has become. One that was never seen is remembered, so that its acquire, which may
// be under way, is refused when it comes.
func (m *Machine) cancel(c Cancel) Result {
	q, ok := m.find(c.Identity, c.Client, c.Request)
	if !ok {
		return m.forestall(c)
	}
	m.prolong(q, c.AsOf)
	r := m.requests.get(q)
	switch r.stage {
	case StageWaiting:
		if seeded.Is(seeded.CancelKeepsWaiter) {
			return Cancelled{Was: RequestWaiting}
		}
		return m.cancelWait(m.termsOf(q).waiter, c.TimedOut)
	case StageHeld:
		holder := m.holderOf(q)
		if c.TimedOut {
			return Cancelled{Was: RequestHeld, Holder: holder}
		}
		m.end(q, EndCancelled)
		m.promote(holder.Resource)
		return Cancelled{Was: RequestHeld, Holder: holder}
	case StageEnded, StageCancelled:
		return Cancelled{Was: RequestEnded}
	case StageForestalled:
		return Cancelled{Was: RequestUnknown}
	}
	panic("lock: a request is in no stage")
}

func (m *Machine) cancelWait(w slot, timedOut bool) Result {
	cause := WaitCancelled
	if timedOut {
		cause = WaitTimedOut
	}
	last := m.waitingOf(w)
	name := m.resourceOf(m.waiters.peek(w).request)
	m.endWait(w, cause)
	m.promote(name)
	return Cancelled{Was: RequestWaiting, Position: last.Position, Blocker: last.Holder}
}

func (m *Machine) forestall(c Cancel) Result {
	if reason := m.outsideTime(c.AsOf); reason != 0 {
		return Refused{Reason: reason}
	}
	client, known := m.findClient(c.Identity, c.Client)
	if known && int(m.clients.peek(client).requests) >= m.config.MaxRequests {
		return Refused{Reason: ReasonTooManyRequests, Count: m.config.MaxRequests}
	}
	if refused := m.admitMemory(c.Identity); refused != nil {
		return refused
	}
	if seeded.Is(seeded.CancelForgotten) {
		return Cancelled{Was: RequestUnknown}
	}
	if !known {
		client = m.newClient(c.Identity, c.Client)
	}
	q := m.record(client, m.texts.spell(&words{id: c.Request}, new(terms)), StageForestalled)
	m.requests.edit(q).due = m.untilFor(c.AsOf)
	m.oblivions.add(q)
	return Cancelled{Was: RequestUnknown}
}
