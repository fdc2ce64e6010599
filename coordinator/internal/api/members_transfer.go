package api

import (
	"context"
	"fmt"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Transfer implements lockpb.ClusterServer. It tells who leads then.
func (s *Server) Transfer(ctx context.Context, in *lockpb.TransferRequest) (*lockpb.TransferResponse, error) {
	return administer(ctx, s, func(ctx context.Context) (*lockpb.TransferResponse, *refusal) {
		out := &lockpb.TransferResponse{}
		one := func(ctx context.Context, sh *shard) *refusal {
			now, refused := leading(ctx, sh,
				func(ctx context.Context) (*lockpb.TransferResponse, *refusal) {
					return sh.transferHere(ctx, in.GetTo())
				},
				func(ctx context.Context, leader lockpb.ClusterClient) (*lockpb.TransferResponse, error) {
					return leader.Transfer(ctx, in)
				})
			out.Leaders = append(out.Leaders, now.GetLeaders()...)
			return refused
		}
		if in.Group == nil || forwarded(ctx) {
			return out, s.inEveryGroup(ctx, one)
		}
		sh, ok := s.shard(uint16(min(in.GetGroup(), 1<<16-1)))
		if !ok {
			return nil, invalid("group", fmt.Sprintf("there is no group %d: %s", in.GetGroup(), s.groupNumbers()))
		}
		return out, one(ctx, sh)
	})
}

// groupNumbers says which groups there are.
func (s *Server) groupNumbers() string {
	if len(s.shards) == 1 {
		return "there is one, 0"
	}
	return fmt.Sprintf("they are 0 to %d", len(s.shards)-1)
}

func (sh *shard) transferHere(ctx context.Context, to string) (*lockpb.TransferResponse, *refusal) {
	group, refused := sh.membership()
	if refused != nil {
		return nil, refused
	}
	if err := group.Transfer(ctx, to); err != nil {
		refused := memberRefusal(err)
		if refused.reason() == lockpb.Reason_INTERNAL {
			refused = refuse(lockpb.Reason_NO_LEADER, "leadership was not handed over: "+err.Error()).
				advise("see which nodes are up with: lychgate cluster status")
		}
		return nil, refused
	}
	leader := sh.awaitLeader(ctx, to)
	return &lockpb.TransferResponse{Leaders: []*lockpb.Leader{{Group: uint32(sh.number), Node: leader, Grpc: sh.peers.address(leader)}}}, nil
}

// awaitLeader waits until another leader is known here, or ctx ends; empty then.
func (sh *shard) awaitLeader(ctx context.Context, to string) string {
	for {
		changed := sh.group.Changed()
		leader, self := sh.group.Leader()
		if leader != "" && (!self || to == sh.config.Node) {
			return leader
		}
		if !sleep(ctx, changed, longestPause) {
			return ""
		}
	}
}
