package lock

import (
	"github.com/lychgate/lychgate/chaos/seeded"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// A lock-delay. After a lease expired, not after it was released, a policy may keep the resource closed: its holder may
// live on without knowing, and the store of that resource cannot check tokens. An expired shared lease closes it to
// exclusive ones alone. Waiters wait it out.

// delayRecord is a resource that is closed.
type delayRecord struct {
	resource lease.Resource
	seq      uint64
	until    LeaseTime
	mode     lease.Mode // of the lease that expired
}

func (d delayRecord) live() bool { return d.seq != 0 }

// shut closes a resource on which a lease of the mode expired, if its policy says so.
func (m *Machine) shut(name lease.Resource, mode lease.Mode) {
	delay := m.rulesFor(name).lockDelay
	if delay == 0 {
		return
	}
	r := m.resource(name)
	if r.delay == none {
		r.delay = m.delays.add(delayRecord{resource: name, seq: m.nextSeq(), mode: mode})
	}
	d := m.delays.edit(r.delay)
	d.until = max(d.until, m.now.Add(delay))
	if mode == lease.Exclusive {
		d.mode = mode
	}
	m.openings.set(r.delay, d.until, d.seq)
}

// isOpen reports whether no delay keeps a lease of the mode from being granted.
func (m *Machine) isOpen(r *resource, mode lease.Mode) bool {
	if r.delay == none || seeded.Is(seeded.DelayIgnored) {
		return true
	}
	d := m.delays.peek(r.delay)
	return d.until <= m.now || d.mode == lease.Shared && mode == lease.Shared
}

// reopen ends the delay of a resource. The caller promotes the next waiter.
func (m *Machine) reopen(name lease.Resource) {
	r := m.lookUp(name)
	if r == nil || r.delay == none {
		return
	}
	m.openings.remove(r.delay)
	m.delays.remove(r.delay)
	r.delay = none
	m.tidy(name, r)
}

// openDue ends the delays whose time is up and grants what was closed.
func (m *Machine) openDue(limit int) {
	for range limit {
		d, due := m.openings.due(m.now)
		if !due {
			return
		}
		name := m.delays.peek(d).resource
		m.reopen(name)
		m.promote(name)
	}
}
