package explore

import (
	"github.com/lychgate/lychgate/chaos/model/fence"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// world is all that there is besides the machine. It is a value: to copy it is to remember it.
type world struct {
	now   lock.LeaseTime // of the leader's clock
	asks  [maxAsks]ask
	store fence.Store
}

// ask is how far an acquire is.
type ask struct {
	begun  bool
	copies uint8          // that were sent; the first one when it began
	asOf   lock.LeaseTime // of all copies
	took   bool           // effect
	effect lock.LeaseTime // when
	lease  uint8          // the copy whose lease id it holds or held, plus 1; 0: it was never granted
	token  lease.Token    // of that
	answer answer
	raises bool // its session waits for a takeover of its own
}

// answer is what the client knows of its grant.
type answer uint8

const (
	unanswered answer = iota
	inFlight          // an answer was sent, and may arrive at any time or never
	known
)

// leaseID is the id that a grant of the copy has.
func leaseID(ask, copy uint8) lease.ID { return lease.NewID(0, [14]byte{1, ask, copy}) }

// askOf is the ask and copy that a lease id was made for.
func askOf(id lease.ID) (ask, copy uint8) { return id[3], id[4] }

// call is the number of the call that carries the copy.
func call(ask, copy uint8) uint64 { return uint64(ask)*maxCopies + uint64(copy) + 1 }

func (s *system) acquire(i, copy uint8) lock.Acquire {
	a := &s.Asks[i]
	return lock.Acquire{
		Identity: identity, Client: a.Client, Request: a.Request, Owner: a.Owner, Resource: resources[a.Resource],
		Mode: a.Mode, Wait: a.Wait, Lease: leaseID(i, copy), Call: call(i, copy), AsOf: s.world.asks[i].asOf,
		Sequence: a.Sequence, Acknowledged: a.Acknowledged,
	}
}

func (s *system) cancel(i uint8, timedOut bool) lock.Cancel {
	a := &s.Asks[i]
	return lock.Cancel{
		Identity: identity, Client: a.Client, Request: a.Request, AsOf: s.world.asks[i].asOf, TimedOut: timedOut,
	}
}

// find is the ask of a request.
func (s *system) find(client lease.ClientID, request lease.RequestID) uint8 {
	for i := range s.Asks {
		if s.Asks[i].Client == client && s.Asks[i].Request == request {
			return uint8(i)
		}
	}
	panic("explore: an event of a request that nobody made")
}
