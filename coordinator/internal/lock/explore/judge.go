package explore

import (
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/internal/lock/locktest"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// The situations that are counted: by steps from states that are gone on from.
const (
	granted          = "a lock was granted at once"
	grantedLate      = "a waiter was granted"
	grantedOnReturn  = "a waiter was granted because its caller came back"
	freeAndAway      = "a waiter's turn had come while its caller was unattached"
	passedAway       = "a waiter was granted past one who was unattached"
	joined           = "a shared lease joined a shared period"
	sharedWaits      = "a shared request waits behind an exclusive one, in a shared period"
	retriedHeld      = "a retry was told of the lease that it holds"
	retriedEnded     = "a retry was answered ended"
	retriedCancelled = "a retry was answered cancelled"
	forestalled      = "a cancel overtook its acquire"
	forestalledHeard = "an acquire came after its cancel"
	tooOld           = "a copy from outside of the window was refused"
	expired          = "a lease expired"
	twoExpire        = "two leases expired in one entry"
	unclaimed        = "a grant was not claimed"
	timedOut         = "a wait was over"
	abandoned        = "a waiter stayed away for too long"
	stale            = "a detach of an old call changed nothing"
	keptForHead      = "a free lock was kept for the head of its queue"
	renewedLate      = "a renewal came after the deadline and before the expiry"
	renewRefused     = "a lease that had ended was not renewed"
	impostor         = "another identity's release was refused"
	held             = "an acquire that does not wait was refused"
	alreadyHeld      = "a client asked for what it has"
	deadlock         = "a deadlock was refused"
	killed           = "a wait was ended for a deadlock across groups"
	delayed          = "a closed resource was refused"
	waitedOut        = "a waiter waited until its resource was open"
	heldTooLong      = "a lease had been held for as long as it may"
	broken           = "a held lock was broken"
	recovered        = "a life ended with a lease"
	twoGrants        = "a resource was granted twice in one entry"
	forgotten        = "a request was forgotten"
	acknowledged     = "an acknowledged request was refused"
	tooManyRequests  = "a client came to its bound of requests"
	tookOver         = "a takeover raised the floor"
	endedOld         = "a takeover ended an old holder's session"
	refusedStale     = "the store refused a stale token"
	joinedFloor      = "a session joined under the floor"
	gaveUp           = "a takeover came to its deadline"
	storeRestarted   = "the store crashed"
	lateAnswer       = "a client learned of its lease after that had ended"
)

// judge counts situations.
type judge struct{ met map[string]int }

// Situations counts what was met.
func (s *system) Situations() map[string]int { return s.judge.met }

func (s *system) meet(is bool, name string) {
	if !is || s.repeat {
		return
	}
	if s.judge.met == nil {
		s.judge.met = make(map[string]int)
	}
	s.judge.met[name]++
}

// machineLacks reports whether the lease that an ask was granted has ended.
func (s *system) machineLacks(i uint8) bool {
	if s.repeat {
		return false
	}
	_, live := s.machine().Lease(leaseID(i, s.world.asks[i].lease-1))
	return !live
}

// count looks at what an entry did.
func (j *judge) count(s *system, before lock.Info, a locktest.Applied) {
	grants, expiries := 0, 0
	for _, event := range a.Events {
		switch e := event.(type) {
		case lock.LeaseGranted:
			grants++
			j.grant(s, e, a)
		case lock.LeaseEnded:
			s.meet(e.Cause == lock.EndExpired, expired)
			s.meet(e.Cause == lock.EndUnclaimed, unclaimed)
			s.meet(e.Cause == lock.EndBroken, broken)
			s.meet(e.Cause == lock.EndRecovered, recovered)
			if e.Cause == lock.EndExpired || e.Cause == lock.EndUnclaimed {
				expiries++
			}
		case lock.WaitEnded:
			s.meet(e.Cause == lock.WaitTimedOut, timedOut)
			s.meet(e.Cause == lock.WaitAbandoned, abandoned)
			s.meet(e.Cause == lock.WaitDeadlocked, killed)
		default:
		}
	}
	s.meet(grants > 1, twoGrants)
	s.meet(expiries > 1, twoExpire)
	after := s.lock.Info()
	s.meet(after.Requests < before.Requests, forgotten)
	if len(a.Events) > 0 {
		j.queues(s, after.Now)
	}
	for i, result := range a.Results {
		j.result(s, a.Commands[i], result, len(a.Events))
	}
}

func (j *judge) grant(s *system, e lock.LeaseGranted, a locktest.Applied) {
	view := s.lock.Get(e.Resource)
	s.meet(!e.Late && len(a.Events) == 1, granted)
	s.meet(e.Late, grantedLate)
	s.meet(view.Holding > 1, joined)
	s.meet(e.Late && len(s.kept.saved.delays) > 0 && s.kept.saved.delays[0].Until <= s.applied, waitedOut)
	for _, w := range view.Waiters {
		if i := s.find(w.Client, w.Request); !w.Attached && s.world.asks[i].took {
			s.meet(true, passedAway)
		}
	}
}

// queues looks at who waits.
func (j *judge) queues(s *system, now lock.LeaseTime) {
	for r := range resources {
		view := s.lock.Get(resources[r])
		if view.Waiting == 0 {
			continue
		}
		first := view.Waiters[0]
		free := view.Holding == 0
		s.meet(free && !first.Attached, freeAndAway)
		s.meet(free && view.Waiting > 1 && !first.Attached && view.Waiters[1].Attached, keptForHead)
		s.meet(!free && view.Holders[0].Mode == lease.Shared && view.Waiting > 1 && first.Mode == lease.Exclusive &&
			view.Waiters[1].Mode == lease.Shared && view.Waiters[1].Attached, sharedWaits)
	}
}

func (j *judge) result(s *system, command lock.Command, result lock.Result, events int) {
	switch r := result.(type) {
	case lock.Granted:
		s.meet(r.Retried && events == 0, retriedHeld)
		s.meet(r.Retried && events > 0, grantedOnReturn)
	case lock.Cancelled:
		s.meet(r.Was == lock.RequestUnknown, forestalled)
	case lock.Renewed:
		s.meet(s.kept.saved.overdue(r.Lease, s.applied), renewedLate)
	case lock.Done:
		if d, ok := command.(lock.Detach); ok && events == 0 {
			state, _ := s.lock.Request(d.Identity, d.Client, d.Request)
			w, waits := s.kept.saved.waiter(d.Client, d.Request)
			s.meet(state == lock.RequestWaiting && waits && w.Attached && w.Call != d.Call, stale)
		}
	case lock.Refused:
		j.refused(s, command, r)
	default:
	}
}

func (j *judge) refused(s *system, command lock.Command, r lock.Refused) {
	switch c := command.(type) {
	case lock.Acquire:
		s.meet(r.Reason == lock.ReasonRequestEnded, retriedEnded)
		s.meet(r.Reason == lock.ReasonRequestCancelled, retriedCancelled)
		a := &s.world.asks[s.find(c.Client, c.Request)]
		s.meet(r.Reason == lock.ReasonRequestCancelled && a.lease == 0, forestalledHeard)
		byAge := s.applied.Sub(c.AsOf) > s.Config.MaxWait+s.Config.RetryWindow
		s.meet(r.Reason == lock.ReasonRequestTooOld && byAge, tooOld)
		s.meet(r.Reason == lock.ReasonRequestTooOld && !byAge, acknowledged)
		s.meet(r.Reason == lock.ReasonHeld, held)
		s.meet(r.Reason == lock.ReasonAlreadyHeld, alreadyHeld)
		s.meet(r.Reason == lock.ReasonDeadlock, deadlock)
		s.meet(r.Reason == lock.ReasonLockDelayed, delayed)
		s.meet(r.Reason == lock.ReasonTooManyRequests, tooManyRequests)
	case lock.Renew:
		s.meet(r.Reason == lock.ReasonLeaseEnded, renewRefused)
		s.meet(r.Reason == lock.ReasonHoldTooLong, heldTooLong)
	case lock.Release:
		s.meet(r.Reason == lock.ReasonNotOwner, impostor)
	default:
	}
}

// overdue reports whether a lease's deadline was over at an instant.
func (s *saved) overdue(id lease.ID, now lock.LeaseTime) bool {
	for i := range s.requests {
		if r := &s.requests[i]; r.Stage == lock.StageHeld && r.Claim.Lease == id {
			return r.Lease.Deadline <= now
		}
	}
	return false
}

// waiter is the place in a queue that a request had.
func (s *saved) waiter(client lease.ClientID, id lease.RequestID) (lock.SavedWaiter, bool) {
	requests := s.requests
	for i, c := range s.clients {
		for _, r := range requests[:s.counts[i]] {
			if c.Client == client && r.Request == id && r.Stage == lock.StageWaiting {
				return r.Waiter, true
			}
		}
		requests = requests[s.counts[i]:]
	}
	return lock.SavedWaiter{}, false
}
