package lock

import (
	"cmp"
	"slices"
	"strings"
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
	MaxRequests  *int64 // remembered ones, live ones included; absent: Config.MaxTenantRequests
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

// policyRecord is a policy with how far its bucket is filled. The policies are replicated state; what they come to is
// derived.
type policyRecord struct {
	target Target
	policy Policy
	level  int64     // of the bucket, in billionths of an acquire
	at     LeaseTime // when it was so

	outer int   // derived, of a prefix: index of the next shorter one that is a prefix of it, or -1
	rules rules // derived, of a prefix
}

// The bounds of policies.
const (
	maxPolicies       = 1000
	maxPolicyWaiters  = 100_000
	maxPolicyAcquires = 1_000_000 // a second, and at once
	maxPolicyLeases   = 1_000_000_000
)

func (m *Machine) putPolicy(c PutPolicy) Result {
	if !m.fits(c.Target, c.Policy) {
		return Refused{Reason: ReasonPolicyInvalid}
	}
	at, found := m.findPolicy(c.Target)
	if !found && len(m.policies) >= maxPolicies {
		return Refused{Reason: ReasonTooManyPolicies, Count: maxPolicies}
	}
	changed := slices.Clone(m.policies) // a refusal leaves the old ones as they are
	if !found {
		changed = slices.Insert(changed, at, policyRecord{})
	}
	changed[at] = m.newPolicy(c.Target, c.Policy)
	return m.changePolicies(changed, PolicyChanged{By: c.By, Target: c.Target})
}

// newPolicy is a policy whose bucket is full.
func (m *Machine) newPolicy(target Target, policy Policy) policyRecord {
	p := policyRecord{target: target, policy: policy}
	if policy.AcquireRate != nil {
		p.level, p.at = p.burst()*oneAcquire, m.now
	}
	return p
}

func (m *Machine) deletePolicy(c DeletePolicy) Result {
	at, found := m.findPolicy(c.Target)
	if !found {
		return Refused{Reason: ReasonNoSuchPolicy}
	}
	changed := slices.Delete(slices.Clone(m.policies), at, at+1)
	return m.changePolicies(changed, PolicyChanged{By: c.By, Target: c.Target, Deleted: true})
}

// changePolicies takes other policies if they make sense together.
func (m *Machine) changePolicies(policies []policyRecord, event PolicyChanged) Result {
	if !settlePolicies(policies, rulesOf(m.config)) {
		return Refused{Reason: ReasonPolicyInvalid}
	}
	m.policies = policies
	m.emit(event)
	return Done{}
}

func (m *Machine) findPolicy(t Target) (int, bool) {
	return slices.BinarySearchFunc(m.policies, t, func(p policyRecord, t Target) int { return compareTargets(p.target, t) })
}

func compareTargets(a, b Target) int {
	return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Name, b.Name))
}

// tenantPolicy finds the policy of an identity's tenant, nil if there is none.
func (m *Machine) tenantPolicy(by lease.Identity) *policyRecord {
	if len(m.policies) == 0 {
		return nil
	}
	at, found := m.findPolicy(Target{TargetTenant, by.Tenant()})
	if !found {
		return nil
	}
	return &m.policies[at]
}

// Policies lists the policies: prefixes, then tenants, each in order. The caller must not change what they point to.
func (m *Machine) Policies() []TargetedPolicy {
	all := make([]TargetedPolicy, len(m.policies))
	for i, p := range m.policies {
		all[i] = TargetedPolicy{Target: p.target, Policy: p.policy}
	}
	return all
}

// rules are what policies come to for one resource.
type rules struct {
	defaultTTL, minTTL, maxTTL time.Duration
	maxHold, lockDelay         time.Duration // 0: none
	maxWaiters                 int
	exclusive, shared          bool
}

// rulesOf are those of a resource that no policy is about.
func rulesOf(c Config) rules {
	return rules{
		defaultTTL: c.DefaultTTL, minTTL: c.MinTTL, maxTTL: c.MaxTTL, maxWaiters: c.MaxWaiters, exclusive: true, shared: true,
	}
}

func (r rules) allows(mode lease.Mode) bool {
	switch mode {
	case lease.Exclusive:
		return r.exclusive
	case lease.Shared:
		return r.shared
	}
	return false
}

// checkTTL refuses a TTL outside of the bounds; 0 stands for a default and is always good.
func (r rules) checkTTL(ttl time.Duration) Result {
	switch {
	case ttl == 0:
		return nil
	case ttl < r.minTTL:
		return Refused{Reason: ReasonTTLTooShort, Limit: r.minTTL}
	case ttl > r.maxTTL:
		return Refused{Reason: ReasonTTLTooLong, Limit: r.maxTTL}
	}
	return nil
}

// rulesFor finds the rules of a resource: those of its longest prefix that has a policy. Of two prefixes of one name the
// shorter is a prefix of the longer, so from the last policy that is not behind the name the outer ones lead to it.
func (m *Machine) rulesFor(name lease.Resource) *rules {
	if len(m.policies) == 0 {
		return &m.rules
	}
	at, found := m.findPolicy(Target{TargetPrefix, string(name)})
	if !found {
		at--
	}
	for at >= 0 && !strings.HasPrefix(string(name), m.policies[at].target.Name) {
		at = m.policies[at].outer
	}
	if at < 0 {
		return &m.rules
	}
	return &m.policies[at].rules
}

// settlePolicies derives what each prefix's policy comes to, with what it inherits. It reports whether all make sense.
func settlePolicies(policies []policyRecord, base rules) bool {
	for i := range policies {
		p := &policies[i]
		if p.target.Kind != TargetPrefix {
			break // tenants are behind the prefixes
		}
		p.outer = i - 1
		for p.outer >= 0 && !strings.HasPrefix(p.target.Name, policies[p.outer].target.Name) {
			p.outer = policies[p.outer].outer
		}
		p.rules = base
		if p.outer >= 0 {
			p.rules = policies[p.outer].rules
		}
		if !p.rules.narrow(p.policy) {
			return false
		}
	}
	return true
}

// narrow replaces what the policy sets. A default that was not set for these bounds moves to the nearest one.
func (r *rules) narrow(p Policy) bool {
	set(&r.minTTL, p.MinTTL)
	set(&r.maxTTL, p.MaxTTL)
	set(&r.defaultTTL, p.DefaultTTL)
	set(&r.maxHold, p.MaxHold)
	set(&r.lockDelay, p.LockDelay)
	set(&r.maxWaiters, p.MaxWaiters)
	set(&r.exclusive, p.Exclusive)
	set(&r.shared, p.Shared)
	if r.minTTL > r.maxTTL || r.maxHold != 0 && r.maxHold < r.minTTL {
		return false
	}
	if p.DefaultTTL == nil {
		r.defaultTTL = max(r.minTTL, min(r.defaultTTL, r.maxTTL))
	}
	return r.minTTL <= r.defaultTTL && r.defaultTTL <= r.maxTTL
}

func set[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// fits checks a policy by itself: that its fields are of its target's kind, and each within its bounds.
func (m *Machine) fits(t Target, p Policy) bool {
	ttl := func(d *time.Duration) bool { return within(d, m.config.MinTTL, m.config.MaxTTL) }
	switch t.Kind {
	case TargetPrefix:
		return len(t.Name) <= lease.MaxResource && p.MaxLeases == nil && p.MaxRequests == nil && p.AcquireRate == nil && p.AcquireBurst == nil &&
			ttl(p.DefaultTTL) && ttl(p.MinTTL) && ttl(p.MaxTTL) && within(p.MaxHold, 0, maxDuration) &&
			within(p.LockDelay, 0, m.config.MaxTTL) && within(p.MaxWaiters, 0, maxPolicyWaiters)
	case TargetTenant:
		return len(t.Name) <= lease.MaxResource && p.DefaultTTL == nil && p.MinTTL == nil && p.MaxTTL == nil && p.MaxHold == nil &&
			p.LockDelay == nil && p.Exclusive == nil && p.Shared == nil && within(p.MaxWaiters, 0, maxPolicyLeases) &&
			within(p.MaxLeases, 0, maxPolicyLeases) && within(p.MaxRequests, 1, maxPolicyLeases) &&
			within(p.AcquireRate, 1, maxPolicyAcquires) &&
			within(p.AcquireBurst, 1, maxPolicyAcquires) && (p.AcquireBurst == nil || p.AcquireRate != nil)
	}
	return false
}

// within reports whether a value that is set lies between two others.
func within[T cmp.Ordered](v *T, least, most T) bool { return v == nil || least <= *v && *v <= most }
