package lock

import (
	"cmp"

	"github.com/lychgate/lychgate/chaos/seeded"
)

// timers orders slots by (instant, sequence number): a total order, so that ties do not depend on how the heap
// came about. It is a binary heap that knows where each slot stands; it is derived, and in no snapshot.
type timers struct {
	heap []timer
	pos  []int32 // by slot: its index in heap plus 1, or 0
}

type timer struct {
	at   LeaseTime
	seq  uint64
	slot slot
}

func (t timer) compare(u timer) int {
	if seeded.Is(seeded.TiesByHistory) {
		return cmp.Compare(t.at, u.at)
	}
	return cmp.Or(cmp.Compare(t.at, u.at), cmp.Compare(t.seq, u.seq))
}

func (t timer) before(u timer) bool {
	if t.at != u.at || seeded.Is(seeded.TiesByHistory) {
		return t.at < u.at
	}
	return t.seq < u.seq
}

func (t *timers) len() int { return len(t.heap) }

// due returns the first slot if its instant is not after now.
func (t *timers) due(now LeaseTime) (slot, bool) {
	if len(t.heap) == 0 || t.heap[0].at > now {
		return 0, false
	}
	return t.heap[0].slot, true
}

// set adds the slot or moves it to another instant.
func (t *timers) set(i slot, at LeaseTime, seq uint64) {
	for int(i) >= len(t.pos) {
		t.pos = append(t.pos, 0)
	}
	if t.pos[i] == 0 {
		t.heap = append(t.heap, timer{})
		t.pos[i] = int32(len(t.heap))
	}
	at0 := int(t.pos[i]) - 1
	t.place(at0, timer{at, seq, i})
	t.fix(at0)
}

// remove drops the slot if it is there.
func (t *timers) remove(i slot) {
	if int(i) >= len(t.pos) || t.pos[i] == 0 {
		return
	}
	hole, last := int(t.pos[i])-1, len(t.heap)-1
	t.pos[i] = 0
	moved := t.heap[last]
	t.heap = t.heap[:last]
	if hole == last {
		return
	}
	t.place(hole, moved)
	t.fix(hole)
}

func (t *timers) place(at int, v timer) {
	t.heap[at] = v
	t.pos[v.slot] = int32(at + 1)
}

func (t *timers) fix(at int) {
	for at > 0 {
		parent := (at - 1) / 2
		if !t.heap[at].before(t.heap[parent]) {
			break
		}
		t.swap(at, parent)
		at = parent
	}
	for {
		least := at
		for child := 2*at + 1; child <= 2*at+2 && child < len(t.heap); child++ {
			if t.heap[child].before(t.heap[least]) {
				least = child
			}
		}
		if least == at {
			return
		}
		t.swap(at, least)
		at = least
	}
}

func (t *timers) swap(i, j int) {
	a, b := t.heap[i], t.heap[j]
	t.place(i, b)
	t.place(j, a)
}
