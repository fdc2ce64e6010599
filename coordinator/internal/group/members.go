package group

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// MemberReason says why the members were not changed.
type MemberReason uint8

// The reasons. But for NotCaughtUp, nothing was changed.
const (
	MemberExists  MemberReason = iota + 1 // a member has that id or peer address
	NoSuchMember                          // no member has that id
	LastVoter                             // the only node with a vote cannot go
	QuorumAtRisk                          // without it the nodes that are up would be no majority
	NotCaughtUp                           // the node is a member, and has no vote: it was not up to date in time; join it again
	MemberInvalid                         // an id or address that the state machine does not take
)

func (r MemberReason) String() string {
	switch r {
	case MemberExists:
		return "member exists"
	case NoSuchMember:
		return "no such member"
	case LastVoter:
		return "last voter"
	case QuorumAtRisk:
		return "quorum at risk"
	case NotCaughtUp:
		return "not caught up"
	case MemberInvalid:
		return "member invalid"
	}
	return fmt.Sprintf("member reason(%d)", uint8(r))
}

// MemberError is why Join, Remove or Transfer changed nothing, or not all. Where another node has to be asked, their error
// is an *Error, as that of Propose.
type MemberError struct {
	Reason MemberReason
	Member string
	Detail string // a sentence's second half
}

func (e *MemberError) Error() string { return fmt.Sprintf("group: member %q: %s", e.Member, e.Detail) }

// Peer is a member as this node knows it.
type Peer struct {
	lock.Member // addresses are empty where only the configurations of the nodes have them
	Voter       bool
	Contact     time.Duration // since its last answer to this node, which leads; negative: none
	End         uint64        // of its log, then
}

// Peers are the members of the group in the order of their ids, by the newest configuration in this node's log. None: it has
// not begun.
func (g *Group) Peers() []Peer {
	node := g.raft.Load()
	if node == nil {
		return nil
	}
	var known []lock.Member
	g.replica.view(func(m *lock.Machine) { known = m.Members() })
	contacts := g.contacts.Load()
	var peers []Peer
	for _, s := range servers(node) {
		p := Peer{Member: lock.Member{ID: string(s.ID)}, Voter: s.Suffrage == raft.Voter, Contact: -1}
		if i := slices.IndexFunc(known, func(m lock.Member) bool { return m.ID == p.ID }); i >= 0 {
			p.Member = known[i]
		}
		if m, ok := g.config.member(p.ID); ok {
			p.Peer = m.Peer
		}
		if c := contacts.last(s.ID); !c.at.IsZero() {
			p.Contact, p.End = time.Since(c.at), c.end
		}
		peers = append(peers, p)
	}
	slices.SortFunc(peers, func(a, b Peer) int { return cmp.Compare(a.ID, b.ID) })
	return peers
}

// servers is the newest configuration; it does not block.
func servers(node *raft.Raft) []raft.Server {
	future := node.GetConfiguration()
	if future.Error() != nil { // never with the pinned version
		return nil
	}
	return future.Configuration().Servers
}

func serverOf(servers []raft.Server, id string) (raft.Server, bool) {
	i := slices.IndexFunc(servers, func(s raft.Server) bool { return string(s.ID) == id })
	if i < 0 {
		return raft.Server{}, false
	}
	return servers[i], true
}

// leading is the library where this node leads and serves.
func (g *Group) leading() (*raft.Raft, error) {
	node := g.raft.Load()
	if _, self := g.Leader(); node == nil || !self {
		return nil, g.hint(&Error{Kind: NotLeader, Err: errNotServing})
	}
	return node, nil
}

// Join makes a node a member: its addresses are made known, it gets the log without having a vote, and then its vote. Its
// folder must be empty, and its own configuration must name it and the others. Join blocks until it has caught up, or ctx
// ends; then it is a member without a vote, and joining it again goes on from there. It works on the leader only. It
// refuses an id that a member has.
func (g *Group) Join(ctx context.Context, m lock.Member) error {
	g.membership.Lock()
	defer g.membership.Unlock()
	node, err := g.leading()
	if err != nil {
		return err
	}
	half, err := g.mayJoin(servers(node), m)
	if err != nil {
		return err
	}
	if err := g.proposeMember(ctx, m.ID, lock.PutMember{Member: m}); err != nil {
		return err
	}
	id, address := raft.ServerID(m.ID), raft.ServerAddress(m.Peer)
	if !half {
		if err := g.change(ctx, node.AddNonvoter(id, address, 0, g.config.Timing.RPC)); err != nil {
			return err
		}
		g.config.Logger.Info("a node is a member without a vote", "member", m.ID, "peer", m.Peer)
	}
	if err := g.awaitCaughtUp(ctx, node, m.ID); err != nil {
		return err
	}
	if err := g.change(ctx, node.AddVoter(id, address, 0, g.config.Timing.RPC)); err != nil {
		return err
	}
	g.config.Logger.Info("a node is a member with a vote", "member", m.ID)
	return nil
}

// mayJoin refuses what would be two nodes of one name or address. half: it is a member without a vote already.
func (g *Group) mayJoin(now []raft.Server, m lock.Member) (half bool, err error) {
	for _, s := range now {
		own := string(s.ID) == m.ID
		switch {
		case own && s.Suffrage == raft.Nonvoter && string(s.Address) == m.Peer:
			half = true
		case own:
			return false, &MemberError{MemberExists, m.ID, "a node of that id is a member already"}
		case string(s.Address) == m.Peer:
			return false, &MemberError{MemberExists, m.ID, fmt.Sprintf("member %q has the peer address %s", s.ID, m.Peer)}
		}
	}
	return half, nil
}

// proposeMember gets a command about members applied.
func (g *Group) proposeMember(ctx context.Context, id string, cmd lock.Command) error {
	outcome, err := g.Propose(ctx, cmd)
	if err != nil {
		return err
	}
	if refused, ok := outcome.Result.(lock.Refused); ok && refused.Reason != lock.ReasonNoSuchMember {
		return &MemberError{MemberInvalid, id, "the cluster does not take it: " + refused.Reason.String()}
	}
	return nil
}

// change waits for a change of the configuration.
func (g *Group) change(ctx context.Context, future raft.IndexFuture) error {
	done := make(chan error, 1)
	go func() { done <- future.Error() }() // it ends with the leadership at the latest
	select {
	case err := <-done:
		if err == nil {
			return nil
		}
		return g.hint(&Error{Kind: classify(err), Err: err})
	case <-ctx.Done():
		return g.hint(&Error{Kind: Unknown, Err: context.Cause(ctx)})
	}
}

const joinLookEvery = 20 * time.Millisecond

// awaitCaughtUp waits until a member's log was behind by no more than a heartbeat takes: it ends where the leader's did a
// heartbeat ago, or later.
func (g *Group) awaitCaughtUp(ctx context.Context, node *raft.Raft, id string) error {
	contacts, term := g.contacts.Load(), node.CurrentTerm()
	began := time.Now()
	goal, round := node.LastIndex(), began
	ticker := time.NewTicker(joinLookEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return &MemberError{NotCaughtUp, id, "it is a member without a vote, and was not up to date in time. Start it with an empty " +
				"folder, and join it again"}
		}
		if _, self := g.Leader(); !self || node.CurrentTerm() != term {
			return g.hint(&Error{Kind: NotLeader, Err: errDeposed})
		}
		last := contacts.last(raft.ServerID(id))
		if last.at.Before(began) || last.end < goal {
			continue
		}
		if time.Since(round) <= g.config.Timing.Heartbeat {
			return nil
		}
		goal, round = node.LastIndex(), time.Now()
	}
}

// Remove takes a member out. It works on the leader only; a leader that is to go hands over first, and answers that it does not
// lead: the call is then for its successor. It refuses to take the last vote, and what would leave no majority of nodes
// that are up.
func (g *Group) Remove(ctx context.Context, id string) error {
	g.membership.Lock()
	defer g.membership.Unlock()
	node, err := g.leading()
	if err != nil {
		return err
	}
	now := servers(node)
	if err := g.mayRemove(now, id); err != nil {
		return err
	}
	if id == g.config.Node {
		if err := g.transfer(ctx, node, ""); err != nil {
			return err
		}
		return g.hint(&Error{Kind: NotLeader, Err: errDeposed})
	}
	if err := g.change(ctx, node.RemoveServer(raft.ServerID(id), 0, g.config.Timing.RPC)); err != nil {
		return err
	}
	g.contacts.Load().forget(raft.ServerID(id))
	g.config.Logger.Info("a node is no longer a member", "member", id)
	return g.proposeMember(ctx, id, lock.DropMember{ID: id})
}

// mayRemove refuses what would stop the group.
func (g *Group) mayRemove(now []raft.Server, id string) error {
	gone, ok := serverOf(now, id)
	if !ok {
		return &MemberError{NoSuchMember, id, "there is no such member"}
	}
	if gone.Suffrage != raft.Voter {
		return nil
	}
	var left, live int
	for _, s := range now {
		if s.Suffrage != raft.Voter || s.ID == gone.ID {
			continue
		}
		left++
		if string(s.ID) == g.config.Node || g.isLive(s.ID) {
			live++
		}
	}
	switch {
	case left == 0:
		return &MemberError{LastVoter, id, "it is the only one with a vote"}
	case live < left/2+1:
		return &MemberError{QuorumAtRisk, id, fmt.Sprintf("without it %d of %d nodes would be up, which is no majority", live, left)}
	}
	return nil
}

// isLive reports whether a member has answered this leader lately.
func (g *Group) isLive(id raft.ServerID) bool {
	last := g.contacts.Load().last(id)
	return !last.at.IsZero() && time.Since(last.at) < 2*g.config.Timing.Heartbeat
}

// Transfer asks another node to lead: that one, or with an empty id the one that is most up to date. It returns once this node
// no longer leads, or with the reason why it does.
func (g *Group) Transfer(ctx context.Context, to string) error {
	node := g.raft.Load()
	if node == nil {
		return g.hint(&Error{Kind: NotLeader, Err: errNotServing})
	}
	return g.transfer(ctx, node, to)
}

func (g *Group) transfer(ctx context.Context, node *raft.Raft, to string) error {
	if leader, self := g.Leader(); self && leader == to {
		return nil
	}
	var transfer raft.Future
	if to == "" {
		transfer = node.LeadershipTransfer()
	} else {
		s, ok := serverOf(servers(node), to)
		if !ok || s.Suffrage != raft.Voter {
			return &MemberError{NoSuchMember, to, "there is no such member with a vote"}
		}
		transfer = node.LeadershipTransferToServer(s.ID, s.Address)
	}
	done := make(chan error, 1)
	go func() { done <- transfer.Error() }() // the library bounds it by the election timeout
	select {
	case err := <-done:
		if errors.Is(err, raft.ErrNotLeader) {
			return g.hint(&Error{Kind: NotLeader, Err: err})
		}
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
