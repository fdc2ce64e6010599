package lock

import (
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// Result is the answer to one command, and the same on every replica. It is sealed: one struct each, below.
// A refusal is a result, never an error.
type Result interface{ result() }

// Grant describes a live lease as it stood right after a command.
type Grant struct {
	Resource lease.Resource
	Lease    lease.ID
	Token    lease.Token
	Mode     lease.Mode
	Identity lease.Identity
	Client   lease.ClientID
	Request  lease.RequestID
	TTL      time.Duration
	Since    LeaseTime
	Deadline LeaseTime
}

// Holder is what others may see of a lease: everything but its id.
type Holder struct {
	Resource lease.Resource
	Hash     lease.IDHash
	Token    lease.Token
	Mode     lease.Mode
	Identity lease.Identity
	Client   lease.ClientID
	Since    LeaseTime
	Deadline LeaseTime
}

// Granted answers an Acquire whose lease is held now.
type Granted struct {
	Grant
	Retried bool // an earlier command of this request took the effect
}

// Waiting answers an Acquire that stands in the queue; how it ends comes as an event.
type Waiting struct {
	Position int // 1 is the head
	Deadline LeaseTime
	Holder   Holder // one of those that hold it
}

// Renewed answers a Renew.
type Renewed struct{ Grant }

// Released answers a Release that ended the lease.
type Released struct{ Holder }

// Cancelled answers a Cancel.
type Cancelled struct {
	Was    RequestState // what the request was right before
	Holder Holder       // the lease that was released, if Was is RequestHeld
}

// RequestState is what an acquire has become.
type RequestState uint8

// The states of a request.
const (
	RequestUnknown RequestState = iota // never seen: the cancel is remembered and the late acquire will be refused
	RequestWaiting
	RequestHeld
	RequestEnded
)

// Broken answers a Break.
type Broken struct {
	Token lease.Token // issued to nobody: everything older is fenced
	Ended []Holder
}

// Done answers the commands that report nothing else.
type Done struct{}

// Refused answers a command that had no effect.
type Refused struct {
	Reason Reason
	Holder Holder        // for ReasonHeld, ReasonAlreadyHeld: who has it
	Limit  time.Duration // for the range reasons: the bound that was passed
	Count  int           // for the count reasons: the bound that was passed
}

// Reason says why a command was refused. Every one of them means: not applied, nothing changed.
type Reason uint8

// The reasons. Their order is in the audit log and on no disk; add at the end.
const (
	ReasonHeld             Reason = iota + 1 // somebody else holds it and the request does not wait
	ReasonAlreadyHeld                        // this client holds or awaits it already (no upgrade, no re-entry)
	ReasonLeaseEnded                         // no such lease: released, expired, broken, or never granted
	ReasonNotOwner                           // the lease belongs to another identity
	ReasonRequestMismatch                    // the request id was used with other parameters
	ReasonRequestTooOld                      // outside the de-duplication window: not executed
	ReasonRequestEnded                       // a retry of an acquire whose lease or wait has ended
	ReasonRequestCancelled                   // cancelled before or after it came
	ReasonTTLTooShort
	ReasonTTLTooLong
	ReasonWaitTooLong
	ReasonModeNotAllowed
	ReasonTooManyWaiters
	ReasonTooManyRequests // remembered requests of this client
	ReasonTokensExhausted // the incarnation's 2^40 grants are used up
	ReasonNotInitialised
	ReasonResourceFree // Break of a resource that nobody holds
)

func (Granted) result()   {}
func (Waiting) result()   {}
func (Renewed) result()   {}
func (Released) result()  {}
func (Cancelled) result() {}
func (Broken) result()    {}
func (Done) result()      {}
func (Refused) result()   {}
