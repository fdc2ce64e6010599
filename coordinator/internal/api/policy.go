package api

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// PutPolicy implements lockpb.ClusterServer.
func (s *Server) PutPolicy(ctx context.Context, in *lockpb.PutPolicyRequest) (*lockpb.PutPolicyResponse, error) {
	return administer(ctx, s, func(ctx context.Context) (*lockpb.PutPolicyResponse, *refusal) {
		target, policy, refused := parsePolicy(in.GetPolicy())
		if refused != nil {
			return nil, refused
		}
		cmd := lock.PutPolicy{By: s.identity(ctx), Target: target, Policy: policy}
		refused = s.inEveryGroup(ctx, func(ctx context.Context, sh *shard) *refusal {
			if refused := fits(policy, sh.info().Config); refused != nil {
				return refused
			}
			_, refused := leading(ctx, sh,
				func(ctx context.Context) (*lockpb.PutPolicyResponse, *refusal) {
					_, refused := sh.order(ctx, cmd)
					return &lockpb.PutPolicyResponse{}, refused
				},
				func(ctx context.Context, leader lockpb.ClusterClient) (*lockpb.PutPolicyResponse, error) {
					return leader.PutPolicy(ctx, in)
				})
			return refused
		})
		return &lockpb.PutPolicyResponse{}, refused
	})
}

// DeletePolicy implements lockpb.ClusterServer. A policy that is not there is no error, so that a change which reached only
// some groups can be made again.
func (s *Server) DeletePolicy(ctx context.Context, in *lockpb.DeletePolicyRequest) (*lockpb.DeletePolicyResponse, error) {
	return administer(ctx, s, func(ctx context.Context) (*lockpb.DeletePolicyResponse, *refusal) {
		target, refused := parseTarget(in)
		if refused != nil {
			return nil, refused
		}
		cmd := lock.DeletePolicy{By: s.identity(ctx), Target: target}
		all := &lockpb.DeletePolicyResponse{}
		refused = s.inEveryGroup(ctx, func(ctx context.Context, sh *shard) *refusal {
			one, refused := leading(ctx, sh,
				func(ctx context.Context) (*lockpb.DeletePolicyResponse, *refusal) { return sh.deletePolicy(ctx, cmd) },
				func(ctx context.Context, leader lockpb.ClusterClient) (*lockpb.DeletePolicyResponse, error) {
					return leader.DeletePolicy(ctx, in)
				})
			all.Existed = all.GetExisted() || one.GetExisted()
			return refused
		})
		return all, refused
	})
}

func (sh *shard) deletePolicy(ctx context.Context, cmd lock.DeletePolicy) (*lockpb.DeletePolicyResponse, *refusal) {
	if refused := sh.knows(cmd); refused != nil {
		return nil, refused
	}
	out, err := sh.group.Propose(ctx, cmd)
	if err != nil {
		return nil, groupRefusal(err)
	}
	r, ok := out.Result.(lock.Refused)
	if ok && r.Reason != lock.ReasonNoSuchPolicy {
		return nil, refused(r, out.Now)
	}
	return &lockpb.DeletePolicyResponse{Existed: !ok}, nil
}

// Policies implements lockpb.ClusterServer: it asks the leader of each group.
func (s *Server) Policies(ctx context.Context, in *lockpb.PoliciesRequest) (*lockpb.PoliciesResponse, error) {
	return administer(ctx, s, func(ctx context.Context) (*lockpb.PoliciesResponse, *refusal) {
		var all *lockpb.PoliciesResponse
		refused := s.inEveryGroup(ctx, func(ctx context.Context, sh *shard) *refusal {
			one, refused := leading(ctx, sh,
				func(ctx context.Context) (answer *lockpb.PoliciesResponse, refused *refusal) {
					refused = sh.read(ctx, func(m *lock.Machine) { answer = policiesOf(m) })
					return answer, refused
				},
				func(ctx context.Context, leader lockpb.ClusterClient) (*lockpb.PoliciesResponse, error) {
					return leader.Policies(ctx, in)
				})
			switch {
			case refused != nil:
				return refused
			case all == nil:
				all = one
			case !samePolicies(all, one):
				all.Behind = append(all.Behind, uint32(sh.number))
			}
			return nil
		})
		if refused != nil {
			return nil, refused.notApplied() // a read changes nothing
		}
		return all, nil
	})
}

func samePolicies(a, b *lockpb.PoliciesResponse) bool {
	return proto.Equal(&lockpb.PoliciesResponse{Policies: a.GetPolicies()}, &lockpb.PoliciesResponse{Policies: b.GetPolicies()})
}

func policiesOf(m *lock.Machine) *lockpb.PoliciesResponse {
	answer := &lockpb.PoliciesResponse{}
	for _, p := range m.Policies() {
		answer.Policies = append(answer.Policies, policyOf(p))
	}
	return answer
}

// policyOf is a policy as the API says it.
func policyOf(p lock.TargetedPolicy) *lockpb.Policy {
	out := &lockpb.Policy{
		DefaultTtl: optionalMillis(p.Policy.DefaultTTL), MinTtl: optionalMillis(p.Policy.MinTTL), MaxTtl: optionalMillis(p.Policy.MaxTTL),
		MaxHold: optionalMillis(p.Policy.MaxHold), LockDelay: optionalMillis(p.Policy.LockDelay),
		Exclusive: p.Policy.Exclusive, Shared: p.Policy.Shared,
		MaxLeases: p.Policy.MaxLeases, MaxRequests: p.Policy.MaxRequests, AcquireRate: p.Policy.AcquireRate, AcquireBurst: p.Policy.AcquireBurst,
	}
	if p.Policy.MaxWaiters != nil {
		out.MaxWaiters = proto.Int32(int32(*p.Policy.MaxWaiters)) // it came in as one
	}
	switch p.Target.Kind {
	case lock.TargetPrefix:
		out.Of = &lockpb.Policy_Prefix{Prefix: p.Target.Name}
	case lock.TargetTenant:
		out.Of = &lockpb.Policy_Tenant{Tenant: p.Target.Name}
	}
	return out
}

func optionalMillis(d *time.Duration) *int64 {
	if d == nil {
		return nil
	}
	return proto.Int64(d.Milliseconds())
}
