package api

import (
	"context"
	"sync"
)

// reign is the time of one leader, as this node knows it. over is done when another leader is known; a leader that
// is merely out of sight still reigns, since calls that hang on it may well be served.
type reign struct {
	leader string
	over   context.Context
	end    context.CancelFunc
}

// reigns follows the group's leader, so that calls sent to a leader that is gone come back and go to the next.
type reigns struct {
	leadership leadership

	mu      sync.Mutex
	current reign
}

func newReigns(l leadership) *reigns {
	r := &reigns{leadership: l}
	r.current.over, r.current.end = context.WithCancel(context.Background())
	return r
}

// now returns who leads (empty: nobody is known to), whether it is this node, and the reign of that leader.
func (r *reigns) now() (leader string, self bool, current reign) {
	leader, self = r.leadership.Leader()
	r.mu.Lock()
	defer r.mu.Unlock()
	if leader != "" && leader != r.current.leader {
		r.current.end()
		r.current.leader = leader
		r.current.over, r.current.end = context.WithCancel(context.Background())
	}
	return leader, self, r.current
}
