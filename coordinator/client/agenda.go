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

// upTo lists the leases whose instant comes no later than at, no more than limit of them; they stay where they are.
func (a *agenda) upTo(at time.Duration, limit int) []*Lease {
	a.mu.Lock()
	defer a.mu.Unlock()
	var found []*Lease
	// A child's instant is never before its parent's, so only what stands below a found one has to be looked at.
	for next := []int{0}; len(next) > 0 && len(found) < limit; {
		i := next[len(next)-1]
		next = next[:len(next)-1]
		if i < len(a.items) && a.items[i].at <= at {
			found = append(found, a.items[i])
			next = append(next, 2*i+1, 2*i+2)
		}
	}
	return found
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
