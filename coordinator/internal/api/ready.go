package api

import (
	"context"
	"errors"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// Ready reports why this node cannot serve calls now, and nil if it can. It looks at this node alone; but without a
// quorum no node knows a leader, so none is ready then.
func (s *Server) Ready() error {
	if s.closing.Err() != nil {
		return errors.New("the node is stopping")
	}
	if pending := s.group.Status().Pending; pending != "" {
		return errors.New(pending)
	}
	if leader, _ := s.group.Leader(); leader == "" {
		return errors.New("no leader is known: there is no quorum, or an election is on")
	}
	var initialised bool
	s.group.View(func(m *lock.Machine) { initialised = m.Info().Initialised })
	if !initialised {
		return errors.New("the cluster is not initialised, as far as this node knows")
	}
	return nil
}

// How often readiness is looked at where no leader change does it; oftener while it is waited for.
const (
	readyEvery      = time.Second
	firstReadyEvery = 20 * time.Millisecond
)

// FirstReady is closed once Run has seen the node ready.
func (s *Server) FirstReady() <-chan struct{} { return s.firstReady }

// Run follows the leader until ctx is done, and then closes the connections to other nodes. Calls work before it
// and beside it; without it a call that hangs on a leader that is gone is not sent to the next one.
func (s *Server) Run(ctx context.Context) {
	defer s.peers.close()
	ticker := time.NewTicker(firstReadyEvery)
	defer ticker.Stop()
	var known string
	var seen bool
	for {
		changed := s.group.Changed()
		leader, self, _ := s.reigns.now()
		if leader != known && leader != "" && !self {
			s.peers.awake(leader)
		}
		known = leader
		ready := s.Ready() == nil
		setHealth(s.health, ready)
		if ready && !seen {
			seen = true
			close(s.firstReady)
			ticker.Reset(readyEvery)
		}
		select {
		case <-changed:
		case <-ticker.C:
		case <-s.closing.Done():
			s.health.Shutdown()
			<-ctx.Done()
			return
		case <-ctx.Done():
			return
		}
	}
}
