package lock

import (
	"time"

	"github.com/lychgate/lychgate/chaos/seeded"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// acquire grants, queues, refuses, or reports what an earlier copy of the request has become. In all that follows, by is the
// client's slot, or none if it is not known yet.
func (m *Machine) acquire(c Acquire) Result {
	by := none
	if client, ok := m.findClient(c.Identity, c.Client); ok {
		by = client
		m.acknowledge(c, by) // the client stays, for what it acknowledged
	}
	q, known := m.findRequest(by, c.Request)
	if known && m.requests.peek(q).stage == StageWaiting {
		return m.retry(q, c)
	}
	if reason := m.outsideWindow(c, by); reason != 0 {
		return Refused{Reason: reason}
	}
	if known {
		return m.retry(q, c)
	}
	r := m.lookUp(c.Resource)
	if refused := m.admit(c, by, r); refused != nil {
		return refused
	}
	if m.mayTakeNow(r, c.Mode) {
		return m.acquireNow(c, by, r)
	}
	return m.enqueue(c, by, r)
}

// retry answers a request that is known with what it has become, re-attaching it if it waits.
func (m *Machine) retry(q slot, c Acquire) Result {
	r := m.requests.get(q)
	if r.stage != StageForestalled && m.fingerprintOf(q) != fingerprint(c) {
		return Refused{Reason: ReasonRequestMismatch}
	}
	m.prolong(q, c.AsOf)
	switch r.stage {
	case StageWaiting:
		return m.attach(m.termsOf(q).waiter, c.Call)
	case StageHeld:
		return Granted{Grant: m.grantOf(q), Retried: true}
	case StageEnded:
		if seeded.Is(seeded.DeadLeaseReported) {
			return Granted{Grant: Grant{Resource: c.Resource, Lease: c.Lease, Token: m.lastToken(), Mode: c.Mode}, Retried: true}
		}
		return Refused{Reason: ReasonRequestEnded}
	case StageCancelled, StageForestalled:
		return Refused{Reason: ReasonRequestCancelled}
	}
	panic("lock: a request is in no stage")
}

// admit checks a new request; nil means that nothing but the lock itself is in its way.
func (m *Machine) admit(c Acquire, by slot, r *resource) Result {
	rules := m.rulesFor(c.Resource)
	if !rules.allows(c.Mode) || c.Mode == lease.Shared && m.version < 2 {
		return Refused{Reason: ReasonModeNotAllowed}
	}
	if refused := rules.checkTTL(c.TTL); refused != nil {
		return refused
	}
	if c.Wait > m.config.MaxWait {
		return Refused{Reason: ReasonWaitTooLong, Limit: m.config.MaxWait}
	}
	if _, taken := m.findClaim(c.Lease); taken || c.Lease.IsZero() {
		return Refused{Reason: ReasonLeaseIDTaken}
	}
	if refused := m.admitClient(c, by, r); refused != nil {
		return refused
	}
	return m.admitTenant(c.Identity)
}

func (m *Machine) admitClient(c Acquire, by slot, r *resource) Result {
	if by == none {
		return nil
	}
	if holder, has := m.hasAlready(by, c.Resource, r); has {
		return Refused{Reason: ReasonAlreadyHeld, Holder: holder}
	}
	if int(m.clients.peek(by).requests) >= m.config.MaxRequests {
		return Refused{Reason: ReasonTooManyRequests, Count: m.config.MaxRequests}
	}
	return nil
}

// hasAlready reports whether the client holds or awaits the resource.
func (m *Machine) hasAlready(client slot, name lease.Resource, r *resource) (Holder, bool) {
	if _, waits := m.awaits[awaitKey{client, name}]; waits {
		c := m.clients.peek(client)
		return Holder{Resource: name, Identity: c.identity, Client: m.nameOf(client)}, true
	}
	if r == nil {
		return Holder{}, false
	}
	l, holds := m.leaseOf(r, client)
	if !holds {
		return Holder{}, false
	}
	return m.holderOf(l), true
}

// mayTakeNow reports whether a newcomer is granted at once: it can stand beside those who hold the resource, and nobody
// in the queue is there. The unattached are passed over, except while a new leader keeps resources for the heads.
func (m *Machine) mayTakeNow(r *resource, mode lease.Mode) bool {
	switch {
	case r == nil:
		return true
	case !m.sharesWith(r, mode) || !m.isOpen(r, mode):
		return false
	}
	if seeded.Is(seeded.SharedPassesExclusive) && mode == lease.Shared {
		return true
	}
	return len(r.queue) == 0 || r.attached == 0 && m.now >= m.headStart
}

func (m *Machine) acquireNow(c Acquire, by slot, r *resource) Result {
	token, ok := m.tokenFor(r)
	if !ok {
		return Refused{Reason: ReasonTokensExhausted}
	}
	t := m.termsFor(c)
	t.waiter, t.token, t.since = none, token, m.now
	l := m.remember(c, by, StageHeld, &t)
	g := Grant{
		Resource: c.Resource, Lease: c.Lease, Token: token, Mode: c.Mode,
		Identity: c.Identity, Client: c.Client, Request: c.Request, TTL: t.ttl, Since: t.since,
	}
	m.begin(l, &g, false)
	return Granted{Grant: g}
}

// enqueue puts a new request at the end of the queue, or refuses it if it does not wait.
func (m *Machine) enqueue(c Acquire, by slot, r *resource) Result {
	if c.Wait <= 0 {
		return m.refuseNow(r, c.Mode)
	}
	if refused := m.admitWaiter(r, c); refused != nil {
		return refused
	}
	if c.Call != 0 {
		if cycle := m.cycleOf(c); cycle != nil {
			return Refused{Reason: ReasonDeadlock, Cycle: cycle}
		}
	}
	return m.waitingOf(m.await(c, by))
}

// refuseNow says what is in the way of a request that does not wait.
func (m *Machine) refuseNow(r *resource, mode lease.Mode) Result {
	if !m.isOpen(r, mode) {
		return Refused{Reason: ReasonLockDelayed, RetryAfter: m.delays.peek(r.delay).until.Sub(m.now)}
	}
	return Refused{Reason: ReasonHeld, Holder: m.firstOf(r)}
}

// termsFor is what a new request asks for.
func (m *Machine) termsFor(c Acquire) terms {
	t := terms{
		claims: true, lease: c.Lease, ttl: c.TTL, until: m.untilFor(c.AsOf), sequence: c.Sequence, imprint: imprintTTL,
	}
	if c.TTL == 0 {
		t.ttl, t.imprint = m.rulesFor(c.Resource).defaultTTL, imprintNoTTL
	}
	return t
}

// fingerprint condenses the parameters that every copy of a request must repeat: resource, mode, TTL and owner. The
// wait may differ, and so may what the nodes add. It is FNV-1a, fixed for good because it is state; a client that
// forges a collision deceives nobody but itself, since requests are scoped by client.
func fingerprint(c Acquire) uint64 { return fingerprintOf(c.Resource, c.Owner, c.Mode, c.TTL) }

func fingerprintOf(resource lease.Resource, owner string, mode lease.Mode, ttl time.Duration) uint64 {
	h := fnvBasis.text(string(resource)).text(owner)
	return uint64(h.number(uint64(mode)).number(uint64(ttl)))
}

// fnv is a hash by FNV-1a of what was added so far.
type fnv uint64

const (
	fnvBasis fnv = 0xcbf29ce484222325
	fnvPrime fnv = 0x100000001b3
)

func (h fnv) text(s string) fnv {
	h = h.number(uint64(len(s)))
	for i := range len(s) {
		h = (h ^ fnv(s[i])) * fnvPrime
	}
	return h
}

// number adds eight bytes, the lowest first.
func (h fnv) number(n uint64) fnv {
	for range 8 {
		h = (h ^ fnv(n&0xff)) * fnvPrime
		n >>= 8
	}
	return h
}
