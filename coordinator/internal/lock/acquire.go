package lock

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"slices"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// acquire grants, queues, refuses, or reports what an earlier copy of the request has become.
func (m *Machine) acquire(c Acquire) Result {
	m.acknowledge(c)
	q, known := m.find(c.Identity, c.Client, c.Request)
	if known && m.requests.get(q).stage == StageWaiting {
		return m.retry(q, c)
	}
	if reason := m.outsideWindow(c); reason != 0 {
		return Refused{Reason: reason}
	}
	if known {
		return m.retry(q, c)
	}
	if refused := m.admit(c); refused != nil {
		return refused
	}
	if m.mayTakeNow(c.Resource) {
		return m.acquireNow(c)
	}
	return m.enqueue(c)
}

// retry answers a request that is known with what it has become, re-attaching it if it waits.
func (m *Machine) retry(q slot, c Acquire) Result {
	r := m.requests.get(q)
	if r.stage != StageForestalled && r.fingerprint != fingerprint(c) {
		return Refused{Reason: ReasonRequestMismatch}
	}
	m.prolong(q, c.AsOf)
	switch r.stage {
	case StageWaiting:
		return m.attach(r.claim, c.Call)
	case StageHeld:
		return Granted{Grant: m.grantOf(r.claim), Retried: true}
	case StageEnded:
		return Refused{Reason: ReasonRequestEnded}
	case StageCancelled, StageForestalled:
		return Refused{Reason: ReasonRequestCancelled}
	}
	panic("lock: a request is in no stage")
}

// admit checks a new request; nil means that nothing but the lock itself is in its way.
func (m *Machine) admit(c Acquire) Result {
	if c.Mode != lease.Exclusive {
		return Refused{Reason: ReasonModeNotAllowed}
	}
	if refused := m.checkTTL(c.TTL); refused != nil {
		return refused
	}
	if c.Wait > m.config.MaxWait {
		return Refused{Reason: ReasonWaitTooLong, Limit: m.config.MaxWait}
	}
	if _, taken := m.byLease[c.Lease]; taken || c.Lease.IsZero() {
		return Refused{Reason: ReasonLeaseIDTaken}
	}
	client, known := m.byClient[clientKey{c.Identity, c.Client}]
	if !known {
		return nil
	}
	if holder, has := m.hasAlready(client, c.Resource); has {
		return Refused{Reason: ReasonAlreadyHeld, Holder: holder}
	}
	if m.clients.get(client).requests >= m.config.MaxRequests {
		return Refused{Reason: ReasonTooManyRequests, Count: m.config.MaxRequests}
	}
	return nil
}

// hasAlready reports whether the client holds or awaits the resource.
func (m *Machine) hasAlready(client slot, name lease.Resource) (Holder, bool) {
	if _, waits := m.awaits[awaitKey{client, name}]; waits {
		c := m.clients.get(client)
		return Holder{Resource: name, Identity: c.identity, Client: c.name}, true
	}
	r := m.resources[name]
	if r == nil {
		return Holder{}, false
	}
	i := slices.IndexFunc(r.holders, func(l slot) bool {
		return m.requests.get(m.leases.get(l).request).client == client
	})
	if i < 0 {
		return Holder{}, false
	}
	return m.holderOf(r.holders[i]), true
}

// mayTakeNow reports whether a newcomer is granted at once: nobody holds the resource, and nobody in the queue can
// be granted. The unattached are passed over, except while a new leader keeps free resources for the heads.
func (m *Machine) mayTakeNow(name lease.Resource) bool {
	r := m.resources[name]
	if r == nil {
		return true
	}
	if len(r.holders) > 0 {
		return false
	}
	if len(r.queue) == 0 {
		return true
	}
	_, eligible := m.eligible(r)
	return !eligible && m.now >= m.headStart
}

func (m *Machine) acquireNow(c Acquire) Result {
	token, ok := m.issue()
	if !ok {
		return Refused{Reason: ReasonTokensExhausted}
	}
	q := m.remember(c, StageHeld)
	l := m.grant(m.claimOf(c, q), token, false)
	return Granted{Grant: m.grantOf(l)}
}

// enqueue puts a new request at the end of the queue, or refuses it if it does not wait.
func (m *Machine) enqueue(c Acquire) Result {
	r := m.resources[c.Resource]
	if c.Wait <= 0 {
		return Refused{Reason: ReasonHeld, Holder: m.firstOf(r)}
	}
	if len(r.queue) >= m.config.MaxWaiters {
		return Refused{Reason: ReasonTooManyWaiters, Count: m.config.MaxWaiters}
	}
	w := m.await(c, m.remember(c, StageWaiting))
	return m.waitingOf(w)
}

func (m *Machine) claimOf(c Acquire, q slot) claim {
	ttl := cmp.Or(c.TTL, m.config.DefaultTTL)
	return claim{resource: c.Resource, id: c.Lease, owner: c.Owner, ttl: ttl, request: q, mode: c.Mode}
}

// fingerprint condenses the parameters that every copy of a request must repeat: resource, mode, TTL and owner. The
// wait may differ, and so may what the nodes add. It is FNV-1a, fixed for good because it is state; a client that
// forges a collision deceives nobody but itself, since requests are scoped by client.
func fingerprint(c Acquire) uint64 {
	b := make([]byte, 0, 512) // of a constant size, so that it stays on the stack
	text := func(s string) {
		b = binary.LittleEndian.AppendUint64(b, uint64(len(s)))
		b = append(b, s...)
	}
	text(string(c.Resource))
	text(c.Owner)
	b = binary.LittleEndian.AppendUint64(b, uint64(c.Mode))
	b = binary.LittleEndian.AppendUint64(b, uint64(c.TTL))
	h := fnv.New64a()
	h.Write(b)
	return h.Sum64()
}
