package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// membership is the part of a group that says who its members are. A group that is elsewhere has none.
type membership interface {
	Join(ctx context.Context, m lock.Member) error
	Remove(ctx context.Context, id string) error
	Transfer(ctx context.Context, to string) error
	Peers() []group.Peer
}

func (sh *shard) membership() (membership, *refusal) {
	m, ok := sh.group.(membership)
	if !ok {
		return nil, refuse(lockpb.Reason_NO_LEADER, fmt.Sprintf("node %s has no part in group %d", sh.config.Node, sh.number))
	}
	return m, nil
}

// already reports whether a refusal says that a group has the change from before. The others go on.
func (r *refusal) already() bool {
	return r != nil && (r.reason() == lockpb.Reason_MEMBER_EXISTS || r.reason() == lockpb.Reason_NO_SUCH_MEMBER)
}

// Join implements lockpb.ClusterServer: one group after the other. A node that is a member of some groups, because an
// earlier join did not come to its end, becomes one of the others.
func (s *Server) Join(ctx context.Context, in *lockpb.JoinRequest) (*lockpb.JoinResponse, error) {
	return administer(ctx, s, func(ctx context.Context) (*lockpb.JoinResponse, *refusal) {
		m, refused := parseMember(in.GetNode())
		if refused != nil {
			return nil, refused
		}
		out := &lockpb.JoinResponse{}
		refused = s.changeMembers(ctx, func(ctx context.Context, sh *shard) *refusal {
			one, refused := leadingOn(ctx, sh,
				func(ctx context.Context) (*lockpb.JoinResponse, *refusal) { return sh.joinHere(ctx, m) },
				func(ctx context.Context, leader lockpb.ClusterClient) (*lockpb.JoinResponse, error) {
					return leader.Join(ctx, in)
				})
			if refused == nil && len(one.GetNodes()) > 0 {
				out = one
			}
			return refused
		})
		return out, refused
	})
}

// Remove implements lockpb.ClusterServer: one group after the other, and then the node's ticket keys.
func (s *Server) Remove(ctx context.Context, in *lockpb.RemoveRequest) (*lockpb.RemoveResponse, error) {
	return administer(ctx, s, func(ctx context.Context) (*lockpb.RemoveResponse, *refusal) {
		if in.GetId() == "" {
			return nil, invalid("id", "id is empty")
		}
		if in.GetId() == s.config.Node && !forwarded(ctx) {
			return nil, invalid("id", "a node does not remove itself: ask another one").advise("set --address to another node")
		}
		out := &lockpb.RemoveResponse{}
		refused := s.changeMembers(ctx, func(ctx context.Context, sh *shard) *refusal {
			one, refused := leadingOn(ctx, sh,
				func(ctx context.Context) (*lockpb.RemoveResponse, *refusal) { return sh.removeHere(ctx, in.GetId()) },
				func(ctx context.Context, leader lockpb.ClusterClient) (*lockpb.RemoveResponse, error) {
					return leader.Remove(ctx, in)
				})
			if refused == nil && len(one.GetNodes()) > 0 {
				out = one
			}
			return refused
		})
		if refused == nil && !forwarded(ctx) {
			refused = s.rekeyEverywhere(s.asSelf(ctx), &lockpb.RekeyRequest{Node: in.GetId(), Retire: true})
		}
		return out, refused
	})
}

// changeMembers makes a change in every group. It is refused as made already only if it was in all of them.
func (s *Server) changeMembers(ctx context.Context, one func(context.Context, *shard) *refusal) *refusal {
	changed := false
	var before *refusal
	refused := s.inEveryGroup(ctx, func(ctx context.Context, sh *shard) *refusal {
		refused := one(ctx, sh)
		if refused.already() {
			before = refused
			if forwarded(ctx) {
				return refused
			}
			return nil
		}
		changed = changed || refused == nil
		return refused
	})
	if refused == nil && !changed {
		return before
	}
	return refused
}

// leadingOn is leading for a change of members, which takes as long as its caller waits, and through which leaders may
// change. A change that an earlier attempt has made, and whose answer was lost, is not one that was made before.
func leadingOn[R any](
	ctx context.Context, sh *shard,
	here func(context.Context) (R, *refusal), there func(context.Context, lockpb.ClusterClient) (R, error),
) (R, *refusal) {
	made := false // an attempt may have made it
	answer, refused := route(ctx, sh, call[R]{
		here: func(ctx context.Context) (R, *refusal) {
			answer, refused := here(ctx)
			made = made || (refused != nil && refused.maybe())
			return answer, refused
		},
		cluster: func(ctx context.Context, leader lockpb.ClusterClient) (R, error) {
			answer, err := there(ctx, leader)
			made = made || (err != nil && received(err, "").maybe())
			return answer, err
		},
		patience: memberPatience * sh.config.Patience,
	})
	if refused.already() && made {
		return answer, nil
	}
	return answer, refused
}

// memberPatience is how much longer than other calls one that changes members looks for a leader.
const memberPatience = 10

func (sh *shard) joinHere(ctx context.Context, m lock.Member) (*lockpb.JoinResponse, *refusal) {
	group, refused := sh.membership()
	if refused != nil {
		return nil, refused
	}
	if refused := sh.knows(lock.PutMember{}); refused != nil {
		return nil, refused
	}
	if refused := sh.publish(ctx, group); refused != nil {
		return nil, refused
	}
	if err := sh.mayHave(m); err != nil {
		return nil, memberRefusal(err)
	}
	if err := group.Join(ctx, m); err != nil {
		return nil, memberRefusal(err)
	}
	return &lockpb.JoinResponse{Nodes: nodesOf(sh.roll())}, nil
}

// mayHave refuses a node with an address at which calls reach another member. The group looks at the peer address.
func (sh *shard) mayHave(m lock.Member) error {
	members, _ := sh.roll()
	for _, other := range members {
		for _, address := range []string{m.GRPC, m.HTTP} {
			if other.ID != m.ID && slices.Contains([]string{other.Peer, other.GRPC, other.HTTP}, address) {
				return &group.MemberError{
					Reason: group.MemberExists, Member: m.ID, Detail: fmt.Sprintf("member %q has the address %s", other.ID, address),
				}
			}
		}
	}
	return nil
}

// publish writes the addresses of the members into the state that so far only configurations have: the node that joins, and
// gateways, learn them from there.
func (sh *shard) publish(ctx context.Context, g membership) *refusal {
	for _, p := range g.Peers() {
		i := slices.IndexFunc(sh.config.Members, func(m Member) bool { return m.ID == p.ID })
		if p.GRPC != "" || i < 0 {
			continue
		}
		m := sh.config.Members[i]
		if _, refused := sh.order(ctx, lock.PutMember{Member: lock.Member(m)}); refused != nil {
			return refused
		}
	}
	return nil
}

func (sh *shard) removeHere(ctx context.Context, id string) (*lockpb.RemoveResponse, *refusal) {
	group, refused := sh.membership()
	if refused != nil {
		return nil, refused
	}
	if err := sh.takeOut(ctx, group, id); err != nil {
		return nil, memberRefusal(err)
	}
	return &lockpb.RemoveResponse{Nodes: nodesOf(sh.roll())}, nil
}

// contactTime is how long a leader may take until it has heard of everybody who is up: it may lead since a moment.
const contactTime = time.Second

// takeOut removes a member. That the others are down counts only if it lasts.
func (sh *shard) takeOut(ctx context.Context, from membership, id string) error {
	began := time.Now()
	for {
		err := from.Remove(ctx, id)
		var why *group.MemberError
		if !errors.As(err, &why) || why.Reason != group.QuorumAtRisk || time.Since(began) > contactTime || !sleep(ctx, sh.group.Changed(), longestPause) {
			return err
		}
	}
}

// memberRefusal turns an error of Join, Remove or Transfer into a refusal.
func memberRefusal(err error) *refusal {
	var why *group.MemberError
	if !errors.As(err, &why) {
		return groupRefusal(err).mayBeApplied() // a change has several steps
	}
	message := fmt.Sprintf("node %s: %s", why.Member, why.Detail)
	var out *refusal
	switch why.Reason {
	case group.MemberExists:
		out = refuse(lockpb.Reason_MEMBER_EXISTS, message)
	case group.NoSuchMember:
		out = refuse(lockpb.Reason_NO_SUCH_MEMBER, message)
	case group.LastVoter, group.QuorumAtRisk:
		out = refuse(lockpb.Reason_QUORUM_AT_RISK, message)
	case group.NotCaughtUp:
		out = refuse(lockpb.Reason_NOT_CAUGHT_UP, message).mayBeApplied()
	case group.MemberInvalid:
		out = invalid("node", message)
	default:
		out = refuse(lockpb.Reason_INTERNAL, message)
	}
	return out
}

// parseMember checks the id and the addresses of a node that is to join.
func parseMember(in *lockpb.Node) (lock.Member, *refusal) {
	if _, err := lease.ParseClientID(in.GetId()); err != nil {
		return lock.Member{}, invalid("node.id", "node.id"+strings.TrimPrefix(err.Error(), "client_id"))
	}
	for _, a := range []struct{ field, address string }{
		{"node.peer", in.GetPeer()},
		{"node.grpc", in.GetGrpc()},
		{"node.http", in.GetHttp()},
	} {
		host, port, err := net.SplitHostPort(a.address)
		if err != nil || host == "" {
			return lock.Member{}, invalid(a.field, fmt.Sprintf("%s %q is not host:port", a.field, a.address))
		}
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return lock.Member{}, invalid(a.field, fmt.Sprintf("%s %q: the port is not a number from 1 to 65535", a.field, a.address))
		}
	}
	if p, g, h := in.GetPeer(), in.GetGrpc(), in.GetHttp(); p == g || g == h || h == p {
		return lock.Member{}, invalid("node", "two addresses of the node are the same")
	}
	return lock.Member{ID: in.GetId(), Peer: in.GetPeer(), GRPC: in.GetGrpc(), HTTP: in.GetHttp()}, nil
}
