package api

import (
	"context"
	"fmt"
	"strings"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// administer serves a call of an operator, which gets in where acquires do not any more. Who may make it is in demandOf.
func administer[R any](ctx context.Context, s *Server, run func(context.Context) (R, *refusal)) (R, error) {
	return reply(bounded(ctx, s, opAdmin, run))
}

// leading makes a call to the leader of the group: here where this node leads it, else there.
func leading[R any](
	ctx context.Context, sh *shard,
	here func(context.Context) (R, *refusal), there func(context.Context, lockpb.ClusterClient) (R, error),
) (R, *refusal) {
	ctx, cancel := sh.within(ctx)
	defer cancel()
	return route(ctx, sh, call[R]{here: here, cluster: there, patience: sh.config.Patience})
}

// order commits a command of an operator on the leader, if every node of the cluster knows it.
func (sh *shard) order(ctx context.Context, cmd lock.Command) (group.Outcome, *refusal) {
	if refused := sh.knows(cmd); refused != nil {
		return group.Outcome{}, refused
	}
	return sh.propose(ctx, cmd)
}

// knows refuses a command that a node of an older release may not know: such a node would stop at it.
func (sh *shard) knows(cmd lock.Command) *refusal {
	if version, needed := sh.info().Version, lock.Needs(cmd); version < needed {
		return refuse(lockpb.Reason_VERSION_TOO_LOW, fmt.Sprintf("it needs cluster version %d, and the cluster has %d", needed, version))
	}
	return nil
}

// inEveryGroup makes one change in each group, in their order. A forwarded call is for the group that it names. What was
// done in some groups and not in others is not taken back: the change is one that converges when it is made again, and
// the refusal says which groups have it.
func (s *Server) inEveryGroup(ctx context.Context, one func(context.Context, *shard) *refusal) *refusal {
	if forwarded(ctx) {
		sh, ok := s.addressed(ctx)
		if !ok {
			return refuse(lockpb.Reason_INTERNAL, "a node forwarded the call to no group").notApplied()
		}
		return one(ctx, sh)
	}
	var done, open []string
	var failed *refusal
	for _, sh := range s.shards {
		refused := one(ctx, sh)
		switch {
		case refused == nil:
			done = append(done, fmt.Sprint(sh.number))
		case len(s.shards) == 1, len(done) == 0 && !passing(refused):
			return refused // the others would say the same
		default:
			open = append(open, fmt.Sprint(sh.number))
			failed = worst(failed, refused)
		}
	}
	return inSome(done, open, failed)
}

// worst is the refusal that says less for certain.
func worst(a, b *refusal) *refusal {
	if a == nil || (b.maybe() && !a.maybe()) {
		return b
	}
	return a
}

// inSome is the refusal of a change that was made in some groups only. Nil if none is open.
func inSome(done, open []string, failed *refusal) *refusal {
	if failed == nil || len(done) == 0 {
		return failed
	}
	failed.message = fmt.Sprintf("it was made in group %s and not in group %s: %s",
		strings.Join(done, ", "), strings.Join(open, ", "), failed.message)
	return failed.mayBeApplied().advise("make it once more: what is done already stays as it is")
}

// notApplied turns a refusal into one of a call that did nothing.
func (r *refusal) notApplied() *refusal {
	r.detail.Applied = lockpb.Applied_NO
	return r
}
