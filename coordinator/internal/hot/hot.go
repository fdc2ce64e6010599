// Package hot finds the resources that are asked for most, in bounded memory.
package hot

import (
	"cmp"
	"slices"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// HalfLife is the lease time after which what was counted counts half.
const HalfLife = time.Minute

// Sketch counts the acquires of each resource, with room for a fixed number of resources: it is Space-Saving (Metwally,
// Agrawal, El Abbadi 2005) whose counts fade.
//
// With room for k resources and n acquires in all, faded like the counts, each resource that was asked for more often
// than n/k is in the sketch, and its count is at least the truth and at most n/k above it.
//
// It is not safe for concurrent use.
type Sketch struct {
	room    int
	places  map[lease.Resource]*Resource
	heap    rising
	fadesAt lock.LeaseTime
}

// Resource is what is known of one resource. All figures fade.
type Resource struct {
	Name     lease.Resource
	Acquires uint64 // an upper bound
	Excess   uint64 // by how much Acquires may be too high
	Refusals uint64
	held     mean
	waited   mean

	place int // in the heap
}

// MeanHeld is how long its leases lasted, and 0 if none has ended.
func (r *Resource) MeanHeld() time.Duration { return r.held.value() }

// MeanWaited is how long the waits lasted that ended in a lease, and 0 if there was none.
func (r *Resource) MeanWaited() time.Duration { return r.waited.value() }

type mean struct {
	sum   time.Duration
	count uint64
}

func (m *mean) add(d time.Duration) {
	m.sum += max(0, d)
	m.count++
}

func (m *mean) value() time.Duration {
	if m.count == 0 {
		return 0
	}
	return m.sum / time.Duration(m.count)
}

// fade halves a mean's weight, but keeps its value as long as it has any.
func (m *mean) fade() {
	if m.count > 1 {
		value := m.value()
		m.count /= 2
		m.sum = value * time.Duration(m.count)
	}
}

// New makes a sketch with room for so many resources.
func New(room int) *Sketch {
	return &Sketch{room: room, places: make(map[lease.Resource]*Resource)}
}

// At tells lease time, so that old counts fade.
func (s *Sketch) At(now lock.LeaseTime) {
	if s.fadesAt == 0 || now > s.fadesAt.Add(64*HalfLife) {
		clear(s.places)
		s.heap, s.fadesAt = nil, now.Add(HalfLife)
	}
	for ; now >= s.fadesAt; s.fadesAt = s.fadesAt.Add(HalfLife) {
		for _, r := range s.heap { // halving all keeps the heap's order
			r.Acquires /= 2
			r.Excess /= 2
			r.Refusals /= 2
			r.held.fade()
			r.waited.fade()
		}
	}
}

// Asked counts an acquire.
func (s *Sketch) Asked(name lease.Resource) {
	r := s.places[name]
	switch {
	case r != nil:
	case len(s.heap) < s.room:
		r = &Resource{Name: name, place: len(s.heap)}
		s.places[name] = r
		s.heap = append(s.heap, r)
		s.heap.rise(r)
	default: // the least counted makes room, and the newcomer may have been asked for as often as it
		r = s.heap[0]
		delete(s.places, r.Name)
		*r = Resource{Name: name, Acquires: r.Acquires, Excess: r.Acquires, place: r.place}
		s.places[name] = r
	}
	r.Acquires++
	s.heap.sink(r)
}

// Refused counts an acquire that was refused, or whose wait ended without a lease.
func (s *Sketch) Refused(name lease.Resource) {
	if r := s.places[name]; r != nil {
		r.Refusals++
	}
}

// Held takes how long a lease lasted.
func (s *Sketch) Held(name lease.Resource, d time.Duration) {
	if r := s.places[name]; r != nil {
		r.held.add(d)
	}
}

// Waited takes how long a wait lasted that ended in a lease.
func (s *Sketch) Waited(name lease.Resource, d time.Duration) {
	if r := s.places[name]; r != nil {
		r.waited.add(d)
	}
}

// Top lists the hottest resources that show lets pass, hottest first, of which at least half of the count is certain:
// where everything is asked for alike, nothing is hot.
func (s *Sketch) Top(most int, show func(lease.Resource) bool) []Resource {
	var top []Resource
	for _, r := range s.heap {
		if r.Acquires > 0 && r.Excess <= r.Acquires/2 && show(r.Name) {
			top = append(top, *r)
		}
	}
	slices.SortFunc(top, func(a, b Resource) int {
		return cmp.Or(-cmp.Compare(a.Acquires, b.Acquires), cmp.Compare(a.Name, b.Name))
	})
	return top[:min(len(top), most)]
}

// rising is a binary heap with the least counted first.
type rising []*Resource

// sink moves one down that was counted.
func (h rising) sink(r *Resource) {
	for {
		least := 2*r.place + 1
		if least >= len(h) {
			return
		}
		if other := least + 1; other < len(h) && h[other].Acquires < h[least].Acquires {
			least = other
		}
		if h[least].Acquires >= r.Acquires {
			return
		}
		h.swap(r.place, least)
	}
}

// rise moves a newcomer up.
func (h rising) rise(r *Resource) {
	for r.place > 0 {
		parent := (r.place - 1) / 2
		if h[parent].Acquires <= r.Acquires {
			return
		}
		h.swap(r.place, parent)
	}
}

func (h rising) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}
