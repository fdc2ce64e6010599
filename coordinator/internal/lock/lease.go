package lock

import (
	"slices"
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// maxCounter is the largest number of tokens that one incarnation may issue.
const maxCounter = uint64(1)<<lease.CounterBits - 1

// issue makes the next token. Every grant takes one of its own, also when one command causes several grants, so
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
func (m *Machine) grant(c claim, token lease.Token, late bool) slot {
	stands := c.ttl
	if late {
		stands = min(stands, m.config.ClaimWindow)
	}
	rec := leaseRecord{
		claim: c, seq: m.nextSeq(), token: token,
		since: m.now, deadline: m.now.Add(stands), unclaimed: late,
	}
	l := m.leases.add(rec)
	q := m.requests.edit(c.request)
	q.stage, q.claim = StageHeld, l
	m.byLease[c.id] = c.request
	m.expiries.set(l, rec.deadline, rec.seq)
	r := m.resource(c.resource)
	r.holders = append(r.holders, l)
	m.emit(LeaseGranted{Grant: m.grantOf(l), Late: late})
	return l
}

// holds reports whether the lease has not ended; it may be overdue.
func (m *Machine) holds(id lease.ID) bool {
	_, ok := m.findLease(id)
	return ok
}

func (m *Machine) findLease(id lease.ID) (slot, bool) {
	q, ok := m.byLease[id]
	if !ok {
		return 0, false
	}
	r := m.requests.get(q)
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
	if refused := m.checkTTL(c.TTL); refused != nil {
		return refused
	}
	rec := m.leases.edit(l)
	if c.TTL != 0 {
		rec.ttl = c.TTL
	}
	rec.deadline, rec.unclaimed = m.now.Add(rec.ttl), false
	m.expiries.set(l, rec.deadline, rec.seq)
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

// checkTTL refuses a TTL outside of the bounds; 0 stands for a default and is always good.
func (m *Machine) checkTTL(ttl time.Duration) Result {
	switch {
	case ttl == 0:
		return nil
	case ttl < m.config.MinTTL:
		return Refused{Reason: ReasonTTLTooShort, Limit: m.config.MinTTL}
	case ttl > m.config.MaxTTL:
		return Refused{Reason: ReasonTTLTooLong, Limit: m.config.MaxTTL}
	}
	return nil
}

func (m *Machine) release(c Release) Result {
	l, refused := m.owned(c.Lease, c.Identity)
	if refused != nil {
		return refused
	}
	holder := m.holderOf(l)
	m.end(l, EndReleased)
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
	if r := m.resources[c.Resource]; r != nil {
		for _, l := range slices.Clone(r.holders) {
			broken = append(broken, m.holderOf(l))
			m.end(l, EndBroken)
		}
	}
	m.emit(ResourceBroken{Resource: c.Resource, Token: token, By: c.Identity})
	m.promote(c.Resource)
	return Broken{Token: token, Ended: broken}
}

// end ends a lease. The caller promotes the next waiter.
func (m *Machine) end(l slot, cause EndCause) {
	rec := m.leases.get(l)
	m.emit(LeaseEnded{Holder: m.holderOf(l), Cause: cause, Request: m.requests.get(rec.request).id})
	r := m.resources[rec.resource]
	r.holders = slices.DeleteFunc(r.holders, func(h slot) bool { return h == l })
	m.tidy(rec.resource, r)
	m.expiries.remove(l)
	m.leases.remove(l)
	delete(m.byLease, rec.id)
	if cause == EndCancelled {
		m.settle(rec.request, StageCancelled)
		return
	}
	m.settle(rec.request, StageEnded)
}

// resource returns the entry of a name, made if need be.
func (m *Machine) resource(name lease.Resource) *resource {
	r := m.resources[name]
	if r == nil {
		r = new(resource)
		m.resources[name] = r
	}
	return r
}

// tidy drops the entry of a resource that nobody holds or awaits.
func (m *Machine) tidy(name lease.Resource, r *resource) {
	if len(r.holders) == 0 && len(r.queue) == 0 {
		delete(m.resources, name)
	}
}
