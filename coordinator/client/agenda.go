package client

import (
	"container/heap"
	"sync"
	"time"
)

// agenda holds the live leases of a client in the order in which they need attention next. A lease is on it
// from its grant to its end.
type agenda struct {
	changed chan struct{} // holds one: the head may have changed

	mu    sync.Mutex
	items items
}

// set puts l on the agenda at an instant of the client's clock, or moves it.
func (a *agenda) set(l *Lease, at time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.slot == 0 {
		l.at = at
		heap.Push(&a.items, l)
	} else {
		l.at = at
		heap.Fix(&a.items, l.slot-1)
	}
	if l.slot == 1 {
		a.signal()
	}
}

func (a *agenda) signal() {
	select {
	case a.changed <- struct{}{}:
	default: // a signal is already waiting
	}
}

func (a *agenda) remove(l *Lease) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if l.slot != 0 {
		heap.Remove(&a.items, l.slot-1)
	}
}

// clear empties the agenda and returns what was on it.
func (a *agenda) clear() []*Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	var all []*Lease
	for len(a.items) > 0 {
		all = append(all, heap.Pop(&a.items).(*Lease))
	}
	return all
}

// due returns the first lease if its instant has come; it stays where it is. Otherwise it tells how long
// that is, at most limit.
func (a *agenda) due(now, limit time.Duration) (*Lease, time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.items) == 0 {
		return nil, limit
	}
	if wait := a.items[0].at - now; wait > 0 {
		return nil, min(wait, limit)
	}
	return a.items[0], 0
}

// items is the heap. A lease knows its slot, counted from 1; 0 means that it is not on the agenda.
type items []*Lease

func (s items) Len() int           { return len(s) }
func (s items) Less(i, j int) bool { return s[i].at < s[j].at }

func (s items) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].slot, s[j].slot = i+1, j+1
}

func (s *items) Push(x any) {
	l := x.(*Lease)
	l.slot = len(*s) + 1
	*s = append(*s, l)
}

func (s *items) Pop() any {
	old := *s
	l := old[len(old)-1]
	old[len(old)-1] = nil
	*s = old[:len(old)-1]
	l.slot = 0
	return l
}
