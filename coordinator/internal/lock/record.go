package lock

import "github.com/lychgate/lychgate/coordinator/lease"

// The records of the machine's state. A client has requests; a request that waits or holds has a claim. All else (queues, indexes, timers) is derived from them and rebuilt on restore.

// clientRecord is one (identity, client id) that has requests, or acknowledged some lately.
type clientRecord struct {
	identity     lease.Identity
	seq          uint64
	acknowledged uint64    // requests numbered up to it are refused as too old
	until        LeaseTime // acknowledged is remembered at least so long

	name      uint32 // see nameIn
	list      uint32 // derived: the requests numbered above acknowledged, ascending; see numberedAt
	numbered  uint32 // derived: how many they are
	tenant    slot   // derived
	requests  int32  // derived
	nameClass uint8
	listClass uint8
}

func (c clientRecord) live() bool { return c.seq != 0 }

// requestRecord remembers one acquire, or a cancel that came before its acquire, and what is often looked at of its lease:
// the slot of a lease is its request's. The rest stands in its text. It has no pointers, so that a million of them are
// nothing to the garbage collector.
type requestRecord struct {
	seq       uint64
	due       LeaseTime // of a lease its deadline; of one that is over when it is forgotten
	client    slot
	behind    uint32 // of a lease: its own sequence number less seq, or 0 if the terms say it
	cell      uint32 // see text
	class     uint8
	stage     Stage
	mode      lease.Mode // of a claim
	unclaimed bool       // of a lease: granted to a waiter that has not renewed yet
}

// text is where its words and terms are.
func (r *requestRecord) text() text { return text{r.cell, r.class} }

func (r requestRecord) live() bool { return r.seq != 0 }

// Stage is what has become of a request. The numbers are in snapshots and stay.
type Stage uint8

// The stages.
const (
	StageWaiting     Stage = iota + 1 // has a claim, and a waiter
	StageHeld                         // has a claim, which is a lease
	StageEnded                        // its lease or its wait is over
	StageCancelled                    // the same, by its own cancel
	StageForestalled                  // only its cancel has been seen
)

// over says that nothing is left of the request but the memory of it.
func (s Stage) over() bool { return s >= StageEnded }

// waiterRecord is a claim in its resource's queue. Its place there is its request's sequence number.
type waiterRecord struct {
	seq      uint64
	deadline LeaseTime
	grace    LeaseTime // an unattached waiter leaves then
	call     uint64    // the call that waits, or waited last
	request  slot
	mode     lease.Mode
	attached bool // its caller is there
}

func (w waiterRecord) live() bool { return w.seq != 0 }

// ends is when the waiter leaves the queue if nothing else happens.
func (w waiterRecord) ends() LeaseTime {
	if w.attached {
		return w.deadline
	}
	return min(w.deadline, w.grace)
}
