package group

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// releases is what the program on each node knows at the moment; a node that is not up does not answer.
type releases struct {
	mu    sync.Mutex
	knows map[string]uint32
	down  map[string]bool
}

func (r *releases) Known(_ context.Context, member, _ string) (uint32, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.down[member] {
		return 0, errLost
	}
	return r.knows[member], nil
}

func (r *releases) set(member string, version uint32, down bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.knows[member], r.down[member] = version, down
}

func newReleases(c *cluster, version uint32) *releases {
	r := &releases{knows: make(map[string]uint32), down: make(map[string]bool)}
	for _, m := range c.members {
		r.knows[m.id] = version
	}
	c.adjust = func(config *Config) {
		r.mu.Lock()
		defer r.mu.Unlock()
		config.Releases, config.MaxVersion = r, r.knows[config.Node]
	}
	return r
}

func versionOf(g *Group) (version uint32) {
	g.View(func(m *lock.Machine) { version = m.Info().Version })
	return version
}

// One node after the other gets a newer program, under clients: no lease is lost, commands of the newer version are refused
// until the last has it, and work from then on.
func TestRollingUpgrade(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T) {
		c, r := newCluster(t, 3, nil), newRecord(t)
		programs := newReleases(c, 1)
		r.watch(c)
		c.start()
		defer c.stopAll()
		c.leader()
		until := time.Now().Add(2 * time.Minute)
		stats, b := &workerStats{}, newBeliefs(t)
		var wg sync.WaitGroup
		for i := range 4 {
			w := &worker{
				cluster: c, beliefs: b, stats: stats, name: lease.ClientID(fmt.Sprintf("w%d", i)), number: byte(i + 1),
				rand: rand.New(rand.NewPCG(5, uint64(i))), ttl: 10 * time.Second,
			}
			wg.Go(func() { w.run([]lease.Resource{"a", "b", "c"}, until) })
		}
		newer := lock.PutMember{Member: lock.Member{ID: "n9", Peer: "n9:1", GRPC: "n9:2", HTTP: "n9:3"}}
		for i, m := range c.members {
			_, err := c.leader().node().Propose(context.Background(), newer)
			wantKind(t, fmt.Sprintf("with %d of 3 upgraded, a newer command", i), err, VersionTooLow)
			programs.set(m.id, 2, true)
			c.stop(m)
			time.Sleep(10 * time.Second)
			if v := versionOf(c.leader().node()); v != 1 {
				t.Errorf("with %s down the version is raised to %d", m.id, v)
			}
			c.startNode(m)
			programs.set(m.id, 2, false)
			time.Sleep(3 * time.Second)
		}
		if !polled(20*time.Second, func() bool { return versionOf(c.leader().node()) == 2 }) {
			t.Fatalf("with all upgraded the version is %d", versionOf(c.leader().node()))
		}
		if result, ok := mustPropose(t, c.leader().node(), newer).Result.(lock.Done); !ok {
			t.Errorf("after the upgrade a newer command is answered %+v", result)
		}
		wg.Wait()
		if stats.outages.Load() > 0 || stats.held.Load() < 20 {
			t.Errorf("%d leases were lost of %d", stats.outages.Load(), stats.held.Load())
		}
	})
}

// A node whose program knows less than the cluster stops, says why, and takes nothing along: whether it finds that in the
// log or in a snapshot. With the program that it had it goes on.
func TestADowngradedNodeStops(t *testing.T) {
	for _, way := range []string{"log", "snapshot"} {
		t.Run(way, func(t *testing.T) {
			bubble(t, time.Minute, func(t *testing.T) {
				c := newCluster(t, 3, nil)
				programs := newReleases(c, 2)
				c.start()
				leader := c.leader()
				old := c.others(leader)[0]
				mustPropose(t, leader.node(), lock.PutMember{Member: lock.Member{ID: "n9", Peer: "n9:1", GRPC: "n9:2", HTTP: "n9:3"}})
				c.stop(old)
				for i := range byte(20) {
					mustGrant(t, leader.node(), testAcquire("a", fmt.Sprint(i), fmt.Sprint(i), i+1))
				}
				if way == "snapshot" {
					old.stores, old.disk, old.stable, old.snapshots = blankStores()
					for _, m := range c.members {
						if m != old {
							if err := m.node().raft.Load().Snapshot().Error(); err != nil {
								t.Fatal(err)
							}
							if err := m.disk.DeleteRange(1, 10); err != nil {
								t.Fatal(err)
							}
						}
					}
				}
				programs.set(old.id, 1, false)
				c.startNode(old)
				err := <-old.ended
				if err == nil || !strings.Contains(err.Error(), "this program knows 1") {
					t.Errorf("it ends with %v", err)
				}
				programs.set(old.id, 2, false)
				c.startNode(old)
				outcome := mustPropose(t, c.leader().node(), lock.Tick{})
				if !polled(20*time.Second, func() bool { return old.node().appliedIndex() >= outcome.Index }) {
					t.Error("with its old program it does not catch up")
				}
				c.stopAll()
			})
		})
	}
}

// A version that the program does not know cannot be asked for.
func TestConfiguredVersionIsKnown(t *testing.T) {
	c := newCluster(t, 1, func(config *Config) { config.Version = lock.MaxVersion + 1 })
	config := c.config(c.members[0])
	if _, err := New(config); err == nil || !strings.Contains(err.Error(), "which this program knows") {
		t.Errorf("got %v", err)
	}
	var e *Error
	if errors.As(error(&Error{Kind: VersionTooLow}), &e) && e.MaybeApplied() {
		t.Error("a command of a later version may be applied")
	}
}
