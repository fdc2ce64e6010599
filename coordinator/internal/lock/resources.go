package lock

import (
	"iter"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// Resources walks the names of the resources that are held or awaited, in no order; one with several leases or waiters
// comes several times. Names that stand together are parts of one string: clone what is to be kept.
func (s *Snapshot) Resources() iter.Seq[lease.Resource] {
	return func(yield func(lease.Resource) bool) {
		for size, page := range s.texts.pages {
			names := string(page)
			for at := 0; at < len(page); at += size {
				claims, h := headOf(page[at:])
				from := at + h.start
				if claims && !yield(lease.Resource(names[from:from+h.resource])) {
					return
				}
			}
		}
	}
}
