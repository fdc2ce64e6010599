package lock

import (
	"fmt"
	"slices"
)

// Check compares what the machine derives with what it derives it from, and looks for a waiter that should have
// been granted.
func (m *Machine) Check() error {
	for _, check := range []func() error{m.checkClients, m.checkRequests, m.checkClaims, m.checkResources} {
		if err := check(); err != nil {
			return err
		}
	}
	if over, idle := m.oblivions.len(), m.departures.len(); over > m.requests.count || idle > m.clients.count {
		return fmt.Errorf("%d requests and %d clients are timed, of %d and %d", over, idle, m.requests.count, m.clients.count)
	}
	return nil
}

func (m *Machine) checkClients() error {
	if len(m.byClient) != m.clients.count {
		return fmt.Errorf("%d clients are indexed, of %d", len(m.byClient), m.clients.count)
	}
	for key, i := range m.byClient {
		c := m.clients.get(i)
		if c.identity != key.identity || c.name != key.name {
			return fmt.Errorf("client %v is indexed as %v", c, key)
		}
		n := 0
		for _, q := range m.requests.slots() {
			if m.requests.get(q).client == i {
				n++
			}
		}
		if n != c.requests || n > max(m.config.MaxRequests, 0) {
			return fmt.Errorf("client %q has %d requests and counts %d, %d are allowed", c.name, n, c.requests, m.config.MaxRequests)
		}
		for _, n := range c.numbered {
			if r := m.requests.get(n.request); r.client != i || r.sequence != n.sequence || n.sequence <= c.acknowledged {
				return fmt.Errorf("client %q has a wrong number %v", c.name, n)
			}
		}
	}
	return nil
}

func (m *Machine) checkRequests() error {
	if len(m.byRequest) != m.requests.count {
		return fmt.Errorf("%d requests are indexed, of %d", len(m.byRequest), m.requests.count)
	}
	over := 0
	for key, q := range m.byRequest {
		r := m.requests.get(q)
		if r.id != key.id || r.client != key.client {
			return fmt.Errorf("request %v is indexed as %v", r, key)
		}
		if r.stage.over() {
			over++
		}
	}
	if over != m.oblivions.len() {
		return fmt.Errorf("%d requests are over, %d timed", over, m.oblivions.len())
	}
	return nil
}

func (m *Machine) checkClaims() error {
	if n := m.leases.count + m.waiters.count; len(m.byLease) != n {
		return fmt.Errorf("%d lease ids are indexed, of %d", len(m.byLease), n)
	}
	if m.expiries.len() != m.leases.count || m.endings.len() != m.waiters.count || len(m.awaits) != m.waiters.count {
		return fmt.Errorf("%d and %d timers and %d claims for %d leases and %d waiters",
			m.expiries.len(), m.endings.len(), len(m.awaits), m.leases.count, m.waiters.count)
	}
	for id, q := range m.byLease {
		r := m.requests.get(q)
		var c claim
		switch r.stage {
		case StageWaiting:
			c = m.waiters.get(r.claim).claim
		case StageHeld:
			c = m.leases.get(r.claim).claim
		case StageEnded, StageCancelled, StageForestalled:
			return fmt.Errorf("request %q is over and has a lease id", r.id)
		}
		if c.id != id || c.request != q {
			return fmt.Errorf("request %q has the claim %v", r.id, c)
		}
	}
	return nil
}

func (m *Machine) checkResources() error {
	leases, waiters := 0, 0
	for name, r := range m.resources {
		leases += len(r.holders)
		waiters += len(r.queue)
		if len(r.holders)+len(r.queue) == 0 {
			return fmt.Errorf("resource %q is kept for nobody", name)
		}
		if !slices.IsSortedFunc(r.queue, func(a, b slot) int {
			return int(m.waiters.get(a).seq) - int(m.waiters.get(b).seq)
		}) {
			return fmt.Errorf("the queue of %q is not in order", name)
		}
		if len(r.queue) > m.config.MaxWaiters {
			return fmt.Errorf("resource %q has %d waiters", name, len(r.queue))
		}
		if w, ok := m.eligible(r); ok && len(r.holders) == 0 && m.counter < maxCounter {
			return fmt.Errorf("resource %q is free and %v is not granted", name, m.waiterOf(w))
		}
	}
	if leases != m.leases.count || waiters != m.waiters.count {
		return fmt.Errorf("resources have %d leases and %d waiters, of %d and %d", leases, waiters, m.leases.count, m.waiters.count)
	}
	return nil
}

// SpendTokens leaves n tokens of the incarnation.
func (m *Machine) SpendTokens(n uint64) { m.counter = maxCounter - n }
