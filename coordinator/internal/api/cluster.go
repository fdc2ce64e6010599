package api

import (
	"context"
	"encoding/hex"
	"strings"

	"github.com/lychgate/lychgate/coordinator/internal/access"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Status implements lockpb.ClusterServer. It describes this node, and is never forwarded. Every client asks for it
// before its first acquire, so it costs the same whatever the size of the state, unless what looks at all of it is asked for.
func (s *Server) Status(ctx context.Context, in *lockpb.StatusRequest) (*lockpb.StatusResponse, error) {
	if in.GetDigest() && !s.shards[0].replicated() {
		return nil, invalid("digest", "a gateway has no state to condense")
	}
	if in.GetSmallestLive() && !s.shards[0].replicated() {
		return nil, invalid("smallest_live", "a gateway has no leases to look at")
	}
	if in.GetDigest() || in.GetSmallestLive() {
		if refused := s.allow(ctx, access.Read, ""); refused != nil {
			return nil, refused
		}
	}
	answer := &lockpb.StatusResponse{Node: s.config.Node}
	for _, sh := range s.shards {
		one, refused := sh.status(ctx, in)
		if refused != nil {
			return nil, refused
		}
		answer.Groups = append(answer.Groups, one)
	}
	first, info := answer.GetGroups()[0], s.shards[0].info()
	answer.Cluster, answer.Version, answer.ReleaseVersion = info.Cluster, info.Version, s.config.Release
	answer.Blank, answer.Pending = s.shards[0].group.Status().Blank, first.GetPending()
	answer.Leader, answer.State, answer.Term = first.GetLeader(), first.GetState(), first.GetTerm()
	answer.AppliedIndex, answer.AsOf, answer.Incarnation = first.GetAppliedIndex(), first.GetAsOf(), first.GetIncarnation()
	answer.Leases, answer.Waiters, answer.Digest = first.GetLeases(), first.GetWaiters(), first.GetDigest()
	_, voters := s.shards[0].roll()
	answer.Nodes = nodesOf(s.members(), voters)
	return answer, nil
}

// status is one group as this node sees it.
func (sh *shard) status(ctx context.Context, in *lockpb.StatusRequest) (*lockpb.GroupStatus, *refusal) {
	status := sh.group.Status()
	answer := &lockpb.GroupStatus{
		Group: uint32(sh.number), Leader: status.Leader, State: strings.ToLower(status.State), Term: status.Term, Pending: status.Pending,
	}
	info := sh.info()
	if in.GetDigest() || in.GetSmallestLive() {
		var refused *refusal
		if info, refused = sh.lookThrough(ctx, in, answer); refused != nil {
			return nil, refused
		}
	}
	answer.AppliedIndex, answer.AsOf, answer.Incarnation = info.Index, int64(info.Now), info.Incarnation
	answer.Leases, answer.Waiters = uint64(info.Leases), uint64(info.Waiters)
	return answer, nil
}

// lookThrough fills in what takes a look at all of this node's state, which is described with it. One at a time: the digest
// sorts the whole state.
func (sh *shard) lookThrough(ctx context.Context, in *lockpb.StatusRequest, answer *lockpb.GroupStatus) (lock.Info, *refusal) {
	select {
	case sh.digesting <- struct{}{}:
		defer func() { <-sh.digesting }()
	case <-ctx.Done():
		return lock.Info{}, refuse(lockpb.Reason_OVERLOADED, "looks at the whole state by other calls took too long")
	}
	frozen, info := sh.group.Freeze()
	if in.GetDigest() {
		digest := frozen.Digest()
		answer.Digest = hex.EncodeToString(digest[:])
	}
	if in.GetSmallestLive() {
		answer.SmallestLive = uint64(frozen.SmallestLive())
	}
	return info, nil
}
