package lock

import (
	"slices"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// What only planted bugs do; see package chaos/seeded.

// anyLease is the first lease that an identity has.
func (m *Machine) anyLease(by lease.Identity) (slot, bool) {
	for _, q := range m.requests.slots() {
		if m.requests.peek(q).stage == StageHeld && m.clientOf(q).identity == by {
			return q, true
		}
	}
	return none, false
}

// renewAll gives every lease its whole TTL.
func (m *Machine) renewAll() {
	for _, q := range m.requests.slots() {
		if m.requests.peek(q).stage == StageHeld {
			m.expiries.remove(q)
			m.requests.edit(q).due = m.now.Add(m.termsOf(q).ttl)
			m.expiries.add(q)
		}
	}
}

// reversed is the resource with its queue from the end.
func (r *resource) reversed() *resource {
	twin := *r
	twin.queue = nil
	for _, w := range r.queue {
		twin.queue = append([]slot{w}, twin.queue...)
	}
	return &twin
}

// inMapOrder puts slots into no order.
func inMapOrder(slots []slot) []slot {
	set := make(map[slot]struct{})
	for _, s := range slots {
		set[s] = struct{}{}
	}
	mixed := slots[:0]
	for s := range set {
		mixed = append(mixed, s)
	}
	return mixed
}

// live is the requests that are not over.
func (s *Snapshot) live(requests []slot) []slot {
	return slices.DeleteFunc(slices.Clone(requests), func(q slot) bool { return s.requests.peek(q).stage.over() })
}
