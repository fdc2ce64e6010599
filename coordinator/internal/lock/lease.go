package lock

import (
	"cmp"
	"slices"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// maxCounter is the largest number of tokens that one incarnation may issue.
const maxCounter = uint64(1)<<lease.CounterBits - 1

// tokenFor is the token of the next lease on a resource: that of the shared period which it joins, or a new one.
func (m *Machine) tokenFor(r *resource) (lease.Token, bool) {
	if r != nil && r.holders() > 0 {
		return m.leases.peek(r.first()).token, true
	}
	return m.issue()
}

// issue makes the next token. Every grant but a join to a live shared period takes one of its own, also when one command causes several grants, so
// that tokens never repeat and never go back, whatever is forgotten of the resources.
func (m *Machine) issue() (lease.Token, bool) {
	if m.counter >= maxCounter {
		return 0, false
	}
	m.counter++
	return m.lastToken(), true
}

func (m *Machine) lastToken() lease.Token {
	return lease.Token(uint64(m.incarnation)<<lease.CounterBits + m.counter)
}

// grant begins a lease. A late one stands for the claim window only, until its holder renews it: the caller that
// waited may be gone.
func (m *Machine) grant(name lease.Resource, c claim, token lease.Token, late bool) slot {
	stands := c.ttl
	if late {
		stands = min(stands, m.config.ClaimWindow)
	}
	if longest := m.rulesFor(name).maxHold; longest != 0 {
		stands = min(stands, longest)
	}
	rec := leaseRecord{
		claim: c, seq: m.nextSeq(), token: token,
		since: m.now, deadline: m.now.Add(stands),
	}
	rec.unclaimed = late
	l := m.leases.add(rec)
	q := m.requests.edit(c.request)
	waited := q.stage == StageWaiting
	q.stage, q.claim = StageHeld, l
	if !waited {
		m.byLease.add(m.hashOfLease(c.request), c.request)
	}
	m.expiries.set(l)
	m.join(name, l)
	m.tenants.edit(m.clientOf(c.request).tenant).leases++
	m.emit(LeaseGranted{Grant: m.grantOf(l), Late: late})
	return l
}

// holds reports whether the lease has not ended; it may be overdue.
func (m *Machine) holds(id lease.ID) bool {
	_, ok := m.findLease(id)
	return ok
}

func (m *Machine) findLease(id lease.ID) (slot, bool) {
	q, ok := m.findClaim(id)
	if !ok {
		return 0, false
	}
	r := m.requests.peek(q)
	return r.claim, r.stage == StageHeld
}

// owned finds the lease for a command of the identity, or says why it is refused.
func (m *Machine) owned(id lease.ID, by lease.Identity) (slot, Result) {
	l, ok := m.findLease(id)
	if !ok {
		return 0, Refused{Reason: ReasonLeaseEnded}
	}
	if m.clientOf(m.leases.get(l).request).identity != by {
		return 0, Refused{Reason: ReasonNotOwner}
	}
	return l, nil
}

func (m *Machine) renew(c Renew) Result {
	l, refused := m.owned(c.Lease, c.Identity)
	if refused != nil {
		return refused
	}
	rules := m.rulesOf(&m.leases.peek(l).claim)
	if refused := rules.checkTTL(c.TTL); refused != nil {
		return refused
	}
	rec := m.leases.edit(l)
	deadline := m.now.Add(cmp.Or(c.TTL, rec.ttl))
	if rules.maxHold != 0 {
		last := max(rec.since.Add(rules.maxHold), rec.deadline)
		if last == rec.deadline && !rec.unclaimed {
			return Refused{Reason: ReasonHoldTooLong, Limit: rules.maxHold}
		}
		deadline = min(deadline, last)
	}
	rec.ttl = cmp.Or(c.TTL, rec.ttl)
	rec.deadline, rec.unclaimed = deadline, false
	m.expiries.set(l)
	return Renewed{m.grantOf(l)}
}

// renewMany renews what it can of a list. It runs first as a whole: a lease of it that has ended stays so.
func (m *Machine) renewMany(c RenewMany) Result {
	results := make([]Result, len(c.Leases))
	for i, id := range c.Leases {
		results[i] = m.renew(Renew{Identity: c.Identity, Lease: id})
	}
	return RenewedMany{results}
}

func (m *Machine) release(c Release) Result {
	l, refused := m.owned(c.Lease, c.Identity)
	if refused != nil {
		return refused
	}
	holder := m.end(l, EndReleased).holder()
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
			broken = append(broken, m.end(l, EndBroken).holder())
		}
		m.reopen(c.Resource)
	}
	m.emit(ResourceBroken{Resource: c.Resource, Token: token, By: c.Identity})
	m.promote(c.Resource)
	return Broken{Token: token, Ended: broken}
}

// end ends a lease and returns what it was. The caller promotes the next waiter.
func (m *Machine) end(l slot, cause EndCause) Grant {
	rec := m.leases.get(l)
	g := m.grantOf(l)
	m.emit(LeaseEnded{Holder: g.holder(), Cause: cause, Request: g.Request})
	m.leave(l)
	m.tenants.edit(m.clientOf(rec.request).tenant).leases--
	m.expiries.remove(l)
	m.byLease.remove(m.hashOfLease(rec.request), rec.request)
	m.leases.remove(l)
	if cause == EndCancelled {
		m.settle(rec.request, StageCancelled)
		return g
	}
	m.settle(rec.request, StageEnded)
	return g
}
