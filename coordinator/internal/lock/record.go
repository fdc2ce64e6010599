package lock

import (
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// The records of the machine's state. A client has requests; a request that waits or holds has a claim, kept as a
// waiter or as a lease. All else (queues, indexes, timers) is derived from them and rebuilt on restore.

// clientRecord is one (identity, client id) that has requests, or acknowledged some lately.
type clientRecord struct {
	identity     lease.Identity
	name         lease.ClientID
	seq          uint64
	acknowledged uint64    // requests numbered up to it are refused as too old
	until        LeaseTime // acknowledged is remembered at least so long

	numbered []slot // derived: the requests numbered above acknowledged, ascending
	tenant   slot   // derived
	requests int32  // derived
}

func (c clientRecord) live() bool { return c.seq != 0 }

// requestRecord remembers one acquire, or a cancel that came before its acquire. It has no pointers, as the leases have
// none, so that a million of them are nothing to the garbage collector.
type requestRecord struct {
	seq         uint64
	fingerprint uint64    // of the parameters that a retry must repeat
	until       LeaseTime // once past it, every copy of the request is too old
	sequence    uint64    // the client's own number, or 0
	client      slot
	claim       slot   // of the waiter or lease, while stage is waiting or held
	cell        uint32 // see text
	class       uint8
	stage       Stage
}

// text is where its words are.
func (r *requestRecord) text() text { return text{r.cell, r.class} }

func (r requestRecord) live() bool { return r.seq != 0 }

// Stage is what has become of a request. The numbers are in snapshots and stay.
type Stage uint8

// The stages.
const (
	StageWaiting     Stage = iota + 1 // has a claim, kept as a waiter
	StageHeld                         // has a claim, kept as a lease
	StageEnded                        // its lease or its wait is over
	StageCancelled                    // the same, by its own cancel
	StageForestalled                  // only its cancel has been seen
)

// over says that nothing is left of the request but the memory of it.
func (s Stage) over() bool { return s >= StageEnded }

// claim is what a request asks for. The resource and the owner are among the request's words.
type claim struct {
	id        lease.ID
	ttl       time.Duration
	request   slot
	mode      lease.Mode
	owned     bool // there is an owner
	unclaimed bool // of a lease: granted to a waiter that has not renewed yet
}

// waiterRecord is a claim in its resource's queue. Its place there is its request's sequence number.
type waiterRecord struct {
	claim
	seq      uint64
	deadline LeaseTime
	grace    LeaseTime // an unattached waiter leaves then
	call     uint64    // the call that waits, or waited last
	attached bool      // its caller is there
}

func (w waiterRecord) live() bool { return w.seq != 0 }

// ends is when the waiter leaves the queue if nothing else happens.
func (w waiterRecord) ends() LeaseTime {
	if w.attached {
		return w.deadline
	}
	return min(w.deadline, w.grace)
}

// leaseRecord is a claim that was granted.
type leaseRecord struct {
	claim
	seq      uint64 // of the grant: orders leases that have the same deadline
	token    lease.Token
	since    LeaseTime
	deadline LeaseTime
}

func (l leaseRecord) live() bool { return l.seq != 0 }
