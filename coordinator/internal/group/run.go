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
//
// A disk that hangs, is full or fails does not end it: the node leaves the group to the others meanwhile, says so in its
// Status, and begins anew on what its stores hold once they can be written again.
func (g *Group) Run(ctx context.Context) error {
	logger := newBridge(g.config.Logger)
	defer g.leadership.set("", false, 0)
	l := &starts{group: g, logger: logger}
	pause := firstProbe
	for {
		began := g.instant()
		err := l.live(ctx)
		if !l.again(ctx, err) {
			return errors.Join(err, l.close())
		}
		if g.instant()-began > 2*longestProbe {
			pause = firstProbe
		}
		if !g.awaitDisk(ctx, err, &pause) {
			g.refuseAll()
			return l.close()
		}
		g.replica.reset()
	}
}

// starts is what outlives one start of the library.
type starts struct {
	group     *Group
	logger    hclog.Logger
	transport raft.Transport // nil until the first start
	muzzle    *muzzle        // of the last start
	lived     bool           // the library has run
	running   bool           // and it ran in the last start
}

// again reports whether what ended a start is the disk's fault, and may pass.
func (l *starts) again(ctx context.Context, err error) bool {
	var fault *diskFault
	switch {
	case ctx.Err() != nil || err == nil:
		return false
	case errors.As(err, &fault):
		return true
	case l.lived && !l.running:
		l.group.reasons.disk.say("the node cannot begin anew: " + err.Error())
		l.group.config.Logger.Error("the node cannot begin anew on its stores", "error", err)
		return true
	}
	return false
}

func (l *starts) close() error {
	switch {
	case l.muzzle != nil:
		return l.muzzle.closeAll()
	case l.transport != nil:
		return closeTransport(l.transport)
	}
	return nil
}

// live is one start of the library, from the opening of the stores to their closing.
func (l *starts) live(ctx context.Context) error {
	l.running = false
	stores, err := l.group.stores(l.logger)
	if err != nil {
		return err
	}
	return errors.Join(l.liveOn(ctx, stores), stores.close())
}

func (g *Group) stores(logger hclog.Logger) (*Stores, error) {
	if g.config.Stores != nil {
		return g.config.Stores, nil
	}
	return openStores(g.config.Dir, g.config.Group, logger)
}

func (l *starts) liveOn(ctx context.Context, stores *Stores) error {
	g := l.group
	from, err := g.look(stores)
	if err != nil {
		return err
	}
	if l.transport == nil {
		if l.transport, err = g.transport(l.logger); err != nil {
			return err
		}
	}
	if l.muzzle != nil {
		_ = l.muzzle.Close() // never an error
	}
	from.muzzle = newMuzzle(l.transport, from.seam.covered.Load)
	l.muzzle = from.muzzle
	g.muzzle.Store(from.muzzle)
	if why := g.replaced.Load(); why != nil {
		from.muzzle.end(why)
	}
	g.contacts.Store(from.muzzle.contacts)
	if !g.settle(ctx, from) {
		g.refuseAll()
		return nil
	}
	node, err := g.startRaft(from, l.logger)
	if err != nil {
		return err
	}
	l.lived, l.running = true, true
	g.reasons.disk.say("")
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
	from.disk.guard(true)
	beside.Go(func() {
		if err := g.watch(ctx, from, func() { nudge(g.muzzled) }); err != nil {
			fail(err)
		}
	})
	beside.Go(func() { g.standing(ctx, node, from) })
	beside.Go(func() { g.keepVigil(ctx, node, from) })
	beside.Go(func() { g.upgrade(ctx, node) })
	if from.how == rejoins {
		beside.Go(func() {
			if err := g.catchUp(ctx, node, from); err != nil {
				fail(err)
			}
		})
	}

	failure := g.lead(ctx, from, node, signals)
	if parent.Err() == nil {
		failure = errors.Join(failure, context.Cause(ctx))
	}
	close(stop)
	fail(nil)
	if !errors.As(failure, new(*diskFault)) {
		parent = ended // it is not to wait for the disk
	}
	if err := g.shutdown(parent, node, from); err != nil {
		return errors.Join(failure, err)
	}
	beside.Wait()
	return failure
}

// nudge leaves a signal that nobody has looked at yet.
func nudge(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// ended is a context that has ended.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

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
	last, err := stores.Log.LastIndex()
	if err != nil {
		return nil, fmt.Errorf("read the end of the log: %w", err)
	}
	if g.replica.told.Load() == 0 { // a later start replays what was told already, and what was not is news
		g.replica.replayed = last
	}
	from.disk.guard(false)
	g.replica.rush.Store(false)
	node, err := newRaft(config, g.replica, stores, from.muzzle)
	if err != nil {
		return nil, fmt.Errorf("start raft: %w", err)
	}
	if from.how != rejoins { // which gets the members from the others
		g.compareMembers(node)
	}
	g.raft.Store(node)
	g.config.Logger.Info("group started", "begins", from.how.String(), "last_index", last)
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

// newRaft starts the library, which panics at a log that cannot be read.
func newRaft(config *raft.Config, fsm raft.FSM, stores *Stores, transport raft.Transport) (node *raft.Raft, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the log cannot be read: %v", p)
		}
	}()
	return raft.NewRaft(config, fsm, stores.Log, stores.Stable, stores.Snapshots, transport)
}

// shutdown ends the library and cuts it off from the others. Its own shutdown waits for the log store; one that hangs
// must not keep the caller for ever, so past the bound, which begins when ctx ends, the goroutines of the library are left
// behind and that is an error.
func (g *Group) shutdown(ctx context.Context, node *raft.Raft, from *origin) error {
	g.replica.rush.Store(true)
	ending := node.Shutdown() // first the signal, so that cutting it off is not logged as a fault
	from.muzzle.mute(errStopped)
	var closing error
	if ctx.Err() != nil {
		closing = from.muzzle.closeAll()
	}
	from.disk.letGo()
	done := make(chan error, 1)
	go func() { done <- ending.Error() }()
	select {
	case err := <-done:
		return errors.Join(closing, err)
	case <-ctx.Done():
	}
	timer := time.NewTimer(g.config.Timing.Stop)
	defer timer.Stop()
	select {
	case err := <-done:
		return errors.Join(closing, err)
	case <-timer.C:
		return errors.New("the log store did not let go in time")
	}
}
