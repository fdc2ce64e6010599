package logpb

import (
	"cmp"
	"fmt"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

func encodeRenewMany(c lock.RenewMany) *RenewMany {
	out := &RenewMany{Identity: string(c.Identity), Leases: make([][]byte, len(c.Leases))}
	for i := range c.Leases {
		out.Leases[i] = c.Leases[i][:]
	}
	return out
}

func decodeRenewMany(c *RenewMany) (lock.Command, error) {
	out := lock.RenewMany{Identity: lease.Identity(c.GetIdentity()), Leases: make([]lease.ID, len(c.GetLeases()))}
	for i, b := range c.GetLeases() {
		id, err := decodeLeaseID(b)
		if err != nil {
			return nil, err
		}
		out.Leases[i] = id
	}
	return out, known(c)
}

func encodeKillWait(c lock.KillWait) *KillWait {
	out := &KillWait{
		Identity: string(c.Identity), Client: string(c.Client), Request: string(c.Request), Lease: c.Lease[:],
		Ahead: &Waits{Identity: string(c.Ahead.Identity), Client: string(c.Ahead.Client), Request: string(c.Ahead.Request)},
	}
	for _, o := range c.Cycle {
		out.Cycle = append(out.Cycle, &Thread{Identity: string(o.Identity), Name: o.Name})
	}
	return out
}

func decodeKillWait(c *KillWait) (lock.Command, error) {
	id, err := decodeLeaseID(c.GetLease())
	if err != nil {
		return nil, err
	}
	a := c.GetAhead()
	out := lock.KillWait{
		Identity: lease.Identity(c.GetIdentity()), Client: lease.ClientID(c.GetClient()),
		Request: lease.RequestID(c.GetRequest()), Lease: id,
		Ahead: lock.RequestRef{
			Identity: lease.Identity(a.GetIdentity()), Client: lease.ClientID(a.GetClient()), Request: lease.RequestID(a.GetRequest()),
		},
	}
	for _, t := range c.GetCycle() {
		if err := known(t); err != nil {
			return nil, err
		}
		out.Cycle = append(out.Cycle, lock.Owner{Identity: lease.Identity(t.GetIdentity()), Name: t.GetName()})
	}
	return out, cmp.Or(knownIfSet(a), known(c))
}

func knownIfSet(w *Waits) error {
	if w == nil {
		return nil
	}
	return known(w)
}

func encodeTarget(t lock.Target) *Target { return &Target{Kind: TargetKind(t.Kind), Name: t.Name} }

// decodeTarget keeps an unset kind, which the machine refuses.
func decodeTarget(t *Target) (lock.Target, error) {
	if t == nil {
		return lock.Target{}, nil
	}
	if _, ok := TargetKind_name[int32(t.GetKind())]; !ok {
		return lock.Target{}, fmt.Errorf("%w: a policy's target of the kind %d", ErrUnknown, t.GetKind())
	}
	return lock.Target{Kind: lock.TargetKind(t.GetKind()), Name: t.GetName()}, known(t)
}

func encodeRules(p lock.Policy) *Rules {
	return &Rules{
		DefaultTtl: (*int64)(p.DefaultTTL), MinTtl: (*int64)(p.MinTTL), MaxTtl: (*int64)(p.MaxTTL),
		MaxHold: (*int64)(p.MaxHold), LockDelay: (*int64)(p.LockDelay), Exclusive: p.Exclusive, Shared: p.Shared,
		MaxWaiters: widen(p.MaxWaiters), MaxLeases: p.MaxLeases, MaxRequests: p.MaxRequests, AcquireRate: p.AcquireRate, AcquireBurst: p.AcquireBurst,
	}
}

func widen(n *int) *int64 {
	if n == nil {
		return nil
	}
	wide := int64(*n)
	return &wide
}

func decodeRules(r *Rules) (lock.Policy, error) {
	if r == nil {
		return lock.Policy{}, nil
	}
	p := lock.Policy{
		DefaultTTL: (*time.Duration)(r.DefaultTtl), MinTTL: (*time.Duration)(r.MinTtl), MaxTTL: (*time.Duration)(r.MaxTtl),
		MaxHold: (*time.Duration)(r.MaxHold), LockDelay: (*time.Duration)(r.LockDelay),
		Exclusive: r.Exclusive, Shared: r.Shared,
		MaxLeases: r.MaxLeases, MaxRequests: r.MaxRequests, AcquireRate: r.AcquireRate, AcquireBurst: r.AcquireBurst,
	}
	if r.MaxWaiters != nil {
		n := r.GetMaxWaiters()
		narrow := int(n)
		if int64(narrow) != n {
			return lock.Policy{}, fmt.Errorf("%w: %d waiters in a policy", ErrCorrupt, n)
		}
		p.MaxWaiters = &narrow
	}
	return p, known(r)
}

func decodePutPolicy(c *PutPolicy) (lock.Command, error) {
	target, err := decodeTarget(c.GetTarget())
	if err != nil {
		return nil, err
	}
	policy, err := decodeRules(c.GetRules())
	if err != nil {
		return nil, err
	}
	return lock.PutPolicy{By: lease.Identity(c.GetBy()), Target: target, Policy: policy}, known(c)
}

func decodeDeletePolicy(c *DeletePolicy) (lock.Command, error) {
	target, err := decodeTarget(c.GetTarget())
	if err != nil {
		return nil, err
	}
	return lock.DeletePolicy{By: lease.Identity(c.GetBy()), Target: target}, known(c)
}

func decodeRetireKey(c *RetireKey) (lock.Command, error) {
	return lock.RetireKey{Node: c.GetNode(), KeyID: c.GetKeyId(), After: lock.LeaseTime(c.GetAfter())}, known(c)
}

func encodeMember(m lock.Member) *PutMember {
	return &PutMember{Id: m.ID, Peer: m.Peer, Grpc: m.GRPC, Http: m.HTTP}
}

func decodeMember(m *PutMember) (lock.Member, error) {
	return lock.Member{ID: m.GetId(), Peer: m.GetPeer(), GRPC: m.GetGrpc(), HTTP: m.GetHttp()}, known(m)
}
