package group

import (
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// Status is what an operator asks of a node. It is about this node alone.
type Status struct {
	Node        string
	Group       uint16
	State       string // "Follower", "Candidate", "Leader", "Shutdown"; empty before the start
	Leader      string // empty if none is known
	Leading     bool   // this node leads; it may still be beginning its term
	Term        uint64
	LastIndex   uint64        // end of the log
	CommitIndex uint64        // known to be committed
	Applied     uint64        // applied to the state
	Contact     time.Duration // since the leader was last heard of; 0 for the leader, -1 for never
	LeaseTime   lock.LeaseTime
	Queued      int // commands waiting to be proposed
	InFlight    int // entries proposed and not yet applied
	Waits       int // calls that wait here
	Members     []Member
}

// Status reports how the node stands. It does not block on the network or the disk.
func (g *Group) Status() Status {
	s := Status{
		Node:      g.config.Node,
		Group:     g.config.Group,
		LeaseTime: g.replica.leaseTime(),
		Queued:    g.queue.length(),
		InFlight:  int(g.inFlight.Load()),
		Waits:     g.waits.length(),
		Contact:   -1,
		Members:   append([]Member(nil), g.config.Members...),
	}
	s.Leader, s.Leading = g.Leader()
	node := g.raft.Load()
	if node == nil {
		return s
	}
	s.State = node.State().String()
	s.Term = node.CurrentTerm()
	s.LastIndex = node.LastIndex()
	s.CommitIndex = node.CommitIndex()
	s.Applied = node.AppliedIndex()
	if s.Leading {
		s.Contact = 0
	} else if last := node.LastContact(); !last.IsZero() {
		s.Contact = time.Since(last)
	}
	return s
}
