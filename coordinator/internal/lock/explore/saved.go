package explore

import (
	"slices"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// saved is a machine's snapshot in parts.
type saved struct {
	header   lock.Header
	delays   []lock.SavedDelay
	clients  []lock.SavedClient
	counts   []int // of each client's requests
	requests []lock.SavedRequest
}

// take replaces what is saved.
func (s *saved) take(snapshot *lock.Snapshot) {
	s.header = snapshot.Header()
	s.delays, s.clients, s.counts, s.requests = s.delays[:0], s.clients[:0], s.counts[:0], s.requests[:0]
	for d := range snapshot.Delays() {
		s.delays = append(s.delays, d)
	}
	for c, requests := range snapshot.Clients() {
		s.clients = append(s.clients, c)
		before := len(s.requests)
		for r := range requests {
			s.requests = append(s.requests, r)
		}
		s.counts = append(s.counts, len(s.requests)-before)
	}
}

// clone copies it into the memory of another.
func (s *saved) clone(into *saved) saved {
	return saved{
		header:   s.header,
		delays:   append(into.delays[:0], s.delays...),
		clients:  append(into.clients[:0], s.clients...),
		counts:   append(into.counts[:0], s.counts...),
		requests: append(into.requests[:0], s.requests...),
	}
}

// restore makes a machine of it.
func (s *saved) restore(machines Machines, old *lock.Machine) (*lock.Machine, error) {
	r, err := machines.Restore(old, s.header)
	if err != nil {
		return nil, err
	}
	for _, d := range s.delays {
		if err := r.Delay(d); err != nil {
			return nil, err
		}
	}
	requests := s.requests
	for i, c := range s.clients {
		if err := r.Client(c); err != nil {
			return nil, err
		}
		for _, q := range requests[:s.counts[i]] {
			if err := r.Request(q); err != nil {
				return nil, err
			}
		}
		requests = requests[s.counts[i]:]
	}
	return r.Machine()
}

// ranks replaces sequence numbers by their places among those in use: the machine compares them and nothing else.
func (s *saved) ranks(room []uint64) []uint64 {
	room = room[:0]
	for _, d := range s.delays {
		room = append(room, d.Seq)
	}
	for _, c := range s.clients {
		room = append(room, c.Seq)
	}
	for i := range s.requests {
		room = append(room, s.requests[i].Seq)
		if s.requests[i].Stage == lock.StageHeld {
			room = append(room, s.requests[i].Lease.Seq)
		}
	}
	slices.Sort(room)
	return room
}
