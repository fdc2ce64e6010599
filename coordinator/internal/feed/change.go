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

// kept is a change as the ring has it: with the event that it comes from as it came, which is told apart for those who
// read it. Mostly there is nobody.
type kept struct {
	event lock.Event // LeaseGranted, LeaseEnded or ResourceBroken
	token lease.Token
	index uint64
	now   lock.LeaseTime
	part  uint32
	kind  Kind
}

// position is where the change stands in its group's log.
func (k *kept) position() Position { return Position{Index: k.index, Part: k.part} }

// changeBytes is what a change occupies besides its names, with its event.
const changeBytes = 224

func (k *kept) size() int {
	const apart = changeBytes
	switch e := k.event.(type) {
	case lock.LeaseGranted:
		return apart + len(e.Resource) + len(e.Client) + len(e.Identity) + len(e.Request)
	case lock.LeaseEnded:
		return apart + len(e.Resource) + len(e.Client) + len(e.Identity) + len(e.Request)
	default:
		return apart + len(k.resource())
	}
}

func (k *kept) resource() lease.Resource {
	switch e := k.event.(type) {
	case lock.LeaseGranted:
		return e.Resource
	case lock.LeaseEnded:
		return e.Resource
	case lock.ResourceBroken:
		return e.Resource
	default:
		return "" // no change comes from another event
	}
}

// change tells it in full.
func (k *kept) change(group uint16) Change {
	c := Change{Kind: k.kind, Token: k.token, Group: group, Index: k.index, Now: k.now, part: k.part}
	switch e := k.event.(type) {
	case lock.LeaseGranted:
		c.Holder = holderOf(e.Grant)
	case lock.LeaseEnded:
		c.Holder = e.Holder
	case lock.ResourceBroken:
		c.Holder = lock.Holder{Resource: e.Resource}
	default: // no change comes from another event
	}
	return c
}

// changesOf adds the changes in the events of one entry to changes, which is empty, in their order. Each lease that a
// break ends is told with the token of the break, which comes after them in the events.
func changesOf(changes []kept, events []lock.Event) []kept {
	open := 0 // changes[open:] wait for the token of the break that caused them
	for _, event := range events {
		switch e := event.(type) {
		case lock.LeaseGranted:
			changes = append(changes, kept{kind: Granted, event: event, token: e.Token})
			open = len(changes)
		case lock.LeaseEnded:
			k := kept{kind: kindOf(e.Cause), event: event, token: e.Token}
			if k.kind == Broken {
				k.token = 0
			}
			changes = append(changes, k)
			if k.kind != Broken {
				open = len(changes)
			}
		case lock.ResourceBroken:
			if open == len(changes) {
				changes = append(changes, kept{kind: Broken, event: event})
			}
			for i := range changes[open:] {
				changes[open+i].token = e.Token
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
