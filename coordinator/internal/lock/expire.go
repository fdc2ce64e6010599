package lock

import (
	"cmp"
	"slices"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// expire ends what is overdue: of leases the first Config.MaxExpiries in (deadline, sequence) order and all those
// of the resources that the entry's commands touch; of waiters likewise.
func (m *Machine) expire(commands []Command) {
	if !m.initialised {
		return
	}
	m.expireFirst(m.config.MaxExpiries)
	m.expireTouched(commands)
	m.endWaits(m.config.MaxExpiries)
	m.endTouchedWaits(commands)
	m.endHeadStart()
	m.openDue(m.config.MaxExpiries)
	m.dropKeys()
	// More than an entry can add, so that the memory of requests does not grow behind the limit.
	m.forgetOld(m.config.MaxExpiries + 2*len(commands))
}

func (m *Machine) expireFirst(limit int) {
	var room [fetched]slot
	for limit > 0 {
		overdue := m.expiries.take(m.now, room[:min(limit, len(room))])
		if len(overdue) == 0 {
			return
		}
		_ = m.fetch(overdue)
		for _, l := range overdue {
			m.expireLease(l)
		}
		limit -= len(overdue)
	}
}

// expireTouched ends the overdue leases that the limit left but the commands are about to ask for. They all come
// after those ended before, so the whole entry keeps the order.
func (m *Machine) expireTouched(commands []Command) {
	if !m.expiries.due(m.now) {
		return
	}
	var overdue []slot
	seen := make(map[lease.Resource]struct{}) // a crowd is looked through once
	for _, c := range commands {
		name := m.touches(c)
		r := m.lookUp(name)
		if _, again := seen[name]; r == nil || again {
			continue
		}
		seen[name] = struct{}{}
		for l := range r.all() {
			if m.requests.peek(l).due <= m.now {
				overdue = append(overdue, l)
			}
		}
	}
	slices.SortFunc(overdue, func(a, b slot) int {
		return cmp.Or(cmp.Compare(m.requests.peek(a).due, m.requests.peek(b).due), cmp.Compare(m.leaseSeq(a), m.leaseSeq(b)))
	})
	for _, l := range overdue {
		m.expireLease(l)
	}
}

// touches names the resource that a command is about, "" if it is about none.
func (m *Machine) touches(c Command) lease.Resource {
	switch c := c.(type) {
	case Acquire:
		return c.Resource
	case Break:
		return c.Resource
	case Renew:
		return m.resourceOfLease(c.Lease)
	case Release:
		return m.resourceOfLease(c.Lease)
	case Cancel:
		return m.resourceOfRequest(m.find(c.Identity, c.Client, c.Request))
	case Detach:
		return m.resourceOfRequest(m.find(c.Identity, c.Client, c.Request))
	case KillWait:
		return m.resourceOfRequest(m.find(c.Identity, c.Client, c.Request))
	case Init, NewLeader, PutKey, Tick, RenewMany, PutPolicy, DeletePolicy, RetireKey, SetVersion, PutMember, DropMember, Recover:
	}
	return ""
}

func (m *Machine) resourceOfLease(id lease.ID) lease.Resource {
	q, ok := m.findClaim(id)
	return m.resourceOfRequest(q, ok)
}

func (m *Machine) resourceOfRequest(q slot, ok bool) lease.Resource {
	if !ok {
		return ""
	}
	return m.texts.words(m.requests.peek(q).text()).resource
}

func (m *Machine) expireLease(l slot) {
	cause := EndExpired
	if m.requests.peek(l).unclaimed {
		cause = EndUnclaimed
	}
	ended := m.end(l, cause)
	if cause == EndExpired {
		m.shut(ended.Resource, ended.Mode)
	}
	m.promote(ended.Resource)
}

// endWaits ends the first waits whose time is up. A resource that was kept for one of them goes to the next.
func (m *Machine) endWaits(limit int) {
	for range limit {
		w, due := m.endings.due(m.now)
		if !due {
			return
		}
		name := m.resourceOf(m.waiters.peek(w).request)
		m.giveUp(w)
		m.promote(name)
	}
}

// endTouchedWaits ends the waits that the limit left but whose resource the commands are about.
func (m *Machine) endTouchedWaits(commands []Command) {
	for _, c := range commands {
		if _, due := m.endings.due(m.now); !due {
			return
		}
		name := m.touches(c)
		if r := m.lookUp(name); r != nil {
			m.dropOverdue(r)
			m.promote(name)
		}
	}
}

// endHeadStart hands out what was kept for heads whose callers did not come back in time.
func (m *Machine) endHeadStart() {
	if m.headStart == 0 || m.now < m.headStart {
		return
	}
	m.headStart = 0
	for _, w := range m.waitersInOrder() {
		if rec := m.waiters.peek(w); rec.live() {
			m.promote(m.resourceOf(rec.request))
		}
	}
}

// forgetOld drops the records of requests, and the clients, whose time is up.
func (m *Machine) forgetOld(limit int) {
	m.forgetFirst(limit)
	for range limit {
		c, due := m.departures.due(m.now)
		if !due {
			break
		}
		m.depart(c)
	}
}

func (m *Machine) forgetFirst(limit int) {
	var room [fetched]slot
	for limit > 0 {
		old := m.oblivions.take(m.now-1, room[:min(limit, len(room))])
		if len(old) == 0 {
			return
		}
		for _, q := range old {
			m.oblivions.remove(q)
			m.forget(q)
		}
		limit -= len(old)
	}
}
