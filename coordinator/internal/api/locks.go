package api

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

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
	leave, refused := s.enter(op == opRenew || op == opRelease || op == opCancel)
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
	return serve(ctx, s, opAcquire, func(ctx context.Context) (*lockpb.AcquireResponse, *refusal) {
		if forwarded(ctx) {
			return s.routeAcquire(ctx, in, time.Time{})
		}
		return s.acquireAnywhere(ctx, in)
	})
}

// Renew implements lockpb.LocksServer.
func (s *Server) Renew(ctx context.Context, in *lockpb.RenewRequest) (*lockpb.RenewResponse, error) {
	return serve(ctx, s, opRenew, func(ctx context.Context) (*lockpb.RenewResponse, *refusal) {
		cmd, refused := parseRenew(s.identity(ctx), in)
		if refused != nil {
			return nil, refused
		}
		return anywhere(ctx, s, false,
			func(ctx context.Context) (*lockpb.RenewResponse, *refusal) { return s.renewHere(ctx, cmd) },
			func(ctx context.Context, leader lockpb.LocksClient) (*lockpb.RenewResponse, error) {
				return leader.Renew(ctx, in)
			})
	})
}

// Release implements lockpb.LocksServer.
func (s *Server) Release(ctx context.Context, in *lockpb.ReleaseRequest) (*lockpb.ReleaseResponse, error) {
	return serve(ctx, s, opRelease, func(ctx context.Context) (*lockpb.ReleaseResponse, *refusal) {
		cmd, refused := parseRelease(s.identity(ctx), in)
		if refused != nil {
			return nil, refused
		}
		return anywhere(ctx, s, false,
			func(ctx context.Context) (*lockpb.ReleaseResponse, *refusal) { return s.releaseHere(ctx, cmd) },
			func(ctx context.Context, leader lockpb.LocksClient) (*lockpb.ReleaseResponse, error) {
				return leader.Release(ctx, in)
			})
	})
}

// Cancel implements lockpb.LocksServer.
func (s *Server) Cancel(ctx context.Context, in *lockpb.CancelRequest) (*lockpb.CancelResponse, error) {
	return serve(ctx, s, opCancel, func(ctx context.Context) (*lockpb.CancelResponse, *refusal) { return s.cancelAnywhere(ctx, in) })
}

func (s *Server) cancelAnywhere(ctx context.Context, in *lockpb.CancelRequest) (*lockpb.CancelResponse, *refusal) {
	if _, refused := parseCancel(s.identity(ctx), in); refused != nil {
		return nil, refused
	}
	if in.AsOf == 0 && !forwarded(ctx) {
		in = proto.CloneOf(in)
		in.AsOf = s.replicaNow()
	}
	return anywhere(ctx, s, false,
		func(ctx context.Context) (*lockpb.CancelResponse, *refusal) { return s.cancelHere(ctx, in) },
		func(ctx context.Context, leader lockpb.LocksClient) (*lockpb.CancelResponse, error) {
			return leader.Cancel(ctx, in)
		})
}

// Break implements lockpb.LocksServer. It is never repeated by itself: twice would end two holders.
func (s *Server) Break(ctx context.Context, in *lockpb.BreakRequest) (*lockpb.BreakResponse, error) {
	return serve(ctx, s, opBreak, func(ctx context.Context) (*lockpb.BreakResponse, *refusal) {
		cmd, refused := parseBreak(s.identity(ctx), in)
		if refused != nil {
			return nil, refused
		}
		return anywhere(ctx, s, true,
			func(ctx context.Context) (*lockpb.BreakResponse, *refusal) { return s.breakHere(ctx, cmd) },
			func(ctx context.Context, leader lockpb.LocksClient) (*lockpb.BreakResponse, error) {
				return leader.Break(ctx, in)
			})
	})
}

// anywhere routes a call that does not wait.
func anywhere[R any](
	ctx context.Context, s *Server, once bool,
	here func(context.Context) (R, *refusal), there func(context.Context, lockpb.LocksClient) (R, error),
) (R, *refusal) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	return route(ctx, s, call[R]{here: here, there: there, once: once, patience: s.config.Patience})
}

// propose commits a command on the leader. A refusal of the machine is in the second result, like every other.
func (s *Server) propose(ctx context.Context, cmd lock.Command) (group.Outcome, *refusal) {
	out, err := s.group.Propose(ctx, cmd)
	if err != nil {
		return group.Outcome{}, groupRefusal(err)
	}
	if result, ok := out.Result.(lock.Refused); ok {
		return group.Outcome{}, refused(result, out.Now)
	}
	return out, nil
}

func (s *Server) renewHere(ctx context.Context, cmd lock.Renew) (*lockpb.RenewResponse, *refusal) {
	out, refusal := s.propose(ctx, cmd)
	if refusal != nil {
		return nil, refusal
	}
	result, ok := out.Result.(lock.Renewed)
	if !ok {
		return nil, unexpected("Renew", out.Result)
	}
	signed, refusal := s.sign(result.Grant)
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

func (s *Server) releaseHere(ctx context.Context, cmd lock.Release) (*lockpb.ReleaseResponse, *refusal) {
	out, refusal := s.propose(ctx, cmd)
	if refusal != nil {
		return nil, refusal
	}
	result, ok := out.Result.(lock.Released)
	if !ok {
		return nil, unexpected("Release", out.Result)
	}
	return &lockpb.ReleaseResponse{
		Resource: string(result.Resource), FencingToken: uint64(result.Token), AsOf: int64(out.Now), Index: out.Index,
	}, nil
}

func (s *Server) cancelHere(ctx context.Context, in *lockpb.CancelRequest) (*lockpb.CancelResponse, *refusal) {
	cmd, refusal := parseCancel(s.identity(ctx), in)
	if refusal != nil {
		return nil, refusal
	}
	out, refusal := s.propose(ctx, cmd)
	if refusal != nil {
		return nil, refusal
	}
	result, ok := out.Result.(lock.Cancelled)
	if !ok {
		return nil, unexpected("Cancel", out.Result)
	}
	return &lockpb.CancelResponse{Was: requestState(result.Was), AsOf: int64(out.Now), Index: out.Index}, nil
}

func (s *Server) breakHere(ctx context.Context, cmd lock.Break) (*lockpb.BreakResponse, *refusal) {
	out, refusal := s.propose(ctx, cmd)
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
