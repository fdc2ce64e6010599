package api

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// cancelAnywhere cancels a request in the group of its resource. Where the caller does not name that, every group is
// told: each remembers the cancel, so the request takes no effect wherever it stands or comes later.
func (s *Server) cancelAnywhere(ctx context.Context, in *lockpb.CancelRequest) (*lockpb.CancelResponse, *refusal) {
	if _, refused := parseCancel(s.identity(ctx), in); refused != nil {
		return nil, refused
	}
	if sh, ok := s.addressed(ctx); ok {
		return sh.cancel(ctx, in)
	}
	if in.GetResource() != "" {
		resource, err := lease.ParseResource(in.GetResource())
		if err != nil {
			return nil, badName(err)
		}
		return s.of(resource).cancel(ctx, in)
	}
	return s.cancelEverywhere(ctx, in)
}

// cancelEverywhere answers with what the request was in the group that knew it. That it was cancelled is said only if
// every group has the cancel; an as_of is of one group's clock, so each takes its own.
func (s *Server) cancelEverywhere(ctx context.Context, in *lockpb.CancelRequest) (*lockpb.CancelResponse, *refusal) {
	if len(s.shards) == 1 {
		return s.shards[0].cancel(ctx, in)
	}
	answers := make([]*lockpb.CancelResponse, len(s.shards))
	refusals := make([]*refusal, len(s.shards))
	var asking sync.WaitGroup
	for i, sh := range s.shards {
		asking.Go(func() {
			own := proto.CloneOf(in)
			own.AsOf = 0
			answers[i], refusals[i] = sh.cancel(ctx, own)
		})
	}
	asking.Wait()
	for _, refused := range refusals {
		if refused != nil {
			return nil, partly(refused)
		}
	}
	best := answers[0]
	for _, answer := range answers[1:] {
		if telling(answer.GetWas()) > telling(best.GetWas()) {
			best = answer
		}
	}
	return best, nil
}

// partly is a refusal of one group where others may have done what was asked.
func partly(refused *refusal) *refusal {
	if refused.detail.GetApplied() == lockpb.Applied_NO {
		return refused.mayBeApplied()
	}
	return refused
}

// telling orders what groups say of one request: the one that knows it counts.
func telling(was lockpb.RequestState) int {
	switch was {
	case lockpb.RequestState_HELD:
		return 3
	case lockpb.RequestState_WAITING:
		return 2
	case lockpb.RequestState_ENDED:
		return 1
	case lockpb.RequestState_UNKNOWN, lockpb.RequestState_REQUEST_STATE_UNSPECIFIED:
	}
	return 0
}

func (sh *shard) cancel(ctx context.Context, in *lockpb.CancelRequest) (*lockpb.CancelResponse, *refusal) {
	if in.AsOf == 0 && !forwarded(ctx) {
		in = proto.CloneOf(in)
		in.AsOf = sh.now()
	}
	return anywhere(ctx, sh, false,
		func(ctx context.Context) (*lockpb.CancelResponse, *refusal) { return sh.cancelHere(ctx, in) },
		func(ctx context.Context, leader lockpb.LocksClient) (*lockpb.CancelResponse, error) {
			return leader.Cancel(ctx, in)
		})
}

func (sh *shard) cancelHere(ctx context.Context, in *lockpb.CancelRequest) (*lockpb.CancelResponse, *refusal) {
	cmd, refusal := parseCancel(sh.identity(ctx), in)
	if refusal != nil {
		return nil, refusal
	}
	out, refusal := sh.propose(ctx, cmd)
	if refusal != nil {
		return nil, refusal
	}
	return cancelAnswer(out)
}

func cancelAnswer(out group.Outcome) (*lockpb.CancelResponse, *refusal) {
	result, ok := out.Result.(lock.Cancelled)
	if !ok {
		return nil, unexpected("Cancel", out.Result)
	}
	answer := &lockpb.CancelResponse{Was: requestState(result.Was), AsOf: int64(out.Now), Index: out.Index}
	if result.Was == lock.RequestWaiting {
		answer.Position = int32(min(result.Position, 1<<31-1))
		answer.Holder = blocker(result.Blocker, out.Now)
	}
	return answer, nil
}
