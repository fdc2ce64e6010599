package api

import (
	"context"
	"fmt"
	"math"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Each group refuses, in its own log, whatever would close a cycle of waits within it. A cycle through several groups shows
// in none of them, so the leader of the first one looks for it: it asks all groups who waits for whom, twice, and ends one
// wait of a cycle of which both passes saw each edge.

const (
	defaultProbe  = time.Second
	maxEdges      = 4000 // of one group in one pass: the oldest waits. Cycles that need younger ones are found when those have gone
	maxEdgesBytes = maxResponse / 2
)

// FindDeadlocks looks for deadlocks across groups until ctx is done. With one group it does nothing.
func (s *Server) FindDeadlocks(ctx context.Context) {
	if len(s.shards) == 1 {
		<-ctx.Done()
		return
	}
	ticker := time.NewTicker(s.config.Probe)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if s.mayBeStuck() {
			s.probe(ctx)
		}
	}
}

// mayBeStuck reports whether it is this node that looks, and there is anything to look for: waits in several groups.
func (s *Server) mayBeStuck() bool {
	if _, leads := s.shards[0].group.Leader(); !leads {
		return false
	}
	waiting := 0
	for _, sh := range s.shards {
		if sh.info().Waiters > 0 {
			waiting++
		}
	}
	return waiting > 1
}

// probe makes the two passes; the second only if the first has found something.
func (s *Server) probe(ctx context.Context) {
	first, refused := s.pass(ctx)
	if refused != nil || len(cycles(first)) == 0 {
		return // one that a group cannot answer now is found at the next look
	}
	second, refused := s.pass(ctx)
	if refused != nil {
		return
	}
	for _, cycle := range cycles(seenTwice(first, second)) {
		s.breakCycle(ctx, cycle)
	}
}

// pass asks all groups for their edges, each as of a moment after the call.
func (s *Server) pass(ctx context.Context) ([]crossEdge, *refusal) {
	// It is this node that asks, on nobody's behalf.
	ctx = metadata.NewIncomingContext(s.asSelf(ctx), nil)
	answers, refused := everywhere(s, func(sh *shard) (*lockpb.EdgesResponse, *refusal) {
		return leading(ctx, sh, sh.edges, func(ctx context.Context, leader lockpb.ClusterClient) (*lockpb.EdgesResponse, error) {
			return leader.Edges(ctx, &lockpb.EdgesRequest{Group: uint32(sh.number)})
		})
	})
	if refused != nil {
		return nil, refused
	}
	var edges []crossEdge
	for i, answer := range answers {
		for _, e := range answer.GetEdges() {
			if edge, err := edgeOf(e); err == nil { // another release's
				edges = append(edges, crossEdge{uint16(i), edge})
			}
		}
	}
	return edges, nil
}

// breakCycle ends the wait of a cycle's victim. If it does not wait any more, the cycle is not there any more.
func (s *Server) breakCycle(ctx context.Context, cycle []crossEdge) {
	at := victim(cycle)
	in := &lockpb.KillRequest{Group: uint32(cycle[at].group), Edge: edgeTo(cycle[at].Edge)}
	for i := range cycle {
		in.Cycle = append(in.Cycle, partyTo(cycle[(at+i)%len(cycle)].Waiter))
	}
	ctx = metadata.NewIncomingContext(s.asSelf(ctx), nil)
	sh := s.shards[cycle[at].group]
	_, refused := leading(ctx, sh,
		func(ctx context.Context) (*lockpb.KillResponse, *refusal) { return sh.kill(ctx, in) },
		func(ctx context.Context, leader lockpb.ClusterClient) (*lockpb.KillResponse, error) {
			return leader.Kill(ctx, in)
		})
	if refused != nil {
		s.config.Logger.Info("a deadlock across groups was not ended", "owners", len(cycle), "group", sh.number, "reason", refused.message)
		return
	}
	s.config.Logger.Info("a deadlock across groups was ended", "owners", len(cycle), "group", sh.number)
}

// Edges implements lockpb.ClusterServer. It is never forwarded.
func (s *Server) Edges(ctx context.Context, in *lockpb.EdgesRequest) (*lockpb.EdgesResponse, error) {
	return administer(ctx, s, func(ctx context.Context) (*lockpb.EdgesResponse, *refusal) {
		sh, refused := s.numbered(in.GetGroup())
		if refused != nil {
			return nil, refused
		}
		return sh.edges(ctx)
	})
}

// Kill implements lockpb.ClusterServer. It is never forwarded.
func (s *Server) Kill(ctx context.Context, in *lockpb.KillRequest) (*lockpb.KillResponse, error) {
	return administer(ctx, s, func(ctx context.Context) (*lockpb.KillResponse, *refusal) {
		sh, refused := s.numbered(in.GetGroup())
		if refused != nil {
			return nil, refused
		}
		return sh.kill(ctx, in)
	})
}

func (s *Server) numbered(group uint32) (*shard, *refusal) {
	sh, ok := s.shard(uint16(min(group, math.MaxUint16)))
	if !ok {
		return nil, invalid("group", fmt.Sprintf("there is no group %d", group))
	}
	return sh, nil
}

// edges lists the waits of the group, on its leader.
func (sh *shard) edges(ctx context.Context) (*lockpb.EdgesResponse, *refusal) {
	var edges []lock.Edge
	answer := &lockpb.EdgesResponse{}
	refused := sh.read(ctx, func(m *lock.Machine) { edges, answer.Complete = m.Edges(maxEdges) })
	if refused != nil {
		return nil, refused
	}
	const fixed = 64
	size := 0
	for _, e := range edges {
		size += fixed + partySize(e.Waiter) + partySize(e.Holder)
		if size > maxEdgesBytes {
			answer.Complete = false
			break
		}
		answer.Edges = append(answer.Edges, edgeTo(e))
	}
	return answer, nil
}

// kill ends a wait, on the leader of its group.
func (sh *shard) kill(ctx context.Context, in *lockpb.KillRequest) (*lockpb.KillResponse, *refusal) {
	edge, err := edgeOf(in.GetEdge())
	if err != nil {
		return nil, badName(err)
	}
	cmd := lock.KillWait{
		Identity: edge.Waiter.Owner.Identity, Client: edge.Waiter.Client, Request: edge.Waiter.Request, Lease: edge.Lease,
	}
	if edge.Lease.IsZero() {
		cmd.Ahead = lock.RequestRef{Identity: edge.Holder.Owner.Identity, Client: edge.Holder.Client, Request: edge.Holder.Request}
	}
	for _, p := range in.GetCycle() {
		cmd.Cycle = append(cmd.Cycle, lock.Owner{Identity: lease.Identity(p.GetIdentity()), Name: p.GetOwner()})
	}
	_, refused := sh.order(ctx, cmd)
	return &lockpb.KillResponse{}, refused
}

func partySize(p lock.Party) int {
	return len(p.Owner.Identity) + len(p.Owner.Name) + len(p.Client) + len(p.Request)
}

func edgeTo(e lock.Edge) *lockpb.Edge {
	out := &lockpb.Edge{Waiter: partyTo(e.Waiter), Holder: partyTo(e.Holder)}
	if !e.Lease.IsZero() {
		out.LeaseId = e.Lease.String()
	}
	return out
}

func partyTo(p lock.Party) *lockpb.Party {
	return &lockpb.Party{
		Identity: string(p.Owner.Identity), Owner: p.Owner.Name, ClientId: string(p.Client), RequestId: string(p.Request),
	}
}

func edgeOf(e *lockpb.Edge) (edge lock.Edge, err error) {
	edge.Waiter, edge.Holder = partyOf(e.GetWaiter()), partyOf(e.GetHolder())
	if e.GetLeaseId() != "" {
		edge.Lease, err = lease.ParseID(e.GetLeaseId())
	}
	return edge, err
}

func partyOf(p *lockpb.Party) lock.Party {
	return lock.Party{
		Owner:  lock.Owner{Identity: lease.Identity(p.GetIdentity()), Name: p.GetOwner()},
		Client: lease.ClientID(p.GetClientId()), Request: lease.RequestID(p.GetRequestId()),
	}
}
