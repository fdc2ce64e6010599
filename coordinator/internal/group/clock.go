package group

import (
	"time"

	"github.com/lychgate/lychgate/chaos/seeded"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// leaseClock assigns lease time to the entries of one term of one leader. It is a plain value: the
// monotonic instant comes in as an argument, so that a test can drive it.
//
// A stamp is max(last, min(last + elapsed since last was assigned, committed + limit)). What the limit cuts
// off is gone for good, because elapsed counts from the last stamp and not from an anchor: while nothing can
// commit, lease time stands still and does not catch up afterwards, before anybody could renew.
// Each step is at most the real time between two stamps, so lease time never runs faster than real time.
type leaseClock struct {
	last  lock.LeaseTime
	at    time.Duration // the instant at which last was assigned
	limit time.Duration // how far a stamp may be ahead of the last committed one
}

// startLeaseClock begins a term from the replicated state's lease time. It is only right once the barrier of
// the term has been applied: then every stamp that any earlier leader committed is in state, and at is later
// than the assignment of all of them.
func startLeaseClock(state lock.LeaseTime, at, limit time.Duration) leaseClock {
	if seeded.Is(seeded.ClockOverElection) {
		at -= limit
	}
	return leaseClock{last: state, at: at, limit: limit}
}

// stamp is the lease time of an entry that is proposed at the monotonic instant at, when committed is the
// lease time of the newest entry that this term knows to be applied.
func (c *leaseClock) stamp(at time.Duration, committed lock.LeaseTime) lock.LeaseTime {
	elapsed := max(at-c.at, 0)
	c.last = max(c.last, min(c.last.Add(elapsed), committed.Add(c.limit)))
	if !seeded.Is(seeded.ClockCatchesUp) || c.last < committed.Add(c.limit) {
		c.at = max(c.at, at)
	}
	return c.last
}

// maxClockLimit bounds how much lease time may be assigned while nothing commits.
const maxClockLimit = 2 * time.Second

// clockLimit is the limit for a cluster whose shortest allowed TTL is minTTL: the jump that a stall may end
// with costs a lease at most a quarter of its time.
func clockLimit(minTTL time.Duration) time.Duration {
	return min(maxClockLimit, minTTL/4)
}
