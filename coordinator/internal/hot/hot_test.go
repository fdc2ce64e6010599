package hot

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

func all(lease.Resource) bool { return true }

func names(top []Resource) (out []lease.Resource) {
	for _, r := range top {
		out = append(out, r.Name)
	}
	return out
}

// The bound of the algorithm, against exact counts.
func TestCountsAreWithinTheBound(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		room := rapid.IntRange(1, 20).Draw(rt, "room")
		s := New(room)
		s.At(1)
		exact := map[lease.Resource]uint64{}
		asked := rapid.SliceOf(rapid.IntRange(0, 40)).Draw(rt, "asked")
		for _, i := range asked {
			name := lease.Resource(fmt.Sprint("r/", i*i%41))
			s.Asked(name)
			exact[name]++
		}
		bound := uint64(len(asked) / room)
		for name, want := range exact {
			r := s.places[name]
			switch {
			case r == nil && want > bound:
				rt.Fatalf("%s was asked for %d times of %d and is not there", name, want, len(asked))
			case r != nil && (r.Acquires < want || r.Acquires > want+bound || r.Acquires-r.Excess > want):
				rt.Fatalf("%s: %d times, %d counted with an excess of %d; the bound is %d", name, want, r.Acquires, r.Excess, bound)
			}
		}
		if len(s.places) > room || len(s.heap) != len(s.places) {
			rt.Fatalf("%d resources, %d in the heap, room for %d", len(s.places), len(s.heap), room)
		}
	})
}

func TestTheHotOnesAmongMany(t *testing.T) {
	s := New(100)
	s.At(1)
	for i := range 100_000 {
		s.Asked(lease.Resource(fmt.Sprint("cold/", i)))
		if i%20 == 0 {
			s.Asked("warm")
		}
		if i%10 == 0 {
			s.Asked("hot")
		}
	}
	if got := fmt.Sprint(names(s.Top(10, all))); got != "[hot warm]" {
		t.Errorf("the hottest are %s", got)
	}
	if got := fmt.Sprint(names(s.Top(1, func(r lease.Resource) bool { return r != "hot" }))); got != "[warm]" {
		t.Errorf("the hottest of those to be seen are %s", got)
	}
}

func TestWhatIsLongPastFades(t *testing.T) {
	s := New(10)
	now := lock.LeaseTime(time.Hour)
	s.At(now)
	for range 1000 {
		s.Asked("yesterday")
		s.Refused("yesterday")
	}
	s.Held("yesterday", 3*time.Second)
	s.Waited("yesterday", time.Second)
	s.At(now.Add(HalfLife))
	if r := s.Top(1, all)[0]; r.Acquires != 500 || r.Refusals != 500 || r.MeanHeld() != 3*time.Second || r.MeanWaited() != time.Second {
		t.Errorf("after one half-life: %+v", r)
	}
	for range 10 {
		s.Asked("today")
	}
	s.At(now.Add(10 * HalfLife))
	for range 10 {
		s.Asked("today")
	}
	if got := fmt.Sprint(names(s.Top(10, all))); got != "[today]" {
		t.Errorf("the hottest are %s", got)
	}
	s.At(now.Add(1000 * HalfLife))
	if top := s.Top(10, all); len(top) != 0 {
		t.Errorf("much later: %v", top)
	}
}

func TestMeans(t *testing.T) {
	s := New(1)
	s.At(1)
	s.Held("r", time.Second) // not asked for yet: nothing to note it at
	s.Asked("r")
	for _, d := range []time.Duration{time.Second, 3 * time.Second} {
		s.Held("r", d)
		s.Waited("r", 2*d)
	}
	if r := s.Top(1, all)[0]; r.MeanHeld() != 2*time.Second || r.MeanWaited() != 4*time.Second {
		t.Errorf("held %v, waited %v", r.MeanHeld(), r.MeanWaited())
	}
	s.Asked("other")
	if r := s.heap[0]; r.Name != "other" || r.MeanHeld() != 0 || r.Excess != 1 {
		t.Errorf("the one that took its place: %+v", r)
	}
}

func TestMeansOutliveTheFading(t *testing.T) {
	s := New(1)
	s.At(1)
	for range 100 {
		s.Asked("r")
	}
	for range 7 { // halved it is odd again
		s.Held("r", time.Second)
	}
	for halved := range 4 {
		if r := s.Top(1, all)[0]; r.MeanHeld() != time.Second {
			t.Errorf("after %d half-lives the mean of leases of a second is %v", halved, r.MeanHeld())
		}
		s.At(s.fadesAt)
	}
}

func BenchmarkAsked(b *testing.B) {
	s := New(1024)
	s.At(1)
	list := make([]lease.Resource, 10_000)
	for i := range list {
		list[i] = lease.Resource(fmt.Sprint("bench/", i))
	}
	b.ReportAllocs()
	for i := range b.N {
		s.Asked(list[i*7919%len(list)])
	}
}
