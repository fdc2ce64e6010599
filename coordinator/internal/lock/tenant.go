package lock

import "github.com/lychgate/lychgate/coordinator/lease"

// tenantRecord counts what a tenant has. It is derived, and there while the tenant has clients.
type tenantRecord struct {
	name     string
	latest   lease.Identity // of its clients: those that are the same share one string
	clients  int
	requests int
	leases   int
	waiters  int
}

func (t tenantRecord) live() bool { return t.clients > 0 }

// enter counts a new client of a tenant.
func (m *Machine) enter(by lease.Identity) slot {
	name := by.Tenant()
	t, ok := m.byTenant[name]
	if !ok {
		t = m.tenants.add(tenantRecord{name: name})
		m.byTenant[name] = t
	}
	rec := m.tenants.edit(t)
	rec.clients++
	if rec.latest != by {
		rec.latest = by
	}
	return t
}

// exit counts a client that is gone.
func (m *Machine) exit(t slot) {
	rec := m.tenants.edit(t)
	rec.clients--
	if rec.clients == 0 {
		delete(m.byTenant, rec.name)
		m.tenants.remove(t)
	}
}

func (m *Machine) tenantOf(by lease.Identity) tenantRecord {
	t, ok := m.byTenant[by.Tenant()]
	if !ok {
		return tenantRecord{}
	}
	return m.tenants.get(t)
}

// admitMemory checks whether one more request of a tenant may be remembered, whatever its clients are called.
func (m *Machine) admitMemory(by lease.Identity) Result {
	most := int64(m.config.MaxTenantRequests)
	if p := m.tenantPolicy(by); p != nil && p.policy.MaxRequests != nil {
		most = *p.policy.MaxRequests
	}
	if most != 0 && int64(m.tenantOf(by).requests) >= most {
		return Refused{Reason: ReasonTooManyTenantRequests, Count: int(most)}
	}
	return nil
}

// admitTenant checks a new request against its tenant's policy and takes one acquire out of its bucket.
func (m *Machine) admitTenant(by lease.Identity) Result {
	if refused := m.admitMemory(by); refused != nil {
		return refused
	}
	p := m.tenantPolicy(by)
	if p == nil {
		return nil
	}
	if most := p.policy.MaxLeases; most != nil {
		if t := m.tenantOf(by); int64(t.leases+t.waiters) >= *most {
			return Refused{Reason: ReasonTooManyLeases, Count: int(*most)}
		}
	}
	if p.policy.AcquireRate == nil {
		return nil
	}
	if wait := p.take(m.now); wait > 0 {
		return Refused{Reason: ReasonRateLimited, Count: int(*p.policy.AcquireRate), RetryAfter: wait}
	}
	return nil
}

// admitWaiter checks whether one more may wait on a resource, and of its tenant.
func (m *Machine) admitWaiter(r *resource, c Acquire) Result {
	if most := m.rulesFor(c.Resource).maxWaiters; len(r.queue) >= most {
		return Refused{Reason: ReasonTooManyWaiters, Count: most}
	}
	if p := m.tenantPolicy(c.Identity); p != nil && p.policy.MaxWaiters != nil {
		if most := *p.policy.MaxWaiters; m.tenantOf(c.Identity).waiters >= most {
			return Refused{Reason: ReasonTooManyWaiters, Count: most}
		}
	}
	return nil
}
