package locktest

import (
	"github.com/lychgate/lychgate/chaos/invariant"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// fate is what one entry made of leases and requests by its end: an answer to a command of it need not stand then.
type fate struct {
	began, ended map[period]bool
	left         map[invariant.Request]bool // the queue; not back in it
}

func newFate(events []lock.Event) fate {
	f := fate{began: make(map[period]bool), ended: make(map[period]bool), left: make(map[invariant.Request]bool)}
	for _, event := range events {
		switch e := event.(type) {
		case lock.LeaseGranted:
			f.began[period{e.Lease.Hash(), e.Token}] = true
			f.left[requestOf(e.Identity, e.Client, e.Request)] = true
		case lock.LeaseEnded:
			f.ended[period{e.Hash, e.Token}] = true
		case lock.WaitStarted:
			f.left[requestOf(e.Identity, e.Client, e.Request)] = false
		case lock.WaitEnded:
			f.left[requestOf(e.Identity, e.Client, e.Request)] = true
		case lock.WaitAttached, lock.WaitDetached, lock.ResourceBroken, lock.KeyAdded, lock.LeaderStarted,
			lock.KeyRetired, lock.KeyDropped, lock.PolicyChanged, lock.VersionRaised, lock.MemberChanged, lock.Recovered:
		}
	}
	return f
}
