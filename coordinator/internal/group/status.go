package group

// Status is what an operator asks of a node. It is about this node alone.
type Status struct {
	State  string // "Follower", "Candidate", "Leader", "Shutdown"; empty before the start
	Leader string // empty if none is known
	Term   uint64
	Queued int // commands waiting to be proposed

	Blank   bool   // it remembers nothing, and takes part in no cluster yet
	Pending string // why it does not take part, or not with a vote; empty: it does
	Removed bool   // it was a member, and is none any more
	Disk    string // how the disk fails, which keeps it from taking part; empty: it works
}

// Status reports how the node stands. It does not block on the network or the disk.
func (g *Group) Status() Status {
	s := Status{
		Queued:  g.queue.length(),
		Blank:   memory(g.memory.Load()) == blank,
		Pending: g.reasons.first(),
		Removed: g.reasons.outside.String() == removed,
		Disk:    g.reasons.disk.String(),
	}
	s.Leader, _ = g.Leader()
	if node := g.raft.Load(); node != nil {
		s.State, s.Term = node.State().String(), node.CurrentTerm()
	}
	return s
}
