package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Ready reports why this node cannot serve calls now, and nil if it can. It looks at this node alone; but without a
// quorum no node knows a leader, so none is ready then.
func (s *Server) Ready() error {
	if s.closing.Err() != nil {
		return errors.New("the node is stopping")
	}
	for _, sh := range s.shards {
		if err := sh.ready(); err != nil {
			return sh.naming(err)
		}
	}
	return nil
}

func (sh *shard) ready() error {
	if pending := sh.group.Status().Pending; pending != "" {
		return errors.New(pending)
	}
	if leader, _ := sh.group.Leader(); leader == "" {
		return errors.New("no leader is known: there is no quorum, or an election is on")
	}
	if !sh.info().Initialised {
		return errors.New("the cluster is not initialised, as far as this node knows")
	}
	return nil
}

// naming says which group an error is about, if there are several.
func (sh *shard) naming(err error) error {
	if len(sh.shards) == 1 {
		return err
	}
	return fmt.Errorf("group %d: %w", sh.number, err)
}

// How often readiness is looked at where no leader change does it; oftener while it is waited for.
const (
	readyEvery      = time.Second
	firstReadyEvery = 20 * time.Millisecond
)

// FirstReady is closed once Run has seen the node ready.
func (s *Server) FirstReady() <-chan struct{} { return s.firstReady }

// Run follows the leaders until ctx is done, and then closes the connections to other nodes. Calls work before it
// and beside it; without it a call that hangs on a leader that is gone is not sent to the next one.
func (s *Server) Run(ctx context.Context) {
	defer s.peers.close()
	changed := make(chan struct{}, 1) // a full one is a change that was not looked at yet
	var following sync.WaitGroup
	defer following.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	for _, sh := range s.shards {
		following.Go(func() { sh.follow(ctx, changed) })
	}
	following.Go(func() { s.runJournal(ctx) })
	following.Go(func() { s.followMembers(ctx) })
	following.Go(func() { s.runOversight(ctx) })
	ticker := time.NewTicker(firstReadyEvery)
	defer ticker.Stop()
	var seen bool
	for {
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

// follow keeps the reign of the group's leader current until ctx is done, and tells of each change.
func (sh *shard) follow(ctx context.Context, told chan<- struct{}) {
	var known string
	for {
		changed := sh.group.Changed()
		leader, self, _ := sh.reigns.now()
		if leader != known && leader != "" && !self {
			sh.peers.awake(leader)
		}
		known = leader
		sh.news.tell()
		select {
		case told <- struct{}{}:
		default:
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
