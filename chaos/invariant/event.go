package invariant

import (
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// Instant is a moment on the clock by which the history is judged: lease time for a log, a perfect clock outside of
// the system where early expiry is looked for.
type Instant time.Duration

// Add returns t moved by d.
func (t Instant) Add(d time.Duration) Instant { return t + Instant(d) }

// Event is one step of a history. Each rule looks at the kinds that concern it.
type Event interface{ event() }

// Request names an acquire across its copies.
type Request struct {
	Identity lease.Identity
	Client   lease.ClientID
	ID       lease.RequestID
}

// Granted is the beginning of a lease.
type Granted struct {
	At       Instant
	Resource lease.Resource
	Lease    lease.IDHash
	Token    lease.Token
	Mode     lease.Mode
	Request  Request
	TTL      time.Duration // how long it stands without a renewal, from At
	AsOf     Instant       // of the copy that took effect; ignored if the request stood in a queue
}

// Renewed is an extension of a lease.
type Renewed struct {
	At    Instant
	Lease lease.IDHash
	By    lease.Identity
	TTL   time.Duration
}

// Ended is the end of a lease.
type Ended struct {
	At    Instant
	Lease lease.IDHash
	Cause Cause
	By    lease.Identity // who released or cancelled it
}

// Cause is why a lease ended.
type Cause uint8

// The causes.
const (
	Released  Cause = iota + 1
	Cancelled       // through its request
	Expired
	Broken // by an administrator
)

// Queued is a request's taking its place at the end of a queue.
type Queued struct {
	At       Instant
	Resource lease.Resource
	Request  Request
	Mode     lease.Mode
	Attached bool // its caller is there
	Deadline Instant
	AsOf     Instant
}

// Attached is a caller's coming back to a queued request.
type Attached struct{ Request Request }

// Detached is a caller's going away from a queued request.
type Detached struct{ Request Request }

// Elected is a leader's beginning: all callers are gone, and until HeadStart only heads of queues are granted.
type Elected struct{ HeadStart Instant }

// Unqueued is a request's leaving the queue without a grant.
type Unqueued struct {
	At      Instant
	Request Request
}

// Forestalled is the cancel of a request that was never seen: it must not take effect later.
type Forestalled struct {
	At      Instant
	Request Request
	AsOf    Instant
}

// Reported is the answer to a retry of an acquire.
type Reported struct {
	Request Request
	State   State
	Lease   lease.IDHash // when held
	Token   lease.Token  // when held
}

// State is what a retry reports.
type State uint8

// The states.
const (
	Waiting State = iota + 1
	Held
	Over
)

// TokenIssued is a token given to nobody, by an administrator's break.
type TokenIssued struct {
	Resource lease.Resource
	Token    lease.Token
}

// FloorRaised is a store's raising or confirming a floor.
type FloorRaised struct {
	Resource lease.Resource
	Token    lease.Token
}

// FloorRead is a floor as a store has it, after a restart for instance.
type FloorRead struct {
	Resource lease.Resource
	Token    lease.Token
}

// WriteAccepted is a write that took effect in a store, carried by a token.
type WriteAccepted struct {
	Resource lease.Resource
	Token    lease.Token
}

// Stored says which replicas have a log entry in their logs when it first takes effect anywhere. The steps from here
// to the next Stored are that entry's.
type Stored struct {
	Index    uint64
	Replicas []string
}

// Applied is the digest of a replica's state after a log index.
type Applied struct {
	Replica string
	Index   uint64
	Digest  [32]byte
}

func (Granted) event()       {}
func (Renewed) event()       {}
func (Ended) event()         {}
func (Queued) event()        {}
func (Attached) event()      {}
func (Detached) event()      {}
func (Elected) event()       {}
func (Unqueued) event()      {}
func (Forestalled) event()   {}
func (Reported) event()      {}
func (TokenIssued) event()   {}
func (FloorRaised) event()   {}
func (FloorRead) event()     {}
func (WriteAccepted) event() {}
func (Stored) event()        {}
func (Applied) event()       {}
