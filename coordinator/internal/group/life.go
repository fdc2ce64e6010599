package group

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/lychgate/lychgate/coordinator/internal/logpb"
)

// life is the life of the cluster that a node's state is of: its incarnation plus one; 0: the node has no state yet. Nodes
// of two lives do not speak to each other: what one promised, the other knows nothing of.
type life uint32

func lifeOf(incarnation uint32) life { return life(incarnation + 1) }

// fits reports whether two nodes can be of one cluster. A node without a state is of none yet.
func (l life) fits(other life) bool { return l == 0 || other == 0 || l == other }

// String is the incarnation.
func (l life) String() string {
	if l == 0 {
		return "none"
	}
	return strconv.FormatUint(uint64(l-1), 10)
}

// lifeIn is the life of what stores hold. No entry of a log changes it: a life but the first begins with a snapshot that
// Restore wrote, and who joins is sent one. So a log without a snapshot is of the first.
func lifeIn(stores *Stores) (life, error) {
	all, err := stores.Snapshots.List() // newest first
	if err != nil {
		return 0, fmt.Errorf("list the snapshots: %w", err)
	}
	for _, s := range all {
		_, content, err := stores.Snapshots.Open(s.ID)
		if err != nil {
			continue // the library says so in the log, and takes the one before, too
		}
		incarnation, err := logpb.ReadIncarnation(content)
		_ = content.Close() // it was only read
		if errors.Is(err, logpb.ErrUnknown) {
			return 0, nil // the library's start ends with the same, and nobody was spoken to
		}
		if err != nil {
			return 0, err
		}
		return lifeOf(incarnation), nil
	}
	last, err := stores.Log.LastIndex()
	if err != nil {
		return 0, fmt.Errorf("read the end of the log: %w", err)
	}
	if last == 0 {
		return 0, nil
	}
	return lifeOf(0), nil
}

// life is that of this node's state. It does not block.
func (g *Group) life() life { return life(g.replica.life.Load()) }

// outlived takes this node out for good, if its state is of an earlier life than that of a member whom it asked: whatever
// this node and others of its life agree upon, that cluster was given up, and another has its place. Whoever calls is not
// believed, only who is found at a member's address.
func (g *Group) outlived(by life, node string) {
	own := g.life()
	if own == 0 || by <= own || !g.replaced.CompareAndSwap(nil, &replacement{own, by}) {
		return
	}
	why := g.replaced.Load()
	g.reasons.life.say(why.Error())
	g.config.Logger.Error("this node does not take part", "error", why, "told_by", node)
	if m := g.muzzle.Load(); m != nil {
		m.end(why)
	}
	nudge(g.muzzled)
}

// replacement is why a node of an earlier life takes no part.
type replacement struct{ own, by life }

func (r *replacement) Error() string {
	return fmt.Sprintf("this folder is of the cluster's life %s, which was replaced by life %s: remove everything in it, start the node, "+
		"and join it", r.own, r.by)
}
