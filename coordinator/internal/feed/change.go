package feed

import (
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// Kind is what became of a resource.
type Kind uint8

// The kinds.
const (
	Granted Kind = iota + 1
	Released
	Expired
	Broken
)

// Change is one thing that became true of a resource.
type Change struct {
	Kind   Kind
	Holder lock.Holder // whose lease began or ended; of a Broken that ended nobody's, only Resource is set
	Token  lease.Token // the lease's; of a Broken the one that was issued to nobody
	Group  uint16
	Index  uint64
	Now    lock.LeaseTime // of the entry

	part uint32 // from 1: the how manieth change of its entry it is
}

// position is where the change stands in its group's log.
func (c *Change) position() Position { return Position{Index: c.Index, Part: c.part} }

// changeBytes is what a Change occupies besides its names.
const changeBytes = 160

func (c *Change) size() int {
	return changeBytes + len(c.Holder.Resource) + len(c.Holder.Client) + len(c.Holder.Identity)
}

// changesOf are the changes in the events of one entry, in their order. Each lease that a break ends is told with the
// token of the break, which comes after them in the events.
func changesOf(events []lock.Event) []Change {
	var changes []Change
	open := 0 // changes[open:] wait for the token of the break that caused them
	for _, event := range events {
		switch e := event.(type) {
		case lock.LeaseGranted:
			changes = append(changes, Change{Kind: Granted, Holder: holderOf(e.Grant), Token: e.Token})
			open = len(changes)
		case lock.LeaseEnded:
			c := Change{Kind: kindOf(e.Cause), Holder: e.Holder, Token: e.Token}
			if c.Kind == Broken {
				c.Token = 0
			}
			changes = append(changes, c)
			if c.Kind != Broken {
				open = len(changes)
			}
		case lock.ResourceBroken:
			if open == len(changes) {
				changes = append(changes, Change{Kind: Broken, Holder: lock.Holder{Resource: e.Resource}})
			}
			for i := range changes[open:] {
				changes[open+i].Token = e.Token
			}
			open = len(changes)
		default: // waits and the cluster's own affairs are nobody's possession
		}
	}
	return changes
}

func kindOf(cause lock.EndCause) Kind {
	switch cause {
	case lock.EndReleased, lock.EndCancelled:
		return Released
	case lock.EndExpired, lock.EndUnclaimed:
		return Expired
	case lock.EndBroken, lock.EndRecovered:
	}
	return Broken
}

func holderOf(g lock.Grant) lock.Holder {
	return lock.Holder{
		Resource: g.Resource, Hash: g.Lease.Hash(), Token: g.Token, Mode: g.Mode,
		Identity: g.Identity, Client: g.Client, Since: g.Since, Deadline: g.Deadline,
	}
}
