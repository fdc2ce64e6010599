package lock

import "github.com/lychgate/lychgate/coordinator/lease"

// Event is something that became true in the machine. It is sealed: one struct each, below.
//
// One command may cause several; their order is part of the replicated outcome.
// Renewals cause none: they are the bulk of the load and change nothing that others see.
//
//sumtype:decl
type Event interface{ event() }

// LeaseGranted says that a lease began, for the request named in Grant.
type LeaseGranted struct {
	Grant
	Late bool // to a waiter: its caller learns of it from this event, not from its command's result
}

// LeaseEnded says that a lease is over.
type LeaseEnded struct {
	Holder
	Cause   EndCause
	Request lease.RequestID
}

// EndCause is why a lease ended.
type EndCause uint8

// The causes.
const (
	EndReleased EndCause = iota + 1
	EndExpired
	EndUnclaimed // granted to a waiter that did not confirm within the claim window
	EndCancelled
	EndBroken
	EndRecovered // by Recover
)

// WaitStarted says that a request stands at the end of a queue.
type WaitStarted struct {
	Resource lease.Resource
	Identity lease.Identity
	Client   lease.ClientID
	Request  lease.RequestID
	Mode     lease.Mode
	Attached bool // its caller is there
	Deadline LeaseTime
}

// WaitAttached says that a call waits for a queued request again.
type WaitAttached struct {
	Resource lease.Resource
	Identity lease.Identity
	Client   lease.ClientID
	Request  lease.RequestID
}

// WaitDetached says that a queued request's caller went away. After an election LeaderStarted says it for all.
type WaitDetached struct {
	Resource lease.Resource
	Identity lease.Identity
	Client   lease.ClientID
	Request  lease.RequestID
}

// WaitEnded says that a waiter left the queue without a grant.
type WaitEnded struct {
	Resource lease.Resource
	Identity lease.Identity
	Client   lease.ClientID
	Request  lease.RequestID
	Cause    WaitCause
	Position int     // its last place; 1 is the head
	Blocker  Holder  // who was in its way, as in Waiting
	Cycle    []Owner // of WaitDeadlocked
}

// WaitCause is why a wait ended.
type WaitCause uint8

// The causes.
const (
	WaitTimedOut WaitCause = iota + 1
	WaitCancelled
	WaitAbandoned  // unattached for longer than the grace
	WaitDeadlocked // by KillWait
	WaitRecovered  // by Recover
)

// ResourceBroken says that a token was issued to nobody.
type ResourceBroken struct {
	Resource lease.Resource
	Token    lease.Token
	By       lease.Identity
}

// KeyAdded says that a node's ticket key became known.
type KeyAdded struct {
	Node  string
	KeyID string
}

// LeaderStarted says that a leader began its term and every waiter is unattached.
type LeaderStarted struct {
	Node string
	Term uint64
}

func (LeaseGranted) event()   {}
func (LeaseEnded) event()     {}
func (WaitStarted) event()    {}
func (WaitAttached) event()   {}
func (WaitDetached) event()   {}
func (WaitEnded) event()      {}
func (ResourceBroken) event() {}
func (KeyAdded) event()       {}
func (LeaderStarted) event()  {}
