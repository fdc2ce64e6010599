package group

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// ErrNotMember is the answer to a node that is no member of the cluster: it has not joined yet, or was removed.
var ErrNotMember = errors.New("group: the node is not a member of the cluster")

const (
	removed   = "this node was removed from the cluster. To have it back, remove everything in its folder, start it, and join it"
	notJoined = "this node is not a member of the cluster. Join it: lychgate cluster join"
)

// isMember reports whether a node is a member: by the newest configuration in the log, or by this node's own as long as
// it has none.
func (g *Group) isMember(id string) bool {
	if node := g.raft.Load(); node != nil {
		if now := servers(node); len(now) > 0 {
			_, ok := serverOf(now, id)
			return ok
		}
	}
	_, ok := g.config.member(id)
	return ok
}

// compareMembers says where the node's configuration and the log differ in who is a member. The log counts: nodes join and
// leave while configurations stay as they were written.
func (g *Group) compareMembers(node *raft.Raft) {
	now := servers(node)
	var more, less []string
	for _, m := range g.config.Members {
		if _, ok := serverOf(now, m.ID); !ok {
			more = append(more, m.ID)
		}
	}
	for _, s := range now {
		if _, ok := g.config.member(string(s.ID)); !ok {
			less = append(less, string(s.ID))
		}
	}
	if len(more)+len(less) > 0 {
		g.config.Logger.Warn("the configuration names other members than the cluster has; the cluster's count",
			"only_configured", strings.Join(more, ", "), "only_in_cluster", strings.Join(less, ", "))
	}
}

// know makes the addresses of members that joined known to the peer port. The node's configuration wins where it names one.
func (g *Group) know(members []lock.Member) {
	if g.port == nil {
		return
	}
	for _, m := range members {
		if _, configured := g.config.member(m.ID); !configured {
			g.port.Know(Member{ID: m.ID, Peer: m.Peer})
		}
	}
}

// membersChanged is told of what an entry changed, on the goroutine that applies.
func (g *Group) membersChanged(events []lock.Event) {
	for _, event := range events {
		e, ok := event.(lock.MemberChanged)
		if !ok {
			continue
		}
		_, configured := g.config.member(e.Member.ID)
		switch {
		case !e.Gone:
			g.know([]lock.Member{e.Member})
		case g.port != nil && !configured:
			g.port.Forget(e.Member.ID)
		}
	}
}

const askOutsideEvery = 5 * time.Second

// standing looks whether this node is a member at all, and whether it makes progress, until ctx ends.
func (g *Group) standing(ctx context.Context, node *raft.Raft, from *origin) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	var progress progress
	asked := g.instant()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		now := g.instant()
		g.reasons.stuck.say(progress.look(node.AppliedIndex(), from.muzzle.heard.Load(), now, g.config.Timing.Stuck))
		if g.reasons.origin.String() != "" {
			continue // it catches up, and its log does not say yet who is a member
		}
		if leader, _ := g.Leader(); leader != "" {
			asked = now
			g.reasons.outside.say("")
			continue
		}
		if list := servers(node); len(list) > 0 {
			if _, ok := serverOf(list, g.config.Node); !ok {
				g.reasons.outside.say(removed)
				continue
			}
		}
		if g.config.Peers != nil && now-asked >= askOutsideEvery {
			asked = now
			if errors.Is(g.askAll(ctx, false), ErrNotMember) {
				g.reasons.outside.say(removed)
			}
		}
	}
}

// progress tells a replica that is stuck from one that is idle.
type progress struct {
	applied uint64
	since   time.Duration // of the last progress, or since when there was nothing to be done
}

// look says in words that nothing was applied for a time although there was something; empty: it goes on.
func (p *progress) look(applied, committed uint64, now, bound time.Duration) string {
	if applied > p.applied || applied >= committed {
		p.applied, p.since = max(applied, p.applied), now
		return ""
	}
	if now-p.since < bound {
		return ""
	}
	return fmt.Sprintf("this replica makes no progress: it has applied entry %d, the leader has committed %d, and nothing has "+
		"changed for %s. If it stays so, start the node again; if that does not help, with an empty folder",
		applied, committed, (now - p.since).Truncate(time.Second))
}
