package group

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Run opens the stores and takes part in the group until ctx ends, which returns nil, or this node cannot go
// on: its stores do not open, its state is damaged, or its log holds what this release does not know. A
// leader that is asked to stop hands over first. Run may be called once.
func (g *Group) Run(ctx context.Context) error {
	logger := newBridge(g.config.Logger)
	stores, err := g.stores(logger)
	if err != nil {
		return err
	}
	defer g.leadership.set("", false, 0)
	return errors.Join(g.runOn(ctx, stores, logger), stores.close())
}

func (g *Group) stores(logger hclog.Logger) (*Stores, error) {
	if g.config.Stores != nil {
		return g.config.Stores, nil
	}
	return openStores(g.config.Dir, g.config.Group, logger)
}

func (g *Group) runOn(ctx context.Context, stores *Stores, logger hclog.Logger) error {
	from, err := g.look(stores)
	if err != nil {
		return err
	}
	if from.transport, err = g.transport(logger); err != nil {
		return err
	}
	if !g.settle(ctx, from) {
		g.refuseAll()
		return closeTransport(from.transport)
	}
	node, err := g.startRaft(from, logger)
	if err != nil {
		return errors.Join(err, closeTransport(from.transport))
	}
	return g.takePart(ctx, node, from)
}

// takePart runs until ctx ends or the node cannot go on.
func (g *Group) takePart(parent context.Context, node *raft.Raft, from *origin) error {
	ctx, fail := context.WithCancelCause(parent)
	defer fail(nil)
	signals := make(chan raft.Observation, 1) // a full channel is a signal that nobody has looked at yet
	observer := raft.NewObserver(signals, false, aboutLeadership)
	node.RegisterObserver(observer)
	defer node.DeregisterObserver(observer)
	var beside sync.WaitGroup
	stop := make(chan struct{})
	beside.Go(func() { g.compact(node, stop) })
	if from.how == rejoins {
		beside.Go(func() {
			if err := g.catchUp(ctx, node, from); err != nil {
				fail(err)
			}
		})
	}

	failure := g.lead(ctx, node, signals)
	if parent.Err() == nil {
		failure = errors.Join(failure, context.Cause(ctx))
	}
	close(stop)
	fail(nil)
	if err := g.shutdown(node, from.transport); err != nil {
		return errors.Join(failure, err)
	}
	beside.Wait()
	return failure
}

func aboutLeadership(o *raft.Observation) bool {
	switch o.Data.(type) {
	case raft.RaftState, raft.LeaderObservation:
		return true
	}
	return false
}

// compact takes a snapshot whenever the entries since the last one have grown too many bytes; the library
// itself counts only entries.
func (g *Group) compact(node *raft.Raft, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		case <-g.replica.grown:
			if err := node.Snapshot().Error(); err != nil {
				g.config.Logger.Info("no snapshot was taken", "error", err)
			}
		}
	}
}

func (g *Group) startRaft(from *origin, logger hclog.Logger) (*raft.Raft, error) {
	config, stores := g.raftConfig(logger), from.stores
	if err := g.prepare(from, config); err != nil {
		return nil, err
	}
	var err error
	if g.replica.replayed, err = stores.Log.LastIndex(); err != nil {
		return nil, fmt.Errorf("read the end of the log: %w", err)
	}
	node, err := raft.NewRaft(config, g.replica, stores.Log, stores.Stable, stores.Snapshots, from.transport)
	if err != nil {
		return nil, fmt.Errorf("start raft: %w", err)
	}
	if from.how != rejoins { // which gets the members from the others
		if err := checkMembers(g.config.Members, node); err != nil {
			return nil, errors.Join(err, node.Shutdown().Error())
		}
	}
	g.raft.Store(node)
	g.config.Logger.Info("group started", "group", g.config.Group, "begins", from.how.String(), "last_index", g.replica.replayed)
	return node, nil
}

// owner says whose the stores are; injected ones are nobody's.
func (g *Group) owner() owner {
	if g.config.Stores != nil {
		return owner{node: g.config.Node}
	}
	return ownerOf(g.config.Dir, g.config.Group, g.config.Node)
}

func (g *Group) raftConfig(logger hclog.Logger) *raft.Config {
	t, l := g.config.Timing, g.config.Limits
	config := raft.DefaultConfig()
	config.LocalID = raft.ServerID(g.config.Node)
	config.HeartbeatTimeout = t.Heartbeat
	config.ElectionTimeout = t.Election
	config.LeaderLeaseTimeout = t.LeaderLease
	config.CommitTimeout = t.Commit
	config.SnapshotInterval = t.Snapshot
	config.SnapshotThreshold = l.SnapshotEvery
	config.TrailingLogs = l.TrailingLogs
	config.ShutdownOnRemove = false
	config.NoLegacyTelemetry = true
	config.Logger = logger
	return config
}

// shutdown ends the library. Its own shutdown waits for the log store; one that hangs must not keep the
// caller for ever, so past the bound the goroutines of the library are left behind and that is an error.
func (g *Group) shutdown(node *raft.Raft, transport raft.Transport) error {
	ending := node.Shutdown() // first the signal, so that closing the transport is not logged as a fault
	closing := closeTransport(transport)
	done := make(chan error, 1)
	go func() { done <- ending.Error() }()
	timer := time.NewTimer(g.config.Timing.Stop)
	defer timer.Stop()
	select {
	case err := <-done:
		return errors.Join(closing, err)
	case <-timer.C:
		return errors.Join(closing, errors.New("the log store did not let go in time"))
	}
}
