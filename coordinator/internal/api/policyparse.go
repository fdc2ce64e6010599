package api

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// The state machine's bounds of policies. It has the last word: what it refuses besides has no field of its own.
const (
	maxPolicyWaiters  = 100_000
	maxPolicyAcquires = 1_000_000
	maxPolicyLeases   = 1_000_000_000
)

// parsePolicy checks a policy as far as it can be checked without the cluster's own bounds.
func parsePolicy(in *lockpb.Policy) (lock.Target, lock.Policy, *refusal) {
	var target lock.Target
	var refused *refusal
	switch of := in.GetOf().(type) {
	case *lockpb.Policy_Prefix:
		target, refused = prefixTarget(of.Prefix)
	case *lockpb.Policy_Tenant:
		target, refused = tenantTarget(of.Tenant)
	default:
		refused = invalid("prefix", "a policy is of a prefix or of a tenant")
	}
	if refused != nil {
		return lock.Target{}, lock.Policy{}, refused
	}
	p := policyParser{kind: target.Kind}
	policy := lock.Policy{
		DefaultTTL: p.duration("default_ttl", in.DefaultTtl, 1),
		MinTTL:     p.duration("min_ttl", in.MinTtl, 1),
		MaxTTL:     p.duration("max_ttl", in.MaxTtl, 1),
		MaxHold:    p.duration("max_hold", in.MaxHold, 0),
		LockDelay:  p.duration("lock_delay", in.LockDelay, 0),
		Exclusive:  p.flag("exclusive", in.Exclusive),
		Shared:     p.flag("shared", in.Shared),
		MaxWaiters: p.waiters(in.MaxWaiters),
		MaxLeases:  p.count("max_leases", in.MaxLeases, 0, maxPolicyLeases),
		// A rate or memory of 0 would be a tenant that cannot acquire: that is what access rules are for.
		MaxRequests:  p.count("max_requests", in.MaxRequests, 1, maxPolicyLeases),
		AcquireRate:  p.count("acquire_rate", in.AcquireRate, 1, maxPolicyAcquires),
		AcquireBurst: p.count("acquire_burst", in.AcquireBurst, 1, maxPolicyAcquires),
	}
	p.together(in)
	return target, policy, p.refused
}

func parseTarget(in *lockpb.DeletePolicyRequest) (lock.Target, *refusal) {
	switch of := in.GetOf().(type) {
	case *lockpb.DeletePolicyRequest_Prefix:
		return prefixTarget(of.Prefix)
	case *lockpb.DeletePolicyRequest_Tenant:
		return tenantTarget(of.Tenant)
	}
	return lock.Target{}, invalid("prefix", "a policy is of a prefix or of a tenant")
}

func prefixTarget(prefix string) (lock.Target, *refusal) {
	if prefix != "" {
		if _, err := lease.ParseResource(strings.TrimSuffix(prefix, "/")); err != nil {
			return lock.Target{}, invalid("prefix", "prefix"+strings.TrimPrefix(err.Error(), "resource"))
		}
	}
	return lock.Target{Kind: lock.TargetPrefix, Name: prefix}, nil
}

func tenantTarget(tenant string) (lock.Target, *refusal) {
	if tenant != "" {
		if id, err := lease.ParseIdentity(tenant + ":x"); err != nil || id.Tenant() != tenant {
			return lock.Target{}, invalid("tenant", fmt.Sprintf("tenant %q is not the beginning of an identity before its first \":\"", tenant))
		}
	}
	return lock.Target{Kind: lock.TargetTenant, Name: tenant}, nil
}

// policyParser reads the fields of a policy. The first refusal stays.
type policyParser struct {
	kind    lock.TargetKind
	refused *refusal
}

func (p *policyParser) refuse(field, format string, args ...any) {
	if p.refused == nil {
		p.refused = invalid(field, field+" "+fmt.Sprintf(format, args...))
	}
}

// of refuses a field that policies of this kind do not have.
func (p *policyParser) of(kind lock.TargetKind, field string) {
	if p.kind != kind {
		p.refuse(field, "is of a policy of a %s, not of a %s", kind, p.kind)
	}
}

func (p *policyParser) duration(field string, ms *int64, least int64) *time.Duration {
	if ms == nil {
		return nil
	}
	p.of(lock.TargetPrefix, field)
	if *ms < least || *ms > math.MaxInt32 {
		p.refuse(field, "%d ms is not between %d and %d", *ms, least, math.MaxInt32)
	}
	d := time.Duration(*ms) * time.Millisecond
	return &d
}

func (p *policyParser) flag(field string, allowed *bool) *bool {
	if allowed != nil {
		p.of(lock.TargetPrefix, field)
	}
	return allowed
}

func (p *policyParser) count(field string, n *int64, least, most int64) *int64 {
	if n == nil {
		return nil
	}
	p.of(lock.TargetTenant, field)
	p.within(field, *n, least, most)
	return n
}

func (p *policyParser) within(field string, n, least, most int64) {
	if n < least || n > most {
		p.refuse(field, "%d is not between %d and %d", n, least, most)
	}
}

func (p *policyParser) waiters(n *int32) *int {
	if n == nil {
		return nil
	}
	most := int64(maxPolicyLeases)
	if p.kind == lock.TargetPrefix {
		most = maxPolicyWaiters
	}
	p.within("max_waiters", int64(*n), 0, most)
	waiters := int(*n)
	return &waiters
}

// together refuses fields that contradict one another.
func (p *policyParser) together(in *lockpb.Policy) {
	above := func(low, high *int64) bool { return low != nil && high != nil && *low > *high }
	switch {
	case above(in.MinTtl, in.MaxTtl):
		p.refuse("min_ttl", "%d ms is above max_ttl, %d ms", in.GetMinTtl(), in.GetMaxTtl())
	case above(in.DefaultTtl, in.MaxTtl):
		p.refuse("default_ttl", "%d ms is above max_ttl, %d ms", in.GetDefaultTtl(), in.GetMaxTtl())
	case above(in.MinTtl, in.DefaultTtl):
		p.refuse("default_ttl", "%d ms is below min_ttl, %d ms", in.GetDefaultTtl(), in.GetMinTtl())
	case in.GetMaxHold() != 0 && above(in.MinTtl, in.MaxHold):
		p.refuse("max_hold", "%d ms is below min_ttl, %d ms", in.GetMaxHold(), in.GetMinTtl())
	case in.Exclusive != nil && in.Shared != nil && !in.GetExclusive() && !in.GetShared():
		p.refuse("exclusive", "and shared are both off: nothing could be acquired")
	case in.AcquireBurst != nil && in.AcquireRate == nil:
		p.refuse("acquire_burst", "is given without acquire_rate")
	}
}

// fits refuses the TTLs that the cluster's own bounds do not allow. Bounds that come from shorter prefixes are looked at
// by the state machine.
func fits(p lock.Policy, c lock.Config) *refusal {
	if c.MaxTTL == 0 { // not known here yet; the machine looks at it, too
		return nil
	}
	for _, field := range []struct {
		name string
		ttl  *time.Duration
	}{{"min_ttl", p.MinTTL}, {"default_ttl", p.DefaultTTL}, {"max_ttl", p.MaxTTL}} {
		switch {
		case field.ttl == nil:
		case *field.ttl < c.MinTTL:
			return invalid(field.name, fmt.Sprintf("%s %d ms is below the cluster's shortest TTL, %d ms", field.name, field.ttl.Milliseconds(), c.MinTTL.Milliseconds()))
		case *field.ttl > c.MaxTTL:
			return invalid(field.name, fmt.Sprintf("%s %d ms is above the cluster's longest TTL, %d ms", field.name, field.ttl.Milliseconds(), c.MaxTTL.Milliseconds()))
		}
	}
	if p.LockDelay != nil && *p.LockDelay > c.MaxTTL {
		return invalid("lock_delay", fmt.Sprintf("lock_delay %d ms is above the cluster's longest TTL, %d ms", p.LockDelay.Milliseconds(), c.MaxTTL.Milliseconds()))
	}
	return nil
}
