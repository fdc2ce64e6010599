package explore

import (
	"fmt"
	"slices"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/internal/lock/locktest"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// What is promised beyond the words of chaos/invariant: it compares the machine that was kept with what an entry made of it.

// promises says which one an entry broke.
func (s *system) promises(a locktest.Applied) error {
	for i := range s.kept.saved.requests {
		if err := s.deadlineStands(&s.kept.saved.requests[i], a); err != nil {
			return err
		}
	}
	if err := s.opened(a); err != nil {
		return err
	}
	for i, command := range a.Commands {
		var err error
		switch c := command.(type) {
		case lock.Cancel:
			err = s.cancelHolds(c, a.Results[i])
		case lock.Detach:
			err = s.oldCallIsOld(c)
		case lock.Renew:
			if r, ok := a.Results[i].(lock.Renewed); ok && r.Deadline != s.deadline(r.Grant) {
				err = fmt.Errorf("a renewal at %v of a lease for %v moved its deadline to %v", s.applied.Sub(0), r.TTL, r.Deadline.Sub(0))
			}
		default:
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// deadline is where a renewal moves that of a lease.
func (s *system) deadline(g lock.Grant) lock.LeaseTime {
	deadline := s.applied.Add(g.TTL)
	if s.Policy != nil && s.Policy.MaxHold != nil {
		deadline = min(deadline, g.Since.Add(*s.Policy.MaxHold))
	}
	return deadline
}

// opened looks for a grant of a resource that was closed.
func (s *system) opened(a locktest.Applied) error {
	for _, d := range s.kept.saved.delays {
		broken := false
		for _, event := range a.Events {
			switch e := event.(type) {
			case lock.ResourceBroken:
				broken = broken || e.Resource == d.Resource
			case lock.LeaseGranted:
				open := d.Until <= s.applied || broken || d.Mode == lease.Shared && e.Mode == lease.Shared
				if e.Resource == d.Resource && !open {
					return fmt.Errorf("%s was granted at %v and is closed until %v", d.Resource, s.applied.Sub(0), d.Until.Sub(0))
				}
			default:
			}
		}
	}
	return nil
}

// deadlineStands looks for a lease whose deadline moved without a renewal.
func (s *system) deadlineStands(before *lock.SavedRequest, a locktest.Applied) error {
	if before.Stage != lock.StageHeld {
		return nil
	}
	deadline, live := s.lock.Deadline(before.Claim.Lease)
	if !live || deadline == before.Lease.Deadline {
		return nil
	}
	for i, result := range a.Results {
		switch r := result.(type) {
		case lock.Renewed:
			if r.Lease == before.Claim.Lease {
				return nil
			}
		case lock.RenewedMany:
			at := slices.Index(a.Commands[i].(lock.RenewMany).Leases, before.Claim.Lease)
			if at >= 0 && r.Renewals[at].Refused == nil && r.Renewals[at].Deadline == deadline {
				return nil
			}
		default:
		}
	}
	return fmt.Errorf("the deadline of a lease went from %v to %v, and nobody renewed it", before.Lease.Deadline.Sub(0), deadline.Sub(0))
}

// cancelHolds looks for a request that goes on after its cancel.
func (s *system) cancelHolds(c lock.Cancel, result lock.Result) error {
	r, ok := result.(lock.Cancelled)
	if !ok || r.Was == lock.RequestHeld && c.TimedOut {
		return nil
	}
	switch state, _ := s.lock.Request(c.Identity, c.Client, c.Request); state {
	case lock.RequestWaiting, lock.RequestHeld:
		return fmt.Errorf("a request was cancelled and goes on")
	case lock.RequestEnded, lock.RequestUnknown:
	}
	return nil
}

// oldCallIsOld looks for a waiter that was un-attached by the detach of a call whose place another one had taken.
func (s *system) oldCallIsOld(c lock.Detach) error {
	before, waited := s.kept.saved.waiter(c.Client, c.Request)
	if !waited || !before.Attached || before.Call == c.Call {
		return nil
	}
	for _, name := range resources {
		for _, w := range s.lock.Get(name).Waiters {
			if w.Client == c.Client && w.Request == c.Request && !w.Attached {
				return fmt.Errorf("the detach of call %d un-attached call %d", c.Call, before.Call)
			}
		}
	}
	return nil
}

// check looks at the machine from within.
func (s *system) check() error {
	if smallest := s.machines.Look(s.lock).SmallestLive(); s.smallerLives(uint64(smallest)) {
		return fmt.Errorf("floors may be folded up to %d, which would refuse a live lease", smallest)
	}
	if s.machines.Check == nil {
		return nil
	}
	return s.machines.Check(s.lock)
}

func (s *system) smallerLives(token uint64) bool {
	for i := range s.Asks {
		if a := &s.world.asks[i]; a.lease != 0 && uint64(a.token) < token {
			if _, live := s.lock.Lease(leaseID(uint8(i), a.lease-1)); live {
				return true
			}
		}
	}
	return false
}
