package api

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/lychgate/lychgate/coordinator/internal/hot"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Bounds of an answer of Hot.
const (
	defaultHot = 10
	maxHot     = 100
)

// Hot implements lockpb.LocksServer. Each group's leader counts from when it has been running; a resource is in one
// group, so that the answers of the leaders only have to be put in order.
func (s *Server) Hot(ctx context.Context, in *lockpb.HotRequest) (*lockpb.HotResponse, error) {
	return serve(ctx, s, opHot, func(ctx context.Context) (*lockpb.HotResponse, *refusal) {
		limit := int(in.GetLimit())
		switch {
		case limit == 0:
			limit = defaultHot
		case limit < 0 || limit > maxHot:
			return nil, invalid("limit", fmt.Sprintf("limit %d is not between 1 and %d", limit, maxHot))
		}
		if sh, ok := s.addressed(ctx); ok {
			return sh.hot(ctx, in, limit)
		}
		answers, refused := everywhere(s, func(sh *shard) (*lockpb.HotResponse, *refusal) { return sh.hot(ctx, in, limit) })
		if refused != nil {
			return nil, refused
		}
		out := &lockpb.HotResponse{}
		for _, answer := range answers {
			out.Resources = append(out.Resources, answer.GetResources()...)
		}
		slices.SortFunc(out.Resources, func(a, b *lockpb.HotResource) int {
			return cmp.Or(-cmp.Compare(a.GetAcquires(), b.GetAcquires()), cmp.Compare(a.GetResource(), b.GetResource()))
		})
		out.Resources = out.Resources[:min(len(out.Resources), limit)]
		return out, nil
	})
}

func (sh *shard) hot(ctx context.Context, in *lockpb.HotRequest, limit int) (*lockpb.HotResponse, *refusal) {
	return anywhere(ctx, sh, false,
		func(ctx context.Context) (*lockpb.HotResponse, *refusal) { return sh.hotHere(ctx, limit), nil },
		func(ctx context.Context, leader lockpb.LocksClient) (*lockpb.HotResponse, error) {
			return leader.Hot(ctx, in)
		})
}

func (sh *shard) hotHere(ctx context.Context, limit int) *lockpb.HotResponse {
	out := &lockpb.HotResponse{}
	if sh.config.Journal == nil {
		return out
	}
	show := func(name lease.Resource) bool { return sh.mayRead(ctx, name) }
	top := sh.config.Journal.groups[sh.number].tally.top(limit, show)
	sh.group.View(func(m *lock.Machine) {
		for i := range top {
			out.Resources = append(out.Resources, hotOf(&top[i], m.Get(top[i].Name)))
		}
	})
	return out
}

func hotOf(r *hot.Resource, v lock.View) *lockpb.HotResource {
	return &lockpb.HotResource{
		Resource: string(r.Name), Acquires: r.Acquires, Refusals: r.Refusals,
		Waiting: int32(min(v.Waiting, 1<<31-1)), Holders: int32(min(len(v.Holders), 1<<31-1)),
		MeanHeldFor: milliseconds(r.MeanHeld()), MeanWaited: milliseconds(r.MeanWaited()),
	}
}
