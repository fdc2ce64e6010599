package lock

import (
	"cmp"
	"time"
)

// A bucket of acquires, in whole numbers, so that every replica reckons the same: its level is in billionths of an
// acquire, and rises by the rate with each nanosecond of lease time.

// oneAcquire is an acquire in the unit of levels.
const oneAcquire = int64(time.Second)

// burst is how many acquires the bucket holds.
func (p *policyRecord) burst() int64 {
	if p.policy.AcquireBurst != nil {
		return *p.policy.AcquireBurst
	}
	return *p.policy.AcquireRate
}

// refill brings the level to an instant.
func (p *policyRecord) refill(now LeaseTime) {
	full, rate := p.burst()*oneAcquire, *p.policy.AcquireRate
	if missing := full - p.level; int64(now-p.at) > missing/rate {
		p.level = full
	} else {
		p.level += int64(now-p.at) * rate
	}
	p.at = now
}

// take takes one acquire out, or says in how much lease time there is one.
func (p *policyRecord) take(now LeaseTime) (wait time.Duration) {
	p.refill(now)
	if p.level >= oneAcquire {
		p.level -= oneAcquire
		return 0
	}
	rate := *p.policy.AcquireRate
	return time.Duration((oneAcquire - p.level + rate - 1) / rate)
}

// filling reports whether the bucket was not full when it was used last and may still not be.
func (p *policyRecord) filling(now LeaseTime) bool {
	if p.policy.AcquireRate == nil {
		return false
	}
	missing := p.burst()*oneAcquire - p.level
	return cmp.Compare(int64(now-p.at), missing / *p.policy.AcquireRate) <= 0 && missing > 0
}
