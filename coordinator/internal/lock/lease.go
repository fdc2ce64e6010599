package lock

import (
	"cmp"
	"math"
	"slices"

	"github.com/lychgate/lychgate/chaos/seeded"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// maxCounter is the largest number of tokens that one incarnation may issue.
const maxCounter = uint64(1)<<lease.CounterBits - 1

// tokenFor is the token of the next lease on a resource: that of the shared period which it joins, or a new one.
func (m *Machine) tokenFor(r *resource) (lease.Token, bool) {
	if r != nil && r.holders() > 0 && !seeded.Is(seeded.TokenForJoin) {
		return m.termsOf(r.first()).token, true
	}
	return m.issue()
}

// issue makes the next token. Every grant but a join to a live shared period takes one of its own, also when one command causes several grants, so
// that tokens never repeat and never go back, whatever is forgotten of the resources.
func (m *Machine) issue() (lease.Token, bool) {
	if m.counter >= maxCounter {
		return 0, false
	}
	if !seeded.Is(seeded.TokenPerEntry) || len(m.events) == 0 {
		m.counter++
	}
	return m.lastToken(), true
}

func (m *Machine) lastToken() lease.Token {
	return lease.Token(uint64(m.incarnation)<<lease.CounterBits + m.counter)
}

// begin starts the lease of a request whose terms have its token, TTL and instant, and tells the grant its deadline. A late
// one stands for the claim window only, until its holder renews it: the caller that waited may be gone.
func (m *Machine) begin(l slot, g *Grant, late bool) {
	stands := g.TTL
	if late {
		stands = min(stands, m.config.ClaimWindow)
	}
	if longest := m.rulesFor(g.Resource).maxHold; longest != 0 {
		stands = min(stands, longest)
	}
	m.order(l, m.nextSeq())
	r := m.requests.edit(l)
	r.due, r.unclaimed = m.now.Add(stands), late
	waited := r.stage == StageWaiting
	r.stage = StageHeld
	if !waited {
		m.byLease.add(m.hashOfLease(l), l)
	}
	m.held++
	m.expiries.add(l)
	m.join(g.Resource, l)
	m.tenants.edit(m.clientOf(l).tenant).leases++
	g.Deadline = r.due
	m.emit(LeaseGranted{Grant: *g, Late: late})
}

// order gives a lease its sequence number.
func (m *Machine) order(l slot, seq uint64) {
	r := m.requests.edit(l)
	behind := seq - r.seq
	if behind <= math.MaxUint32 {
		r.behind = uint32(behind)
		return
	}
	t := m.termsOf(l)
	t.behind = behind
	m.respell(l, &t)
}

// turnOf is when a lease expires, or a request that is over is forgotten, and its place among those of the same instant.
func (m *Machine) turnOf(q slot) timer {
	r := m.requests.peek(q)
	if r.stage == StageHeld {
		if seeded.Is(seeded.ExpiryUnconditional) {
			t := m.termsOf(q)
			return timer{t.since.Add(t.ttl), leaseSeq(r, &m.texts), q}
		}
		return timer{r.due, leaseSeq(r, &m.texts), q}
	}
	return timer{r.due, r.seq, q}
}

// leaseSeq is the sequence number of a lease's grant. It orders leases that have the same deadline.
func (m *Machine) leaseSeq(l slot) uint64 { return leaseSeq(m.requests.peek(l), &m.texts) }

func leaseSeq(r *requestRecord, t *texts) uint64 {
	if r.behind != 0 {
		return r.seq + uint64(r.behind)
	}
	return r.seq + t.terms(r.text()).behind
}

// holds reports whether the lease has not ended; it may be overdue.
func (m *Machine) holds(id lease.ID) bool {
	_, ok := m.findLease(id)
	return ok
}

func (m *Machine) findLease(id lease.ID) (slot, bool) {
	q, ok := m.findClaim(id)
	return q, ok && m.requests.peek(q).stage == StageHeld
}

// owned finds the lease for a command of the identity, or says why it is refused.
func (m *Machine) owned(id lease.ID, by lease.Identity) (slot, Result) {
	l, ok := m.findLease(id)
	if !ok && seeded.Is(seeded.ReleaseWithoutMatch) {
		l, ok = m.anyLease(by)
	}
	if !ok {
		return 0, Refused{Reason: ReasonLeaseEnded}
	}
	if m.clients.peek(m.requests.peek(l).client).identity != by && !seeded.Is(seeded.ReleaseByAnother) {
		return 0, Refused{Reason: ReasonNotOwner}
	}
	return l, nil
}

func (m *Machine) renew(c Renew) Result {
	l, _, refused := m.extend(c)
	if refused != nil {
		return refused
	}
	return Renewed{m.grantOf(l)}
}

// extend moves a lease's deadline, if its owner asks for it and its policy allows it.
func (m *Machine) extend(c Renew) (slot, Renewal, Result) {
	l, refused := m.owned(c.Lease, c.Identity)
	if refused != nil {
		return 0, Renewal{}, refused
	}
	rules := m.rulesOf(l)
	if refused := rules.checkTTL(c.TTL); refused != nil {
		return 0, Renewal{}, refused
	}
	t, r := m.termsOf(l), m.requests.peek(l)
	ttl := cmp.Or(c.TTL, t.ttl)
	deadline := m.now.Add(ttl)
	if rules.maxHold != 0 {
		last := max(t.since.Add(rules.maxHold), r.due)
		if last == r.due && !r.unclaimed {
			return 0, Renewal{}, Refused{Reason: ReasonHoldTooLong, Limit: rules.maxHold}
		}
		deadline = min(deadline, last)
	}
	if ttl != t.ttl {
		t.imprint, t.fingerprint = imprintOf(m.fingerprintOf(l))
		t.ttl = ttl
		m.respell(l, &t)
	}
	m.expiries.remove(l)
	rec := m.requests.edit(l)
	rec.due, rec.unclaimed = deadline, false
	m.expiries.add(l)
	return l, Renewal{Token: t.token, Deadline: deadline}, nil
}

// renewMany renews what it can of a list. It runs first as a whole: a lease of it that has ended stays so.
func (m *Machine) renewMany(c RenewMany) Result {
	many := RenewedMany{Renewals: make([]Renewal, len(c.Leases))}
	if m.describes {
		many.Grants = make([]Grant, len(c.Leases))
	}
	for i, id := range c.Leases {
		l, renewal, result := m.extend(Renew{Identity: c.Identity, Lease: id})
		if result != nil {
			many.Renewals[i].Refused = new(result.(Refused))
			continue
		}
		many.Renewals[i] = renewal
		if m.describes {
			many.Grants[i] = m.grantOf(l)
		}
	}
	return many
}

func (m *Machine) release(c Release) Result {
	l, refused := m.owned(c.Lease, c.Identity)
	if refused != nil {
		return refused
	}
	holder := m.end(l, EndReleased)
	m.promote(holder.Resource)
	return Released{holder}
}

// breakResource ends whatever leases the resource has and issues a token to nobody. A free resource can be broken
// too: its last holder's ticket is good until something newer reaches the store.
func (m *Machine) breakResource(c Break) Result {
	token, ok := m.issue()
	if !ok {
		return Refused{Reason: ReasonTokensExhausted}
	}
	var broken []Holder
	if r := m.lookUp(c.Resource); r != nil {
		for _, l := range slices.Collect(r.all()) {
			broken = append(broken, m.end(l, EndBroken))
		}
		m.reopen(c.Resource)
	}
	m.emit(ResourceBroken{Resource: c.Resource, Token: token, By: c.Identity})
	m.promote(c.Resource)
	return Broken{Token: token, Ended: broken}
}

// end ends a lease and returns what it was. The caller promotes the next waiter.
func (m *Machine) end(l slot, cause EndCause) Holder {
	t := m.termsOf(l)
	g := m.describe(l, &t)
	w := words{resource: g.Resource, id: g.Request}
	if m.texts.owned(m.requests.peek(l).text()) {
		w = m.wordsOf(l)
	}
	holder := g.holder()
	m.emit(LeaseEnded{Holder: holder, Cause: cause, Request: g.Request})
	m.leave(g.Resource, l)
	m.tenants.edit(m.clientOf(l).tenant).leases--
	m.expiries.remove(l)
	m.byLease.remove(m.hashOfLease(l), l)
	m.held--
	stage := StageEnded
	if cause == EndCancelled {
		stage = StageCancelled
	}
	m.settle(l, stage, w, &t)
	return holder
}
