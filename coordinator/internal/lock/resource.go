package lock

import (
	"cmp"
	"iter"
	"slices"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// none is no slot.
const none slot = -1

// resource is who holds and awaits one name, and whether it is closed. It is derived from the waiters, leases and delays;
// one that has none of them is not kept. It has either one holder or a crowd of shared ones. Of a resource with one
// holder and nothing else, as most are, only the index byResource knows.
type resource struct {
	holder   slot   // or none
	delay    slot   // while it is closed, or none
	attached int32  // waiters whose caller is there
	barriers int32  // the exclusive ones of them
	crowd    *crowd // of two holders and more, until one is left
	queue    []slot // waiters in the order of their sequence numbers
}

// crowd is many shared leases of one period. Joining, leaving and finding a client's cost the same however many there are.
type crowd struct {
	slots []slot         // leases in the order of their grants, none where one has ended
	first int            // index of the oldest in slots
	at    map[slot]int32 // index in slots by client
	named int            // leases whose owner is not their client
}

func newResource() *resource { return &resource{holder: none, delay: none} }

// holders is how many leases there are; of no resource none.
func (r *resource) holders() int {
	switch {
	case r == nil:
		return 0
	case r.crowd != nil:
		return len(r.crowd.at)
	case r.holder != none:
		return 1
	}
	return 0
}

// first is the oldest lease; there must be one.
func (r *resource) first() slot {
	if r.crowd != nil {
		return r.crowd.slots[r.crowd.first]
	}
	return r.holder
}

// all walks the leases, the oldest first. Nothing may end meanwhile.
func (r *resource) all() iter.Seq[slot] {
	return func(yield func(slot) bool) {
		if r.crowd == nil {
			if r.holder != none {
				yield(r.holder)
			}
			return
		}
		for _, l := range r.crowd.slots[r.crowd.first:] {
			if l != none && !yield(l) {
				return
			}
		}
	}
}

// join adds the newest lease to its resource.
func (m *Machine) join(name lease.Resource, l slot) {
	r := m.resources[name]
	if r == nil {
		if _, held := m.findHeld(name); !held {
			m.byResource.add(m.hashOfHeld(l), l)
			return
		}
		r = m.resource(name)
	}
	switch {
	case r.crowd != nil:
		m.crowdIn(r.crowd, l)
	case r.holder == none:
		r.holder = l
	default:
		r.crowd = &crowd{at: make(map[slot]int32, 2)}
		m.crowdIn(r.crowd, r.holder)
		m.crowdIn(r.crowd, l)
		r.holder = none
	}
}

func (m *Machine) crowdIn(c *crowd, l slot) {
	c.at[m.requests.peek(l).client] = int32(len(c.slots))
	c.slots = append(c.slots, l)
	if m.isNamed(l) {
		c.named++
	}
}

// leave takes a lease away from its resource.
func (m *Machine) leave(name lease.Resource, l slot) {
	r := m.resources[name]
	switch {
	case r == nil:
		m.byResource.remove(m.hashOfHeld(l), l)
		return
	case r.crowd == nil:
		r.holder = none
	default:
		m.crowdOut(r, l)
	}
	m.tidy(name, r)
}

func (m *Machine) crowdOut(r *resource, l slot) {
	c := r.crowd
	client := m.requests.peek(l).client
	c.slots[c.at[client]] = none
	delete(c.at, client)
	if m.isNamed(l) {
		c.named--
	}
	for c.slots[c.first] == none {
		c.first++
	}
	switch live := len(c.at); {
	case live == 1:
		r.holder, r.crowd = c.slots[c.first], nil
	case len(c.slots) > 2*live+8:
		c.compact()
	}
}

// compact drops the places of ended leases once they are most of all, so that a lease pays for two moves at most.
func (c *crowd) compact() {
	moved := make(map[int32]int32, len(c.at))
	live := make([]slot, 0, len(c.at)+len(c.at)/2)
	for i, l := range c.slots {
		if l != none {
			moved[int32(i)] = int32(len(live))
			live = append(live, l)
		}
	}
	for client, i := range c.at {
		c.at[client] = moved[i]
	}
	c.slots, c.first = live, 0
}

// leaseOf finds a client's lease on the resource.
func (m *Machine) leaseOf(r *resource, client slot) (slot, bool) {
	switch {
	case r.crowd != nil:
		i, ok := r.crowd.at[client]
		if !ok {
			return none, false
		}
		return r.crowd.slots[i], true
	case r.holder != none && m.requests.peek(r.holder).client == client:
		return r.holder, true
	}
	return none, false
}

// sortHolders puts the leases in the order of their grants, after they were restored in another.
func (m *Machine) sortHolders(r *resource) {
	c := r.crowd
	if c == nil {
		return
	}
	slices.SortFunc(c.slots, func(a, b slot) int { return cmp.Compare(m.leaseSeq(a), m.leaseSeq(b)) })
	for i, l := range c.slots {
		c.at[m.requests.peek(l).client] = int32(i)
	}
}

// sharesWith reports whether a lease of the mode can stand beside those that the resource has.
func (m *Machine) sharesWith(r *resource, mode lease.Mode) bool {
	if r.holders() == 0 {
		return true
	}
	return mode == lease.Shared && m.requests.peek(r.first()).mode == lease.Shared
}

// lookUp returns the entry of a name for a look at it, nil if there is none. That of a resource which has one holder and
// nothing else is made for the occasion, and not kept.
func (m *Machine) lookUp(name lease.Resource) *resource {
	if r := m.resources[name]; r != nil {
		return r
	}
	q, held := m.findHeld(name)
	if !held {
		return nil
	}
	return &resource{holder: q, delay: none}
}

// resource returns the entry of a name for changing it, made if need be.
func (m *Machine) resource(name lease.Resource) *resource {
	r := m.resources[name]
	if r == nil {
		r = newResource()
		if q, held := m.findHeld(name); held {
			m.byResource.remove(m.hashOfHeld(q), q)
			r.holder = q
		}
		m.resources[name] = r
	}
	return r
}

// tidy drops the entry of an open resource that nobody awaits and that has one holder or none.
func (m *Machine) tidy(name lease.Resource, r *resource) {
	if r.crowd != nil || len(r.queue) > 0 || r.delay != none {
		return
	}
	delete(m.resources, name)
	if r.holder != none {
		m.byResource.add(m.hashOfHeld(r.holder), r.holder)
	}
}
