package feed

import (
	"sort"
	"strings"
	"sync"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// ring keeps the last changes of one group, bounded by count and by bytes. What it had to drop is known by its floor:
// everything after the floor is here.
type ring struct {
	group      uint16
	maxEntries int
	maxBytes   int

	mu      sync.RWMutex
	changes []kept // a circle; its length is a power of two
	first   int    // of the oldest
	count   int
	bytes   int
	floor   Position // the newest change that is not kept any more, or where this node's knowledge begins
	applied uint64   // last entry of the log that was seen
	scratch []kept   // of append
}

// firstRoom is the room that a ring begins with; it doubles as needed.
const firstRoom = 64

// scratchRoom is how many changes of one entry are put together without making room for them first.
const scratchRoom = 4096

// append takes an entry's events, and reports whether anything changed.
func (r *ring) append(index uint64, now lock.LeaseTime, events []lock.Event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.applied = max(r.applied, index)
	changes := changesOf(r.scratch, events)
	for i := range changes {
		k := &changes[i]
		k.index, k.now, k.part = index, now, uint32(i+1)
		r.push(k)
	}
	if cap(changes) <= scratchRoom {
		clear(changes)
		r.scratch = changes[:0]
	}
	return len(changes) > 0
}

func (r *ring) push(k *kept) {
	size := k.size()
	for r.count > 0 && (r.count >= r.maxEntries || r.bytes+size > r.maxBytes) {
		r.drop()
	}
	if r.count == len(r.changes) {
		r.grow()
	}
	*r.at(r.count) = *k
	r.count++
	r.bytes += size
}

func (r *ring) drop() {
	oldest := r.at(0)
	r.floor = oldest.position()
	r.bytes -= oldest.size()
	*oldest = kept{}
	r.first++
	r.count--
}

func (r *ring) grow() {
	room := make([]kept, max(firstRoom, 2*len(r.changes)))
	for i := range r.count {
		room[i] = *r.at(i)
	}
	r.changes, r.first = room, 0
}

// at is the i-th change from the oldest.
func (r *ring) at(i int) *kept { return &r.changes[(r.first+i)&(len(r.changes)-1)] }

// restart forgets everything: the state was replaced by one at this index.
func (r *ring) restart(index uint64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	clear(r.changes)
	r.first, r.count, r.bytes = 0, 0, 0
	r.applied, r.floor = index, whole(index)
}

// page is a part of a ring.
type page struct {
	changes []Change
	next    Position // where to go on
	bytes   int
	more    bool // there is more already
	missed  bool // what came after the position is not all here; next is the end of what is known
}

// lookAt bounds the changes that one read looks at, and so for how long it may hold up the log.
const lookAt = 4096

// read collects the changes after a position whose resource has the prefix and may be shown, until it has so many or so
// many bytes.
func (r *ring) read(from Position, prefix string, show func(lease.Resource) bool, most, mostBytes int) page {
	r.mu.RLock()
	defer r.mu.RUnlock()
	end := later(from, whole(r.applied))
	if from.before(r.floor) {
		return page{next: end, missed: true}
	}
	p := page{next: from}
	begin := sort.Search(r.count, func(i int) bool { return from.before(r.at(i).position()) })
	for i := begin; i < r.count; i++ {
		if i == begin+lookAt || len(p.changes) == most || p.bytes > mostBytes {
			p.more = true
			return p
		}
		k := r.at(i)
		if name := k.resource(); strings.HasPrefix(string(name), prefix) && (show == nil || show(name)) {
			p.changes = append(p.changes, k.change(r.group))
			p.bytes += k.size()
		}
		p.next = k.position()
	}
	p.next = end
	return p
}

// end is where the group's log is, as far as this node has seen it.
func (r *ring) end() Position {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return whole(r.applied)
}
