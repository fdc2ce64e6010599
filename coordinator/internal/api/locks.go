package api

import (
	"context"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/access"
	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// reply turns a pair with a typed refusal into one with an error: a nil *refusal in an error would not be nil.
func reply[R any](answer R, refused *refusal) (R, error) {
	if refused != nil {
		var nothing R
		return nothing, refused
	}
	return answer, nil
}

// serve counts a call, ends it when the node stops, and measures it on the node that the client asked.
func serve[R any](ctx context.Context, s *Server, op operation, run func(context.Context) (R, *refusal)) (R, error) {
	began := time.Now()
	answer, refused := bounded(ctx, s, op, run)
	if !forwarded(ctx) {
		s.config.Metrics.called(op, refused, time.Since(began))
	}
	return reply(answer, refused)
}

func bounded[R any](ctx context.Context, s *Server, op operation, run func(context.Context) (R, *refusal)) (R, *refusal) {
	var nothing R
	leave, refused := s.enter(keeps(op))
	if refused != nil {
		return nothing, refused
	}
	defer leave()
	if s.closing.Err() != nil {
		return nothing, refuse(lockpb.Reason_STOPPING, "the node is stopping")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(s.closing, cancel)()
	answer, refused := run(ctx)
	if refused != nil && s.closing.Err() != nil && passing(refused) {
		stopping := refuse(lockpb.Reason_STOPPING, "the node is stopping")
		stopping.detail.Applied = refused.detail.GetApplied()
		return nothing, stopping
	}
	return answer, refused
}

// Acquire implements lockpb.LocksServer.
func (s *Server) Acquire(ctx context.Context, in *lockpb.AcquireRequest) (*lockpb.AcquireResponse, error) {
	return s.acquire(ctx, in, nil)
}

func (s *Server) acquire(ctx context.Context, in *lockpb.AcquireRequest, tell teller) (*lockpb.AcquireResponse, error) {
	return serve(ctx, s, opAcquire, func(ctx context.Context) (*lockpb.AcquireResponse, *refusal) {
		if forwarded(ctx) {
			cmd, refused := s.acquisition(ctx, in)
			if refused != nil {
				return nil, refused
			}
			return s.of(cmd.Resource).routeAcquire(ctx, in, time.Time{}, tell)
		}
		return s.acquireTelling(ctx, in, tell)
	})
}

// Renew implements lockpb.LocksServer.
func (s *Server) Renew(ctx context.Context, in *lockpb.RenewRequest) (*lockpb.RenewResponse, error) {
	return serve(ctx, s, opRenew, func(ctx context.Context) (*lockpb.RenewResponse, *refusal) { return s.renewAnywhere(ctx, in) })
}

func (s *Server) renewAnywhere(ctx context.Context, in *lockpb.RenewRequest) (*lockpb.RenewResponse, *refusal) {
	cmd, refused := parseRenew(s.identity(ctx), in)
	if refused != nil {
		return nil, refused
	}
	sh, refused := s.ofLease(cmd.Lease)
	if refused != nil {
		return nil, refused
	}
	return anywhere(ctx, sh, false,
		func(ctx context.Context) (*lockpb.RenewResponse, *refusal) { return sh.renewHere(ctx, cmd) },
		func(ctx context.Context, leader lockpb.LocksClient) (*lockpb.RenewResponse, error) {
			return leader.Renew(ctx, in)
		})
}

// Release implements lockpb.LocksServer.
func (s *Server) Release(ctx context.Context, in *lockpb.ReleaseRequest) (*lockpb.ReleaseResponse, error) {
	return serve(ctx, s, opRelease, func(ctx context.Context) (*lockpb.ReleaseResponse, *refusal) { return s.releaseAnywhere(ctx, in) })
}

func (s *Server) releaseAnywhere(ctx context.Context, in *lockpb.ReleaseRequest) (*lockpb.ReleaseResponse, *refusal) {
	cmd, refused := parseRelease(s.identity(ctx), in)
	if refused != nil {
		return nil, refused
	}
	sh, refused := s.ofLease(cmd.Lease)
	if refused != nil {
		return nil, refused
	}
	return anywhere(ctx, sh, false,
		func(ctx context.Context) (*lockpb.ReleaseResponse, *refusal) { return sh.releaseHere(ctx, cmd) },
		func(ctx context.Context, leader lockpb.LocksClient) (*lockpb.ReleaseResponse, error) {
			return leader.Release(ctx, in)
		})
}

// Cancel implements lockpb.LocksServer.
func (s *Server) Cancel(ctx context.Context, in *lockpb.CancelRequest) (*lockpb.CancelResponse, error) {
	return serve(ctx, s, opCancel, func(ctx context.Context) (*lockpb.CancelResponse, *refusal) {
		if refused := s.allowCancel(ctx); refused != nil {
			return nil, refused
		}
		return s.cancelAnywhere(ctx, in)
	})
}

// Break implements lockpb.LocksServer. It is never repeated by itself: twice would end two holders.
func (s *Server) Break(ctx context.Context, in *lockpb.BreakRequest) (*lockpb.BreakResponse, error) {
	return serve(ctx, s, opBreak, func(ctx context.Context) (*lockpb.BreakResponse, *refusal) {
		cmd, refused := parseBreak(s.identity(ctx), in)
		if refused == nil {
			refused = s.allow(ctx, access.Admin, cmd.Resource)
		}
		if refused != nil {
			return nil, refused
		}
		sh := s.of(cmd.Resource)
		return anywhere(ctx, sh, true,
			func(ctx context.Context) (*lockpb.BreakResponse, *refusal) { return sh.breakHere(ctx, cmd) },
			func(ctx context.Context, leader lockpb.LocksClient) (*lockpb.BreakResponse, error) {
				return leader.Break(ctx, in)
			})
	})
}

// anywhere routes a call that does not wait to the leader of its group.
func anywhere[R any](
	ctx context.Context, sh *shard, once bool,
	here func(context.Context) (R, *refusal), there func(context.Context, lockpb.LocksClient) (R, error),
) (R, *refusal) {
	ctx, cancel := sh.within(ctx)
	defer cancel()
	return route(ctx, sh, call[R]{here: here, there: there, once: once, patience: sh.config.Patience})
}

func (sh *shard) renewHere(ctx context.Context, cmd lock.Renew) (*lockpb.RenewResponse, *refusal) {
	out, refusal := sh.propose(ctx, cmd)
	if refusal != nil {
		return nil, refusal
	}
	return sh.renewAnswer(out)
}

func (sh *shard) renewAnswer(out group.Outcome) (*lockpb.RenewResponse, *refusal) {
	result, ok := out.Result.(lock.Renewed)
	if !ok {
		return nil, unexpected("Renew", out.Result)
	}
	signed, refusal := sh.sign(result.Grant)
	if refusal != nil {
		return nil, refusal
	}
	remaining := result.Deadline.Sub(out.Now)
	return &lockpb.RenewResponse{
		LeaseId:      result.Lease.String(),
		FencingToken: uint64(result.Token),
		ExpiresAt:    expiresAt(remaining),
		Ttl:          milliseconds(result.TTL),
		Ticket:       signed,
		Remaining:    milliseconds(remaining),
		Resource:     string(result.Resource),
		AsOf:         int64(out.Now),
		Index:        out.Index,
	}, nil
}

func (sh *shard) releaseHere(ctx context.Context, cmd lock.Release) (*lockpb.ReleaseResponse, *refusal) {
	out, refusal := sh.propose(ctx, cmd)
	if refusal != nil {
		return nil, refusal
	}
	return releaseAnswer(out)
}

func releaseAnswer(out group.Outcome) (*lockpb.ReleaseResponse, *refusal) {
	result, ok := out.Result.(lock.Released)
	if !ok {
		return nil, unexpected("Release", out.Result)
	}
	return &lockpb.ReleaseResponse{
		Resource: string(result.Resource), FencingToken: uint64(result.Token), AsOf: int64(out.Now), Index: out.Index,
	}, nil
}

func (sh *shard) breakHere(ctx context.Context, cmd lock.Break) (*lockpb.BreakResponse, *refusal) {
	out, refusal := sh.propose(ctx, cmd)
	if refusal != nil {
		return nil, refusal
	}
	result, ok := out.Result.(lock.Broken)
	if !ok {
		return nil, unexpected("Break", out.Result)
	}
	answer := &lockpb.BreakResponse{FencingToken: uint64(result.Token), Index: out.Index}
	for _, h := range result.Ended {
		answer.Ended = append(answer.Ended, holder(h, out.Now))
	}
	return answer, nil
}
