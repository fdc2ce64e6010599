package group

import (
	"context"
	"errors"
	"time"

	"github.com/hashicorp/raft"
)

// lead follows the elections until ctx ends or the replica fails. While this node leads there is one reign,
// bound to one term: leadership that was lost and won again between two looks shows in the term.
func (g *Group) lead(ctx context.Context, from *origin, node *raft.Raft, signals <-chan raft.Observation) error {
	watch := &succession{group: g, node: node, muzzle: from.muzzle, since: g.instant()}
	var failure error
	for running := true; running; {
		watch.look()
		select {
		case <-signals:
		case <-g.muzzled:
		case <-watch.served():
		case <-g.replica.failed:
			failure, running = g.replica.err, false
		case <-ctx.Done():
			running = false
		}
	}
	if errors.As(context.Cause(ctx), new(*diskFault)) {
		watch.abandon()
	} else {
		watch.stop()
	}
	return failure
}

// succession is the sequence of reigns on this node.
type succession struct {
	group   *Group
	node    *raft.Raft
	muzzle  *muzzle
	current *reign
	since   time.Duration // when the last leader was lost; valid while there is none
	absent  bool
}

// look compares what the library says with the current reign, ends and begins reigns, and tells others.
func (s *succession) look() {
	leading, term := s.state()
	if leading && s.muzzle.silent() != nil {
		leading = false // whatever the library thinks: nobody hears it
		s.abandon()
	}
	if s.current != nil && (!leading || s.current.term != term) {
		s.current.depose()
		s.current = nil
	}
	if s.current == nil && leading {
		s.current = s.group.newReign(s.node, term)
	}
	_, leader := s.node.LeaderWithID()
	if s.muzzle.silent() != nil {
		leader = ""
	}
	s.tell(string(leader), leading, term)
}

// abandon ends a reign that the library will not end: its disk hangs or has failed.
func (s *succession) abandon() {
	if s.current != nil {
		s.current.abandon(s.muzzle.silent())
		s.current = nil
	}
}

// state reads whether this node leads, and in which term. The library sets the two one after the other.
func (s *succession) state() (leading bool, term uint64) {
	for {
		term = s.node.CurrentTerm()
		leading = s.node.State() == raft.Leader
		if s.node.CurrentTerm() == term {
			return leading, term
		}
	}
}

// served is closed once the current reign serves; nil, which never is, if there is none or it was told.
func (s *succession) served() <-chan struct{} {
	if s.current == nil || s.current.told {
		return nil
	}
	return s.current.serving
}

func (s *succession) tell(leader string, leading bool, term uint64) {
	g := s.group
	if leading {
		leader = g.config.Node
	}
	news := g.leadership.set(leader, leading, term)
	if leading {
		s.tellServing()
		return
	}
	if !news {
		return
	}
	g.config.Logger.Info("leader changed", "leader", leader, "term", term)
	if leader == "" {
		s.since, s.absent = g.instant(), true
		g.config.Observer.LeaderChanged("", false, 0)
		return
	}
	g.config.Observer.LeaderChanged(leader, false, s.without())
}

// tellServing reports this node's own leadership once it serves.
func (s *succession) tellServing() {
	if s.current.told {
		return
	}
	select {
	case <-s.current.serving:
		s.current.told = true
		s.group.config.Logger.Info("leading", "term", s.current.term)
		s.group.config.Observer.LeaderChanged(s.group.config.Node, true, s.without())
	default:
	}
}

func (s *succession) without() time.Duration {
	if !s.absent {
		return 0
	}
	s.absent = false
	return s.group.instant() - s.since
}

// stop ends the current reign in an orderly way: what is in flight is waited for, and another node is asked
// to take over, so that a planned stop costs the cluster no election timeout.
func (s *succession) stop() {
	g := s.group
	g.refuseAll()
	if s.current == nil {
		return
	}
	s.current.retire(g.config.Timing.Stop)
	if len(servers(s.node)) > 1 && g.replica.healthy() {
		s.transfer()
	}
	s.current = nil
}

// refuseAll answers what is queued or waits, and what comes later, with the reason that the node is stopping.
func (g *Group) refuseAll() {
	stopping := &Error{Kind: Stopping, Err: errStopped}
	g.queue.close(stopping)
	g.waits.close(&Error{Kind: Unknown, Err: errStopped}, stopping)
}

func (s *succession) transfer() {
	ctx, cancel := context.WithTimeout(context.Background(), s.group.config.Timing.Stop)
	defer cancel()
	if err := s.group.Transfer(ctx, ""); err != nil {
		s.group.config.Logger.Info("leadership was not handed over", "error", err)
		return
	}
	s.group.config.Logger.Info("handed leadership over")
}
