package lock

// slot is the place of a record in a slab. Slots differ between replicas (a restored one numbers anew), so they
// never decide anything; sequence numbers do.
type slot int32

// pageSize is the number of records copied by the first change to a page after a freeze.
const pageSize = 128

// record is what a slab stores; the zero value is a free place.
type record interface{ live() bool }

// slab keeps records in pages that a snapshot may share: freeze costs one pointer a page, and a page is copied
// when it is first changed afterwards. Records refer to one another by slot, never by pointer.
type slab[T record] struct {
	pages []*[pageSize]T
	owned []bool // the page is in no snapshot and may be changed in place
	free  []slot
	next  slot // the first place that was never used
	count int
}

// add stores v and returns its place.
func (s *slab[T]) add(v T) slot {
	i := s.take()
	s.put(i, v)
	return i
}

// put stores v in a place that was taken for it.
func (s *slab[T]) put(i slot, v T) {
	*s.edit(i) = v
	s.count++
}

// take returns a free place; put must follow before another one is asked for.
func (s *slab[T]) take() slot {
	if last := len(s.free) - 1; last >= 0 {
		i := s.free[last]
		s.free = s.free[:last]
		return i
	}
	i := s.next
	s.next++
	if int(i)/pageSize == len(s.pages) {
		s.pages = append(s.pages, new([pageSize]T))
		s.owned = append(s.owned, true)
	}
	return i
}

// get returns a copy of the record: a pointer could outlive its page's being shared.
func (s *slab[T]) get(i slot) T { return s.pages[i/pageSize][i%pageSize] }

// peek returns the record for a look at it, without a copy. The pointer is good until the next change of any record.
func (s *slab[T]) peek(i slot) *T { return &s.pages[i/pageSize][i%pageSize] }

// edit returns the record for changing it. The pointer is good until the next freeze.
func (s *slab[T]) edit(i slot) *T {
	p := i / pageSize
	if !s.owned[p] {
		page := *s.pages[p]
		s.pages[p], s.owned[p] = &page, true
	}
	return &s.pages[p][i%pageSize]
}

// remove frees the place.
func (s *slab[T]) remove(i slot) {
	var zero T
	*s.edit(i) = zero
	s.free = append(s.free, i)
	s.count--
}

// slots lists the places in use, in no meaningful order.
func (s *slab[T]) slots() []slot {
	used := make([]slot, 0, s.count)
	for i := range s.next {
		if s.pages[i/pageSize][i%pageSize].live() {
			used = append(used, i)
		}
	}
	return used
}

// freeze returns a slab for reading that later changes of s do not touch. Another goroutine may read it.
func (s *slab[T]) freeze() *slab[T] {
	clear(s.owned)
	return &slab[T]{pages: append([]*[pageSize]T(nil), s.pages...), next: s.next, count: s.count}
}
