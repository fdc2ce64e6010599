package group

import (
	"context"
	"errors"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
)

// When a process ends, however it ends, its kernel closes its connections, and refuses new ones. So a follower can know that
// its leader is gone long before a heartbeat is overdue, and stand for election at once. It does if
//
//   - the last connection that the leader had opened to it has ended,
//   - a new one to the leader's address is refused: not late, not lost, but refused, and
//   - nothing was heard of that leader since, nor of another.
//
// It stands as in a transfer of leadership (raft.TimeoutNowRequest): without a pre-vote, and those that still believe in the
// leader vote. Terms, votes and logs count as ever, so whatever is wrong with the evidence can cost an election and never more.
// What can be wrong with it, and what happens then:
//
//   - The leader lives, and its port refuses, or a firewall answers for it: leadership moves to a node that the others can
//     reach. A node that can reach nobody raises its term by one, and the others' once when it is back. Neither repeats itself,
//     because it takes a leader that was heard from and was lost, and a node does this once in ten heartbeats at most.
//   - Several stand at once and share the votes: they take turns, by their ids, a fifth of a heartbeat apart. Who has
//     given its vote to somebody lets that one have as long.
//   - Who is first lacks entries that another has, and loses: the next one has its turn. In a group of three or four that refusal
//     decides it, so who had to refuse stands at once. Who knows that it lacks what is committed leaves it to the others.
//   - The machine is gone, or the network: nothing is refused, and the heartbeat decides, as it does when all turns have passed.
//   - The leader stops in order: it hands over first, so another one is known by the time that its connections end.
//   - The leader is back before anybody has looked: its port answers, and the heartbeat decides.
//
// vigil is one node's part in this. Its methods are for one goroutine.
type vigil struct {
	group  *Group
	node   *raft.Raft
	muzzle *muzzle
	turn   time.Duration           // how long a node waits for each one before it
	seen   <-chan raft.Observation // of the elections

	leader string    // the last that was known
	outran bool      // somebody stood since, in vain, because this node's log is longer
	stood  time.Time // when this node did last
}

const (
	lookAgain = 20 * time.Millisecond // a process that is ending may close its port last
	looks     = 3
)

// left is told that the last connection which a node had opened has ended. It does not block; what does not find room is
// left to the heartbeat.
func (g *Group) left(node string) {
	select {
	case g.lost <- node:
	default:
	}
}

// keepVigil looks after leaders that are lost, until ctx ends.
func (g *Group) keepVigil(ctx context.Context, node *raft.Raft, from *origin) {
	if g.port == nil {
		return // the transport was given, and tells nothing of connections
	}
	seen := make(chan raft.Observation, 32) // of a burst that is longer, the rest is not noted
	observer := raft.NewObserver(seen, false, aboutElections)
	node.RegisterObserver(observer)
	defer node.DeregisterObserver(observer)
	_, leader := node.LeaderWithID()
	v := &vigil{group: g, node: node, muzzle: from.muzzle, turn: g.config.Timing.Heartbeat / 5, seen: seen, leader: string(leader)}
	for {
		select {
		case <-ctx.Done():
			return
		case o := <-seen:
			v.note(o)
		case who := <-g.lost:
			v.lost(ctx, who)
		}
	}
}

func aboutElections(o *raft.Observation) bool {
	switch o.Data.(type) {
	case raft.LeaderObservation, raft.RequestVoteRequest:
		return true
	}
	return false
}

func (v *vigil) note(o raft.Observation) {
	switch o := o.Data.(type) {
	case raft.LeaderObservation:
		if o.LeaderID != "" {
			v.leader, v.outran = string(o.LeaderID), false
		}
	case raft.RequestVoteRequest:
		if _, leader := v.node.LeaderWithID(); leader != "" && o.Term <= v.node.CurrentTerm() {
			return // one that comes late
		}
		// The library refuses it. That this node's longer log ends in an older term would be another matter; but who heard
		// from the leader has its entries at the end.
		if _, voters := v.rank(v.leader); o.LastLogIndex < v.node.LastIndex() && voters-2 < voters/2+1 {
			v.outran = true
		}
	}
}

// lost has this node stand for election if the leader is gone, once it is its turn.
func (v *vigil) lost(ctx context.Context, who string) {
	began := time.Now()
	v.drain()
	rank, _ := v.rank(who)
	if who != v.leader || rank < 0 || v.lags() || !v.stood.IsZero() && time.Since(v.stood) < 10*v.group.config.Timing.Heartbeat {
		return
	}
	if !v.gone(ctx, who) {
		return
	}
	for {
		at, over := v.due(who, began, rank)
		if over || time.Since(began) > v.group.config.Timing.Heartbeat {
			return
		}
		rest := time.Until(at)
		if rest <= 0 {
			v.stand(ctx, who)
			return
		}
		timer := time.NewTimer(rest)
		select {
		case <-ctx.Done():
		case o := <-v.seen:
			v.note(o)
		case <-timer.C:
		}
		timer.Stop()
		if ctx.Err() != nil {
			return
		}
	}
}

// drain notes what has been seen so far.
func (v *vigil) drain() {
	for {
		select {
		case o := <-v.seen:
			v.note(o)
		default:
			return
		}
	}
}

// rank says how many stand before this node when a leader is lost, and how many voters there are; below 0: it does not.
// The groups of a node go to different ones.
func (v *vigil) rank(leader string) (rank, voters int) {
	var heirs []string
	for _, s := range servers(v.node) {
		if s.Suffrage != raft.Voter {
			continue
		}
		voters++
		if string(s.ID) != leader {
			heirs = append(heirs, string(s.ID))
		}
	}
	slices.SortFunc(heirs, strings.Compare)
	own := slices.Index(heirs, v.group.config.Node)
	if own < 0 {
		return -1, voters
	}
	return (own + int(v.group.config.Group)) % len(heirs), voters
}

// lags reports whether this node lacks what a leader has told to be committed: a majority has it, and would refuse.
func (v *vigil) lags() bool { return v.node.LastIndex() < v.muzzle.heard.Load() }

// gone reports whether a node refuses connections.
func (v *vigil) gone(ctx context.Context, who string) bool {
	for range looks {
		bound, cancel := context.WithTimeout(ctx, v.turn)
		conn, err := v.group.port.dial(bound, who, v.group.config.Group, v.group)
		cancel()
		switch {
		case err == nil:
			_ = conn.Close() // it was only to know
			return false
		case errors.Is(err, syscall.ECONNREFUSED):
			return true
		case !pause(ctx, lookAgain):
			return false
		}
	}
	return false
}

// due says when it is this node's turn, as things stand, or that there is nothing left to be done.
func (v *vigil) due(who string, began time.Time, rank int) (at time.Time, over bool) {
	_, leader := v.node.LeaderWithID()
	contact := v.node.LastContact() // a vote that was given counts as one
	at = began.Add(time.Duration(rank) * v.turn)
	switch {
	case v.node.State() != raft.Follower || leader != "" && string(leader) != who:
		return at, true
	case v.outran:
		return began, false
	case leader != "":
		return at, contact.After(began) // it lives
	}
	if patient := contact.Add(v.turn); at.Before(patient) {
		return patient, false
	}
	return at, false
}

func (v *vigil) stand(ctx context.Context, who string) {
	bound, cancel := context.WithTimeout(ctx, v.turn) // later it may not be right any more
	defer cancel()
	if err := v.muzzle.stand(bound); err != nil {
		v.group.config.Logger.Info("the leader's process is gone; this node does not stand for election", "leader", who, "reason", err)
		return
	}
	v.stood = time.Now()
	v.group.config.Logger.Info("the leader's process is gone; this node stands for election", "leader", who, "term", v.node.CurrentTerm())
}

// pause reports false if ctx ends first.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
