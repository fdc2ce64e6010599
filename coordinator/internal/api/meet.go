package api

import (
	"context"
	"fmt"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Meet implements lockpb.ClusterServer. It is never forwarded.
func (s *Server) Meet(ctx context.Context, in *lockpb.MeetRequest) (*lockpb.MeetResponse, error) {
	if in.GetNode() == s.config.Node || !s.member(in.GetNode()) {
		return nil, invalid("node", "it is not another member of this cluster")
	}
	sh, refused := s.met(in)
	if refused != nil {
		return nil, refused
	}
	answer, err := sh.group.Answer(ctx, group.Question{From: in.GetNode(), Blank: in.GetBlank()})
	if err != nil {
		return nil, groupRefusal(err)
	}
	return &lockpb.MeetResponse{Node: s.config.Node, Groups: uint32(len(s.shards)), Blank: answer.Blank, Term: answer.Proof.Term, Index: answer.Proof.Index}, nil
}

// met is the group that a member asks about. One that is configured with another number of groups takes part in none.
func (s *Server) met(in *lockpb.MeetRequest) (*shard, *refusal) {
	if groups := max(1, in.GetGroups()); int(groups) != len(s.shards) {
		return nil, invalid("groups", fmt.Sprintf("node %s is configured with groups: %d, and node %s with %d",
			in.GetNode(), groups, s.config.Node, len(s.shards)))
	}
	if in.GetGroup() >= uint32(len(s.shards)) {
		return nil, invalid("group", fmt.Sprintf("there is no group %d", in.GetGroup()))
	}
	return s.shards[in.GetGroup()], nil
}

func (s *Server) member(id string) bool {
	for _, m := range s.config.Members {
		if m.ID == id {
			return true
		}
	}
	return false
}

// Meeting asks other nodes with Meet about one group. It implements group.Peers and keeps no connection.
type Meeting struct {
	addresses     map[string]string
	group, groups uint16
}

// NewMeeting is for the members' gRPC addresses, and one of so many groups.
func NewMeeting(members []Member, group, groups uint16) *Meeting {
	m := &Meeting{addresses: make(map[string]string), group: group, groups: groups}
	for _, member := range members {
		m.addresses[member.ID] = member.GRPC
	}
	return m
}

// Ask implements group.Peers. It dials anew each time: a node is asked a few times while it starts, and a connection that
// waits before its next attempt would hold a start up.
func (m *Meeting) Ask(ctx context.Context, member string, q group.Question) (group.Answer, error) {
	conn, err := grpc.NewClient(m.addresses[member], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return group.Answer{}, fmt.Errorf("ask node %q: %w", member, err)
	}
	defer func() { _ = conn.Close() }()
	answer, err := lockpb.NewClusterClient(conn).Meet(ctx, &lockpb.MeetRequest{
		Node: q.From, Blank: q.Blank, Group: uint32(m.group), Groups: uint32(m.groups),
	})
	if err != nil {
		return group.Answer{}, fmt.Errorf("ask node %q: %w", member, err)
	}
	if answer.GetNode() != member {
		return group.Answer{}, fmt.Errorf("the gRPC address of node %q is that of node %q", member, answer.GetNode())
	}
	return group.Answer{Blank: answer.GetBlank(), Proof: group.Proof{Term: answer.GetTerm(), Index: answer.GetIndex()}}, nil
}
