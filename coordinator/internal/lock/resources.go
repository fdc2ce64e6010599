package lock

import (
	"iter"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// Resources walks the names of the resources that are held or awaited, in no order; one with several leases or waiters
// comes several times.
func (s *Snapshot) Resources() iter.Seq[lease.Resource] {
	return func(yield func(lease.Resource) bool) {
		for i := range s.leases.next {
			if l := s.leases.peek(i); l.live() && !yield(l.resource) {
				return
			}
		}
		for i := range s.waiters.next {
			if w := s.waiters.peek(i); w.live() && !yield(w.resource) {
				return
			}
		}
	}
}
