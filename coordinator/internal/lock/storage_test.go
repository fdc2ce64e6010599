package lock

import (
	"maps"
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
	return slices.MinFunc(all, timer.compare), true
}

// TestCalendar compares two calendars with sorted lists: of leases, some of which have their sequence numbers in their
// terms, and of requests that are over. Instants are close together or periods apart, and time goes on.
func TestCalendar(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := New()
		both := [2]*calendar{&m.expiries, &m.oblivions}
		models := [2]map[slot]timer{make(map[slot]timer), make(map[slot]timer)}
		now, seq := LeaseTime(0), uint64(1)<<40 // a restored lease may come after younger ones
		instant := func() LeaseTime {
			return max(0, now+LeaseTime(rapid.IntRange(-2, 5).Draw(t, "periods"))*period+LeaseTime(rapid.IntRange(0, 3).Draw(t, "at")))
		}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			which := rapid.IntRange(0, 1).Draw(t, "which")
			c, model := both[which], models[which]
			i, any := someSlot(t, model)
			switch rapid.SampledFrom([]string{"add", "add", "move", "remove", "take"}).Draw(t, "step") {
			case "add":
				for range rapid.SampledFrom([]int{1, 2, 100}).Draw(t, "count") {
					seq--
					at := instant()
					q := m.requests.add(turning(m, which == 0, at, seq))
					c.add(q)
					model[q] = timer{at, seq, q}
				}
			case "move":
				if any {
					at := rapid.SampledFrom([]LeaseTime{model[i].at, instant()}).Draw(t, "to")
					c.remove(i)
					m.requests.edit(i).due = at
					c.add(i)
					model[i] = timer{at, model[i].seq, i}
				}
			case "remove":
				if any {
					drop(m, c, model, i)
				}
			case "take":
				now = max(now, instant())
				compareTaken(t, m, c, model, now, rapid.IntRange(1, 40).Draw(t, "room"))
			}
			if c.len() != len(model) {
				t.Fatalf("%d are in, want %d", c.len(), len(model))
			}
		}
	})
}

// turning is a request whose turn has that instant and sequence number.
func turning(m *Machine, held bool, at LeaseTime, seq uint64) requestRecord {
	switch {
	case !held:
		return requestRecord{seq: seq, due: at, stage: StageEnded}
	case seq%3 != 0:
		return requestRecord{seq: seq - 1, behind: 1, due: at, stage: StageHeld}
	}
	text := m.texts.spell(&words{resource: "r"}, &terms{claims: true, waiter: none, behind: seq - 1})
	return requestRecord{seq: 1, due: at, stage: StageHeld, cell: text.cell, class: text.class}
}

func drop(m *Machine, c *calendar, model map[slot]timer, q slot) {
	c.remove(q)
	m.requests.remove(q)
	delete(model, q)
}

func compareTaken(t *rapid.T, m *Machine, c *calendar, model map[slot]timer, now LeaseTime, room int) {
	want := slices.SortedFunc(maps.Values(model), timer.compare)
	for i, w := range want {
		if w.at > now {
			want = want[:i]
			break
		}
	}
	if due := c.due(now); due != (len(want) > 0) {
		t.Fatalf("at %d something is due: %v, want %+v", now, due, want)
	}
	want = want[:min(len(want), room)]
	got := c.take(now, make([]slot, room))
	if !slices.EqualFunc(got, want, func(q slot, w timer) bool { return q == w.slot }) {
		t.Fatalf("at %d were taken %v, want %+v", now, got, want)
	}
	for _, q := range got {
		drop(m, c, model, q)
	}
}
