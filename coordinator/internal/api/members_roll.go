package api

import (
	"context"
	"slices"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// peersOf are the members of the group; none if this node does not know them yet, or has no part in it.
func (sh *shard) peersOf() []group.Peer {
	m, ok := sh.group.(membership)
	if !ok {
		return nil
	}
	return m.Peers()
}

// roll is who the members are, by the group's own account: those of its configuration, with the addresses that the state
// has or else this node's own configuration. voters is nil if the group has not begun here; then it is the configured ones.
func (sh *shard) roll() (members []Member, voters map[string]bool) {
	peers := sh.peersOf()
	if len(peers) == 0 {
		return sh.config.Members, nil
	}
	voters = map[string]bool{}
	for _, p := range peers {
		m := Member(p.Member)
		if i := slices.IndexFunc(sh.config.Members, func(c Member) bool { return c.ID == p.ID }); m.GRPC == "" && i >= 0 {
			m = sh.config.Members[i]
		}
		members, voters[p.ID] = append(members, m), p.Voter
	}
	return members, voters
}

func (sh *shard) memberIDs() (ids []string) {
	members, _ := sh.roll()
	for _, m := range members {
		ids = append(ids, m.ID)
	}
	return ids
}

func nodesOf(members []Member, voters map[string]bool) (nodes []*lockpb.Node) {
	for _, m := range members {
		nodes = append(nodes, &lockpb.Node{Id: m.ID, Peer: m.Peer, Grpc: m.GRPC, Http: m.HTTP, Voter: voters == nil || voters[m.ID]})
	}
	return nodes
}

// rosterEvery is how often it is looked who the members are.
const rosterEvery = 200 * time.Millisecond

// followMembers keeps what the server knows of the members up to date with the first group, until ctx is done.
func (s *Server) followMembers(ctx context.Context) {
	if !s.shards[0].replicated() {
		return // who has the groups tells it
	}
	ticker := time.NewTicker(rosterEvery)
	defer ticker.Stop()
	for {
		if members, _ := s.shards[0].roll(); !slices.Equal(members, s.members()) {
			s.SetMembers(members)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}
