package lock

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type item int

func (i item) live() bool { return i != 0 }

// TestSlab compares a slab with a map, and frozen slabs with what the map was.
func TestSlab(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s slab[item]
		model := make(map[slot]item)
		type frozen struct {
			slab  *slab[item]
			model map[slot]item
		}
		var freezes []frozen
		for range rapid.IntRange(1, 3*pageSize).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"add", "add", "add", "edit", "remove", "freeze"}).Draw(t, "step") {
			case "add":
				v := item(rapid.IntRange(1, 1000).Draw(t, "value"))
				i := s.add(v)
				if _, taken := model[i]; taken {
					t.Fatalf("slot %d was given out twice", i)
				}
				model[i] = v
			case "edit":
				if i, ok := someSlot(t, model); ok {
					*s.edit(i)++
					model[i]++
				}
			case "remove":
				if i, ok := someSlot(t, model); ok {
					s.remove(i)
					delete(model, i)
				}
			case "freeze":
				freezes = append(freezes, frozen{s.freeze(), copyOf(model)})
			}
			compareSlab(t, &s, model)
		}
		for _, f := range freezes {
			compareSlab(t, f.slab, f.model)
		}
	})
}

func copyOf(m map[slot]item) map[slot]item {
	out := make(map[slot]item, len(m))
	for i, v := range m {
		out[i] = v
	}
	return out
}

func someSlot[V any](t *rapid.T, model map[slot]V) (slot, bool) {
	if len(model) == 0 {
		return 0, false
	}
	slots := make([]slot, 0, len(model))
	for i := range model {
		slots = append(slots, i)
	}
	slices.Sort(slots)
	return rapid.SampledFrom(slots).Draw(t, "slot"), true
}

func compareSlab(t *rapid.T, s *slab[item], model map[slot]item) {
	slots := s.slots()
	if len(slots) != len(model) || s.count != len(model) {
		t.Fatalf("%d slots are in use and %d counted, want %d", len(slots), s.count, len(model))
	}
	for _, i := range slots {
		if s.get(i) != model[i] {
			t.Fatalf("slot %d has %d, want %d", i, s.get(i), model[i])
		}
	}
}

// TestTimers compares the heap with a sorted list.
func TestTimers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var h timers
		model := make(map[slot]timer)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			i := slot(rapid.IntRange(0, 20).Draw(t, "slot"))
			switch rapid.SampledFrom([]string{"set", "set", "remove", "pop"}).Draw(t, "step") {
			case "set":
				at := LeaseTime(rapid.IntRange(0, 5).Draw(t, "at"))
				h.set(i, at, uint64(100-i))
				model[i] = timer{at, uint64(100 - i), i}
			case "remove":
				h.remove(i)
				delete(model, i)
			case "pop":
				now := LeaseTime(rapid.IntRange(0, 5).Draw(t, "now"))
				got, due := h.due(now)
				want, any := first(model)
				if due != (any && want.at <= now) || due && got != want.slot {
					t.Fatalf("due at %d gave %d, %v, want %+v", now, got, due, want)
				}
				if due {
					h.remove(got)
					delete(model, got)
				}
			}
			if h.len() != len(model) {
				t.Fatalf("%d timers, want %d", h.len(), len(model))
			}
		}
	})
}

func first(model map[slot]timer) (timer, bool) {
	all := make([]timer, 0, len(model))
	for _, v := range model {
		all = append(all, v)
	}
	if len(all) == 0 {
		return timer{}, false
	}
	return slices.MinFunc(all, func(a, b timer) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.seq, b.seq))
	}), true
}

// TestDeadlines compares two heaps of requests with sorted lists: of leases, one in three of which has its sequence number
// in its terms, and of those that are over.
func TestDeadlines(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var requests slab[requestRecord]
		texts := new(texts)
		both := [2]deadlines{{requests: &requests, texts: texts, places: new([]int32)}}
		both[1] = both[0]
		models := [2]map[slot]timer{make(map[slot]timer), make(map[slot]timer)}
		for step := range rapid.IntRange(1, 300).Draw(t, "steps") {
			at := LeaseTime(rapid.IntRange(0, 5).Draw(t, "at"))
			over := rapid.IntRange(0, 1).Draw(t, "over")
			d, model := &both[over], models[over]
			i, any := someSlot(t, model)
			switch rapid.SampledFrom([]string{"add", "add", "move", "remove", "pop"}).Draw(t, "step") {
			case "add":
				seq := uint64(1000 - step)
				rec := requestRecord{seq: seq, due: at, stage: StageEnded}
				if over == 0 {
					rec.seq, rec.behind, rec.stage = 1, uint32(seq)-1, StageHeld
					if step%3 == 0 {
						at := texts.spell(words{resource: "r"}, terms{claims: true, waiter: none, behind: seq - 1})
						rec.behind, rec.cell, rec.class = 0, at.cell, at.class
					}
				}
				l := requests.add(rec)
				d.set(l)
				model[l] = timer{at, seq, l}
			case "move":
				if any {
					requests.edit(i).due = at
					d.set(i)
					model[i] = timer{at, model[i].seq, i}
				}
			case "remove":
				if any {
					d.remove(i)
					requests.remove(i)
					delete(model, i)
				}
			case "pop":
				got, due := d.due(at)
				want, any := first(model)
				if due != (any && want.at <= at) || due && got != want.slot {
					t.Fatalf("due at %d gave %d, %v, want %+v", at, got, due, want)
				}
				if due {
					d.remove(got)
					requests.remove(got)
					delete(model, got)
				}
			}
			if d.len() != len(model) {
				t.Fatalf("%d deadlines, want %d", d.len(), len(model))
			}
		}
	})
}
