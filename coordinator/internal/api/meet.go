package api

import (
	"context"
	"errors"
	"fmt"
	"math"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Meet implements lockpb.ClusterServer. It is never forwarded.
func (s *Server) Meet(ctx context.Context, in *lockpb.MeetRequest) (*lockpb.MeetResponse, error) {
	switch {
	case in.GetNode() == s.config.Node:
		return nil, invalid("node", "it is this node's own name")
	case !s.member(in.GetNode()):
		return nil, noMember(in)
	}
	if groups := max(1, in.GetGroups()); int(groups) != len(s.shards) {
		return s.metAnother()
	}
	sh, ok := s.shard(uint16(min(in.GetGroup(), math.MaxUint16)))
	if !ok {
		return nil, invalid("group", fmt.Sprintf("there is no group %d", in.GetGroup()))
	}
	answer, err := sh.group.Answer(ctx, group.Question{From: in.GetNode(), Blank: in.GetBlank()})
	switch {
	case errors.Is(err, group.ErrNotMember):
		return nil, noMember(in)
	case err != nil:
		return nil, groupRefusal(err)
	}
	return &lockpb.MeetResponse{
		Node: s.config.Node, Groups: uint32(len(s.shards)), Blank: answer.Blank,
		Incarnation: answer.Proof.Incarnation, Term: answer.Proof.Term, Index: answer.Proof.Index,
	}, nil
}

// metAnother answers a node that is configured with another number of groups, and learns nothing from it. If this node
// takes part in a cluster, the other one cannot.
func (s *Server) metAnother() (*lockpb.MeetResponse, error) {
	status := s.shards[0].group.Status()
	if !status.Blank && status.State == "" {
		return nil, refuse(lockpb.Reason_NO_LEADER, "the stores are not open yet")
	}
	return &lockpb.MeetResponse{Node: s.config.Node, Groups: uint32(len(s.shards)), Blank: status.Blank}, nil
}

// noMember refuses a node that has not joined, or was removed.
func noMember(in *lockpb.MeetRequest) *refusal {
	return refuse(lockpb.Reason_NO_SUCH_MEMBER, fmt.Sprintf("node %q is not a member of this cluster", in.GetNode()))
}

func (s *Server) member(id string) bool {
	for _, m := range s.members() {
		if m.ID == id {
			return true
		}
	}
	return false
}

// Meeting asks other nodes with Meet about one group. It implements group.Peers and keeps no connection.
type Meeting struct {
	addresses     map[string]string
	secure        dialSecurity
	group, groups uint16
	misfit        func(error)
}

// NewMeeting is for the members' gRPC addresses, and one of so many groups. misfit is told when the cluster has another
// number of groups, so that this node can never take part; it must not block, and may be told again.
func NewMeeting(members []Member, secure Security, group, groups uint16, misfit func(error)) *Meeting {
	m := &Meeting{addresses: make(map[string]string), secure: secure.dial(), group: group, groups: groups, misfit: misfit}
	for _, member := range members {
		m.addresses[member.ID] = member.GRPC
	}
	return m
}

// Ask implements group.Peers. It dials anew each time: a node is asked a few times while it starts, and a connection that
// waits before its next attempt would hold a start up.
func (m *Meeting) Ask(ctx context.Context, member string, q group.Question) (group.Answer, error) {
	conn, err := grpc.NewClient(m.addresses[member], grpc.WithTransportCredentials(m.secure(member)))
	if err != nil {
		return group.Answer{}, fmt.Errorf("ask node %q: %w", member, err)
	}
	defer func() { _ = conn.Close() }()
	answer, err := lockpb.NewClusterClient(conn).Meet(ctx, &lockpb.MeetRequest{
		Node: q.From, Blank: q.Blank, Group: uint32(m.group), Groups: uint32(m.groups),
	})
	if status.Code(err) == codes.NotFound { // NO_SUCH_MEMBER
		err = fmt.Errorf("%w: %w", group.ErrNotMember, err)
	}
	if err != nil {
		return group.Answer{}, fmt.Errorf("ask node %q: %w", member, err)
	}
	if answer.GetNode() != member {
		return group.Answer{}, fmt.Errorf("the gRPC address of node %q is that of node %q", member, answer.GetNode())
	}
	if theirs := max(1, answer.GetGroups()); theirs != uint32(m.groups) {
		err := fmt.Errorf("node %q is configured with groups: %d, and this node with groups: %d", member, theirs, m.groups)
		if !answer.GetBlank() {
			m.misfit(fmt.Errorf("%w: the cluster was created with its number, which cannot be changed", err))
		}
		return group.Answer{}, err
	}
	return group.Answer{Blank: answer.GetBlank(), Proof: group.Proof{
		Incarnation: answer.GetIncarnation(), Term: answer.GetTerm(), Index: answer.GetIndex(),
	}}, nil
}
