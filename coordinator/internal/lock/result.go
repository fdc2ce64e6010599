package lock

import (
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// Result is the answer to one command, and the same on every replica. It is sealed: one struct each, below.
// A refusal is a result, never an error.
//
//sumtype:decl
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
	Retried bool // the request was known: an earlier command of it took the lease or stood in the queue
}

// Waiting answers an Acquire that stands in the queue; how it ends comes as an event.
type Waiting struct {
	Position int // 1 is the head
	Deadline LeaseTime
	Holder   Holder // one of those that hold it; without Hash and Token if it is kept for the head; zero if this is the head
}

// Renewed answers a Renew.
type Renewed struct{ Grant }

// RenewedMany answers a RenewMany: what became of each lease, in their order.
type RenewedMany struct {
	Renewals []Renewal
	// Grants describes the same leases as they stood right after their renewals; nil, unless Machine.DescribeRenewals wants
	// them. That of a lease whose renewal was refused is zero.
	Grants []Grant
}

// Renewal is what became of one lease of a RenewMany. It says no more than every caller needs: most commands are of this
// kind, and to describe a lease costs more than to renew it.
type Renewal struct {
	Token    lease.Token
	Deadline LeaseTime
	Refused  *Refused // why it was not renewed; nil: it was
}

// Released answers a Release that ended the lease.
type Released struct{ Holder }

// Cancelled answers a Cancel.
type Cancelled struct {
	Was    RequestState // what the request was right before
	Holder Holder       // the lease, if Was is RequestHeld; it was released unless Cancel.TimedOut
	// If Was is RequestWaiting: its last place, and who was in its way, as in Waiting.
	Position int
	Blocker  Holder
}

// RequestState is what an acquire has become.
type RequestState uint8

// The states of a request.
const (
	RequestUnknown RequestState = iota // never seen: a cancel is remembered and the late acquire will be refused
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
	// Holder is, for ReasonHeld and ReasonAlreadyHeld, who has the resource. Right after an election a free one
	// may be kept for the head of its queue, and this client may merely await it: then Hash and Token are zero.
	Holder Holder
	Limit  time.Duration // for the range reasons: the bound that was passed
	Count  int           // for the count reasons: the bound that was passed
	// Cycle is, for ReasonDeadlock, who would have waited for one another: the caller, whom it would have waited for,
	// whom that one waits for, and so on; the last one waits for the caller.
	Cycle []Owner
	// RetryAfter is, for ReasonRateLimited and ReasonLockDelayed, the lease time after which it is worth another try.
	RetryAfter time.Duration
}

// Reason says why a command was refused. Every one of them means: not applied, nothing changed
// (but what an Acquire said with Acknowledged is heard even then).
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
	ReasonRequestAhead  // AsOf is more than the window ahead of the cluster: another cluster's, or another group's
	ReasonLeaseIDTaken  // the new lease's id is zero or in use: a fault of the node that made it
	ReasonConfigInvalid // of Init: see Config.Validate
	ReasonDeadlock      // the request would wait for itself
	ReasonTooManyLeases // of this tenant
	ReasonRateLimited   // acquires of this tenant
	ReasonHoldTooLong   // the lease has come to the longest hold of its policy
	ReasonLockDelayed   // the last lease expired, and the policy keeps the resource closed
	ReasonNoSuchWait    // of KillWait: the deadlock is not there any more
	ReasonPolicyInvalid // a field does not fit the target, the others or the Config, or a bound is below another
	ReasonNoSuchPolicy
	ReasonTooManyPolicies
	ReasonNoSuchKey
	ReasonTooManyKeys
	ReasonMemberInvalid // an id or address is missing or too long
	ReasonNoSuchMember
	ReasonTooManyMembers
	ReasonOtherCluster       // of Recover
	ReasonIncarnationTooLow  // of Recover: it is not above the cluster's
	ReasonIncarnationTooHigh // of Recover: tokens have no room for it
	ReasonTooManyTenantRequests
)

func (Granted) result()     {}
func (Waiting) result()     {}
func (Renewed) result()     {}
func (RenewedMany) result() {}
func (Released) result()    {}
func (Cancelled) result()   {}
func (Broken) result()      {}
func (Done) result()        {}
func (Refused) result()     {}
