package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// bubble runs fn in virtual time and fails if that takes more than limit of real time: two goroutines that
// spin would keep virtual time from going on, and the test from ever ending.
func bubble(t *testing.T, limit time.Duration, fn func(t *testing.T)) {
	t.Helper()
	ended := make(chan struct{})
	defer close(ended)
	go func() {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		select {
		case <-ended:
		case <-timer.C:
			debug.SetTraceback("all")
			panic(fmt.Sprintf("%s: virtual time does not go on: no end after %s", t.Name(), limit))
		}
	}()
	synctest.Test(t, fn)
}

func testLockConfig() lock.Config {
	return lock.Config{
		DefaultTTL: 10 * time.Second, MinTTL: 2 * time.Second, MaxTTL: time.Hour, MaxWait: 5 * time.Minute,
		RetryWindow: time.Minute, Grace: 10 * time.Second, ClaimWindow: 10 * time.Second, HeadStart: time.Second,
		MaxWaiters: 1000, MaxRequests: 1000, MaxExpiries: 100,
	}
}

// member is one node of a test cluster. Its stores outlive its group.
type member struct {
	id        string
	address   raft.ServerAddress
	stores    *Stores
	disk      *slowLog
	stable    *failingStable
	snapshots *snapshots
	current   atomic.Pointer[Group]
	cancel    context.CancelFunc
	ended     chan error // Run's result
}

// node is the member's group as it was last started.
func (m *member) node() *Group { return m.current.Load() }

// cluster is a set of nodes on in-memory stores and an in-memory network, inside a bubble.
type cluster struct {
	t       *testing.T
	network *network
	members []*member
	adjust  func(*Config) // may be nil
	onApply func(node string, a Applied)
	stamped func(term uint64, stamp lock.LeaseTime) // may be nil
	logger  *slog.Logger
}

func newCluster(t *testing.T, nodes int, adjust func(*Config)) *cluster {
	c := &cluster{t: t, network: newNetwork(), adjust: adjust, onApply: func(string, Applied) {}, logger: slog.New(slog.DiscardHandler)}
	for i := range nodes {
		id := fmt.Sprintf("n%d", i+1)
		m := &member{id: id, address: raft.ServerAddress(id + ":7602")}
		m.stores, m.disk, m.stable, m.snapshots = blankStores()
		c.members = append(c.members, m)
	}
	return c
}

func blankStores() (*Stores, *slowLog, *failingStable, *snapshots) {
	memory, kept := raft.NewInmemStore(), &snapshots{}
	disk, stable := &slowLog{LogStore: memory}, &failingStable{StableStore: memory}
	return &Stores{Log: disk, Stable: stable, Snapshots: kept}, disk, stable, kept
}

func (c *cluster) start() {
	for _, m := range c.members {
		c.startNode(m)
	}
}

func (c *cluster) config(m *member) Config {
	config := Config{
		Node: m.id, Cluster: "cluster-of-" + m.id, Lock: testLockConfig(),
		Stores: m.stores, Logger: c.logger.With("node", m.id),
		OnApply: func(a Applied) { c.onApply(m.id, a) }, stamped: c.stamped,
	}
	for _, other := range c.members {
		config.Members = append(config.Members, Member{ID: other.id, Peer: string(other.address)})
	}
	if c.adjust != nil {
		c.adjust(&config)
	}
	return config
}

func (c *cluster) startNode(m *member) {
	c.t.Helper()
	config := c.config(m)
	if config.Port == nil {
		config.Transport = c.network.attach(m.address)
	}
	group, err := New(config)
	if err != nil {
		c.t.Fatalf("new group: %v", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	m.current.Store(group)
	m.cancel, m.ended = cancel, make(chan error, 1)
	go func() {
		err := group.Run(ctx)
		if config.Port != nil {
			err = errors.Join(err, config.Port.Close())
		}
		m.ended <- err
	}()
}

// stop ends a node in an orderly way.
func (c *cluster) stop(m *member) {
	c.t.Helper()
	m.cancel()
	if err := <-m.ended; err != nil {
		c.t.Errorf("%s: run: %v", m.id, err)
	}
}

// crash ends a node without letting it say good-bye to the others.
func (c *cluster) crash(m *member) {
	c.t.Helper()
	c.network.isolate(m.address, true)
	c.stop(m)
	c.network.isolate(m.address, false)
}

// stopNodes ends all nodes, in an orderly way and at once.
func (c *cluster) stopNodes() {
	var wg sync.WaitGroup
	for _, m := range c.members {
		m.cancel()
		wg.Go(func() {
			if err := <-m.ended; err != nil {
				c.t.Errorf("%s: run: %v", m.id, err)
			}
		})
	}
	wg.Wait()
}

// stopAll ends the cluster.
func (c *cluster) stopAll() {
	c.stopNodes()
	time.Sleep(time.Minute) // the library leaves calls to peers behind that end by their timeout
}

// leader waits for a node that leads and serves.
func (c *cluster) leader() *member {
	c.t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for time.Now().Before(deadline) {
		for _, m := range c.members {
			if m.node() == nil {
				continue // not started yet
			}
			if _, self := m.node().Leader(); !self {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_, err := m.node().Read(ctx, func(*lock.Machine) {})
			cancel()
			if err == nil {
				return m
			}
		}
		time.Sleep(20 * time.Millisecond)
	}
	c.t.Fatal("no leader within 30s")
	return nil
}

func (c *cluster) others(m *member) []*member {
	var others []*member
	for _, other := range c.members {
		if other != m {
			others = append(others, other)
		}
	}
	return others
}
