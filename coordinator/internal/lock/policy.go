package lock

import (
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// TargetKind says what a policy is about.
type TargetKind uint8

// The kinds. The numbers are in logs and snapshots and stay.
const (
	TargetPrefix TargetKind = iota + 1 // the resources whose names begin with Target.Name
	TargetTenant                       // the identities of the tenant Target.Name: see lease.Identity.Tenant
)

// Target is what a policy is about. The prefix "" is every resource, the tenant "" is who has none.
type Target struct {
	Kind TargetKind
	Name string
}

// Policy is what the resources with a prefix, or a tenant, may do. An absent (nil) field takes the value of the next
// shorter prefix, at last the cluster's Config. Nothing that exists ends when a policy changes.
type Policy struct {
	// Of a prefix. The bounds of TTLs lie within those of the Config.
	DefaultTTL *time.Duration
	MinTTL     *time.Duration
	MaxTTL     *time.Duration
	MaxHold    *time.Duration // a lease does not outlive its grant by more; 0: without end
	LockDelay  *time.Duration // how long a resource stays closed after a lease on it expired
	Exclusive  *bool          // the mode is allowed; absent: it is
	Shared     *bool
	// Of a prefix: the waiters of one resource. Of a tenant: all of its.
	MaxWaiters *int
	// Of a tenant. Waiters count as leases, so that no grant passes the bound.
	MaxLeases    *int64
	AcquireRate  *int64 // new acquires a second, refused ones included
	AcquireBurst *int64 // how many at once after a pause; absent: as many as in one second
}

// TargetedPolicy is a policy with what it is about.
type TargetedPolicy struct {
	Target Target
	Policy Policy
}

// PutPolicy sets the policy of a target, in place of the one that it had.
type PutPolicy struct {
	By     lease.Identity
	Target Target
	Policy Policy
}

// DeletePolicy takes a target's policy away; refused with ReasonNoSuchPolicy if it has none.
type DeletePolicy struct {
	By     lease.Identity
	Target Target
}

func (PutPolicy) command()    {}
func (DeletePolicy) command() {}

// PolicyChanged says that a target has another policy, or none any more.
type PolicyChanged struct {
	By      lease.Identity
	Target  Target
	Deleted bool
}

func (PolicyChanged) event() {}
