package group

import (
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// class is what a command competes as for a place in the next entry.
type class int

const (
	renewing  class = iota // keeps a lease that is held
	ending                 // ends leases and waits: makes room, and others wait for it
	acquiring              // everything else
	classes
)

// shareOf is the part of an entry that a class is sure of: one in so many.
var shareOf = [classes]int{renewing: 2, ending: 4, acquiring: 4}

func classOf(cmd lock.Command) class {
	switch cmd.(type) {
	case lock.Renew, lock.RenewMany:
		return renewing
	case lock.Release, lock.Cancel, lock.Detach, lock.Break, lock.KillWait:
		return ending
	case lock.Acquire, lock.PutKey, lock.Init, lock.NewLeader, lock.Tick, lock.PutPolicy, lock.DeletePolicy, lock.RetireKey,
		lock.SetVersion, lock.PutMember, lock.DropMember, lock.Recover:
		return acquiring
	}
	return acquiring
}

// clientKey names the client whose commands keep their order among themselves. Renewals have no order: an
// entry runs them first whatever their place in it.
type clientKey struct {
	identity lease.Identity
	client   lease.ClientID
}

// leases tells of live leases. false: it never was one, or has ended.
type leases interface {
	Holder(id lease.ID) (lease.ClientID, bool)
	Deadline(id lease.ID) (lock.LeaseTime, bool)
}

// newProposal is a command with what the state knows about its lease: a release names nothing else of its
// client, and a renewal says nothing of how urgent it is.
func newProposal(cmd lock.Command, known leases) *proposal {
	p := &proposal{done: make(chan answer, 1)}
	p.prepare(cmd, known)
	return p
}

// prepare fills in what the queue needs to know of a command.
func (p *proposal) prepare(cmd lock.Command, known leases) {
	p.cmd = cmd
	switch c := cmd.(type) {
	case lock.Acquire:
		p.client = clientKey{c.Identity, c.Client}
	case lock.Cancel:
		p.client = clientKey{c.Identity, c.Client}
	case lock.Detach:
		p.client = clientKey{c.Identity, c.Client}
	case lock.Release:
		if client, ok := known.Holder(c.Lease); ok {
			p.client = clientKey{c.Identity, client}
		}
	case lock.Renew:
		p.deadline, _ = known.Deadline(c.Lease)
	case lock.RenewMany:
		p.deadline = firstDeadline(c.Leases, known)
	case lock.KillWait:
		p.client = clientKey{c.Identity, c.Client}
	case lock.Break, lock.PutKey, lock.Init, lock.NewLeader, lock.Tick, lock.PutPolicy, lock.DeletePolicy, lock.RetireKey,
		lock.SetVersion, lock.PutMember, lock.DropMember, lock.Recover:
	}
}

// firstDeadline is that of the lease that ends first, 0 if none of them lives.
func firstDeadline(ids []lease.ID, known leases) lock.LeaseTime {
	var first lock.LeaseTime
	for _, id := range ids {
		if deadline, ok := known.Deadline(id); ok && (first == 0 || deadline < first) {
			first = deadline
		}
	}
	return first
}

// sizeOf estimates the encoded size of a command from above; it bounds an entry, and need not be exact.
func sizeOf(cmd lock.Command) int {
	const fixed = 96
	switch c := cmd.(type) {
	case lock.Acquire:
		return fixed + len(c.Identity) + len(c.Client) + len(c.Request) + len(c.Owner) + len(c.Resource)
	case lock.Renew:
		return fixed + len(c.Identity)
	case lock.Release:
		return fixed + len(c.Identity)
	case lock.Cancel:
		return fixed + len(c.Identity) + len(c.Client) + len(c.Request)
	case lock.Detach:
		return fixed + len(c.Identity) + len(c.Client) + len(c.Request)
	case lock.Break:
		return fixed + len(c.Identity) + len(c.Resource)
	case lock.PutKey:
		return fixed + len(c.Node) + len(c.KeyID) + len(c.Public)
	case lock.Init:
		return 2*fixed + len(c.Cluster)
	case lock.NewLeader:
		return fixed + len(c.Node)
	case lock.RenewMany:
		return fixed + len(c.Identity) + (len(lease.ID{})+2)*len(c.Leases)
	case lock.KillWait:
		return sizeOfKill(c)
	case lock.PutPolicy:
		return 2*fixed + len(c.By) + len(c.Target.Name)
	case lock.DeletePolicy:
		return fixed + len(c.By) + len(c.Target.Name)
	case lock.RetireKey:
		return fixed + len(c.Node) + len(c.KeyID)
	case lock.PutMember:
		return fixed + len(c.ID) + len(c.Peer) + len(c.GRPC) + len(c.HTTP)
	case lock.DropMember:
		return fixed + len(c.ID)
	case lock.Recover:
		return fixed + len(c.Cluster)
	case lock.Tick, lock.SetVersion:
	}
	return fixed
}

func sizeOfKill(c lock.KillWait) int {
	const fixed = 16
	size := 6*fixed + len(c.Identity) + len(c.Client) + len(c.Request) +
		len(c.Ahead.Identity) + len(c.Ahead.Client) + len(c.Ahead.Request)
	for _, o := range c.Cycle {
		size += fixed + len(o.Identity) + len(o.Name)
	}
	return size
}
