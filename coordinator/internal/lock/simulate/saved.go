package simulate

import "github.com/lychgate/lychgate/coordinator/internal/lock"

// saved is a snapshot.
type saved struct {
	header  lock.Header
	delays  []lock.SavedDelay
	clients []savedClient
}

type savedClient struct {
	lock.SavedClient
	requests []lock.SavedRequest
}

func save(m *lock.Machine) *saved {
	snapshot := m.Snapshot()
	s := &saved{header: snapshot.Header()}
	for d := range snapshot.Delays() {
		s.delays = append(s.delays, d)
	}
	for c, requests := range snapshot.Clients() {
		one := savedClient{SavedClient: c}
		for r := range requests {
			one.requests = append(one.requests, r)
		}
		s.clients = append(s.clients, one)
	}
	return s
}

func (s *saved) restore() (*lock.Machine, error) {
	r, err := lock.NewRestorer(s.header)
	if err != nil {
		return nil, err
	}
	for _, d := range s.delays {
		if err := r.Delay(d); err != nil {
			return nil, err
		}
	}
	for _, c := range s.clients {
		if err := r.Client(c.SavedClient); err != nil {
			return nil, err
		}
		for _, q := range c.requests {
			if err := r.Request(q); err != nil {
				return nil, err
			}
		}
	}
	return r.Machine()
}
