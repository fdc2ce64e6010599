package api

import (
	"context"
	"slices"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// someNode makes a call to the node that leads the first group, or else to the others in turn: for what every node knows
// and tells anybody, and a gateway does not know.
func someNode[R any](ctx context.Context, s *Server, ask func(context.Context, lockpb.ClusterClient) (R, error)) (R, *refusal) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	var nothing R
	last := refuse(lockpb.Reason_NO_LEADER, "no node is known")
	node := ""
	for range s.members() {
		node = s.nodeAfter(node)
		conn, err := s.peers.conn(node)
		if err != nil {
			last = refuse(lockpb.Reason_NO_LEADER, err.Error())
			continue
		}
		answer, err := ask(ctx, lockpb.NewClusterClient(conn))
		if err == nil {
			return answer, nil
		}
		if last = received(err, node); !passing(last) {
			return nothing, last
		}
	}
	return nothing, last.notApplied()
}

// nodeAfter is the node that is asked after another one; the first is the one that leads. Empty: none is known.
func (s *Server) nodeAfter(node string) string {
	if leader, _ := s.shards[0].group.Leader(); node == "" && leader != "" {
		return leader
	}
	members := s.members()
	if len(members) == 0 {
		return ""
	}
	i := slices.IndexFunc(members, func(m Member) bool { return m.ID == node })
	return members[(i+1)%len(members)].ID
}
