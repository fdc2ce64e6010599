package group

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// keepAlive renews leases at whichever node leads, every two seconds, until stop is closed. It returns how many renewals
// were answered, and fails the test if one was answered with anything but a renewal.
func (c *cluster) keepAlive(grants []lock.Granted, stop <-chan struct{}) (renewed int) {
	for i := 0; ; i = (i + 1) % len(grants) {
		select {
		case <-stop:
			return renewed
		case <-time.After(2 * time.Second / time.Duration(len(grants))):
		}
		for _, m := range c.members {
			if _, self := m.node().Leader(); !self {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			outcome, err := m.node().Propose(ctx, lock.Renew{Identity: "tenant", Lease: grants[i].Grant.Lease})
			cancel()
			if err != nil {
				continue
			}
			if _, ok := outcome.Result.(lock.Renewed); !ok {
				c.t.Errorf("a renewal is answered %+v", outcome.Result)
			}
			renewed++
		}
	}
}

// The leader's log store hangs for much longer than the TTL. Alone, it takes no time with it; with others, one of them
// leads within the stated time. Whoever renews where somebody leads keeps its lease, and the node is back by itself.
func TestAHungLogExpiresNobody(t *testing.T) {
	for _, nodes := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			bubble(t, time.Minute, func(t *testing.T) {
				c, r := newCluster(t, nodes, nil), newRecord(t)
				r.watch(c)
				c.start()
				defer c.stopAll()
				leader := c.leader()
				var grants []lock.Granted
				for i := range byte(5) {
					grants = append(grants, mustGrant(t, leader.node(), testAcquire(fmt.Sprint(i), "1", fmt.Sprint(i), i+1)))
				}
				stop := make(chan struct{})
				var renewing sync.WaitGroup
				renewing.Go(func() {
					if n := c.keepAlive(grants, stop); n < 5 {
						t.Errorf("only %d renewals", n)
					}
				})
				leader.disk.hang()
				hungAt := time.Now()
				if nodes > 1 {
					if next := c.leader(); next == leader {
						t.Error("the one that hangs leads")
					}
					bound := Timing{}.withDefaults().Disk*9/8 + 3*Timing{}.Failover()
					if took := time.Since(hungAt); took > bound {
						t.Errorf("%s until another node led, want at most %s", took, bound)
					}
				}
				time.Sleep(time.Minute - time.Since(hungAt))
				if s := leader.node().Status(); !strings.HasPrefix(s.Pending, "the disk hangs") || s.Disk == "" {
					t.Errorf("the node says %+v", s)
				}
				leader.disk.resume()
				time.Sleep(5 * time.Second)
				if s := leader.node().Status(); s.Pending != "" || s.Disk != "" || s.Leader == "" {
					t.Errorf("five seconds after the disk works again the node says %+v", s)
				}
				close(stop)
				renewing.Wait()
				r.mu.Lock()
				defer r.mu.Unlock()
				if r.counts.expired > 0 {
					t.Errorf("%d leases expired", r.counts.expired)
				}
			})
		})
	}
}

// What was on its way when the leader's disk hung is answered: unknown where it may take effect, and not applied where it
// cannot. A wait is sent away to ask again.
func TestACallerDoesNotWaitForAHungLog(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		c := newCluster(t, 3, func(config *Config) { config.Limits.InFlight = 1 })
		c.start()
		defer c.stopAll()
		leader := c.leader()
		mustGrant(t, leader.node(), testAcquire("a", "1", "x", 1))
		wait := leader.node().Await("tenant", "b", "1")
		defer wait.Close()
		leader.disk.hang()
		began := time.Now()
		var calls sync.WaitGroup
		var flying, queued error
		calls.Go(func() { _, flying = leader.node().Propose(context.Background(), testAcquire("c", "1", "y", 3)) })
		time.Sleep(time.Second)
		calls.Go(func() { _, queued = leader.node().Propose(context.Background(), testAcquire("d", "1", "z", 4)) })
		calls.Wait()
		wantKind(t, "what was in flight", flying, Unknown)
		wantKind(t, "what was queued", queued, NotLeader)
		if end := <-wait.C; end.Err == nil || end.Err.Kind != Unknown {
			t.Errorf("the wait ends with %+v", end)
		}
		if took := time.Since(began); took > 2*(Timing{}).withDefaults().Disk {
			t.Errorf("the callers were told after %s", took)
		}
		leader.disk.resume()
	})
}

// A follower whose disk hangs neither votes nor acknowledges, so two of three such nodes stop the third.
func TestAFollowerWithAHungDiskAcknowledgesNothing(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.start()
		defer c.stopAll()
		leader := c.leader()
		for _, other := range c.others(leader) {
			other.disk.hang()
		}
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if _, err := leader.node().Propose(ctx, testAcquire("a", "1", "x", 1)); err == nil {
			t.Error("an acquire is granted with one disk of three")
		}
		time.Sleep(10 * time.Second)
		for _, other := range c.others(leader) {
			if s := other.node().Status(); s.Disk == "" {
				t.Errorf("a follower whose disk hangs says %+v", s)
			}
		}
		if id, _ := leader.node().Leader(); id != "" {
			t.Errorf("%s leads with one disk of three", id)
		}
		for _, other := range c.others(leader) {
			other.disk.resume()
		}
		mustGrant(t, c.leader().node(), testAcquire("b", "1", "y", 2))
	})
}

// A disk that fails takes its node out of the cluster, the process and nothing acknowledged with it; the node is back by
// itself when the disk can be written again.
func TestAFailedDisk(t *testing.T) {
	for _, role := range []string{"leader", "follower", "alone"} {
		t.Run(role, func(t *testing.T) {
			bubble(t, time.Minute, func(t *testing.T) {
				nodes := 3
				if role == "alone" {
					nodes = 1
				}
				c, r := newCluster(t, nodes, nil), newRecord(t)
				r.watch(c)
				c.start()
				defer c.stopAll()
				leader := c.leader()
				cmd := testAcquire("a", "1", "x", 1)
				cmd.TTL = time.Hour
				first := mustGrant(t, leader.node(), cmd)
				broken := leader
				if role == "follower" {
					broken = c.others(leader)[0]
				}
				broken.disk.fail(fmt.Errorf("write log.db: %w", syscall.ENOSPC))
				if nodes > 1 {
					time.Sleep(5 * time.Second)
					next := c.leader()
					if next == broken {
						t.Error("the node without a disk leads")
					}
					cmd = testAcquire("b", "1", "y", 2)
					cmd.TTL = time.Hour
					if second := mustGrant(t, next.node(), cmd); second.Token <= first.Token {
						t.Errorf("token %d after %d", second.Token, first.Token)
					}
				} else {
					_, err := leader.node().Propose(context.Background(), lock.Tick{})
					if err == nil {
						t.Error("a command is acknowledged without a disk")
					}
				}
				time.Sleep(10 * time.Second)
				says := func() bool { return strings.Contains(broken.node().Status().Pending, "no space left on device") }
				if !polled(5*time.Second, says) { // each start of the library on the stores takes it back until the next write
					t.Errorf("the node says %+v", broken.node().Status())
				}
				if len(broken.ended) > 0 {
					t.Fatalf("the node ended: %v", <-broken.ended)
				}
				broken.disk.fail(nil)
				time.Sleep(time.Minute)
				if s := broken.node().Status(); s.Pending != "" || s.Leader == "" {
					t.Errorf("a minute after the disk works again the node says %+v", s)
				}
				outcome := mustPropose(t, c.leader().node(), lock.Tick{})
				time.Sleep(time.Second)
				if index := broken.node().appliedIndex(); index < outcome.Index {
					t.Errorf("the node has applied %d, want %d", index, outcome.Index)
				}
				broken.node().View(func(m *lock.Machine) {
					if v := m.Get("x"); len(v.Holders) != 1 || v.Holders[0].Token != first.Token {
						t.Errorf("the lease is now %+v", v)
					}
				})
			})
		})
	}
}

// The library panics where it cannot write a term, and with it all nodes of the process. Here it waits.
func TestATermThatCannotBeWritten(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.start()
		defer c.stopAll()
		leader := c.leader()
		broken, next := c.others(leader)[0], c.others(leader)[1]
		broken.stable.fail(syscall.ENOSPC)
		if err := leader.node().Transfer(context.Background(), next.id); err != nil { // a new term
			t.Fatal(err)
		}
		said := polled(10*time.Second, func() bool { return broken.node().Status().Disk != "" })
		time.Sleep(10 * time.Second)
		if c.leader() == broken {
			t.Error("the node that cannot write its term leads")
		}
		if len(broken.ended) > 0 || !said {
			t.Errorf("the node says %+v", broken.node().Status())
		}
		broken.stable.fail(nil)
		time.Sleep(time.Minute)
		if s := broken.node().Status(); s.Pending != "" || s.Leader == "" {
			t.Errorf("a minute after the disk works again the node says %+v", s)
		}
	})
}

// After an input/output error the disk is not trusted again, and the node says what is to be done.
func TestADiskWithInputOutputErrors(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.start()
		defer c.stopAll()
		leader := c.leader()
		leader.disk.fail(fmt.Errorf("sync log.db: %w", syscall.EIO))
		_, err := leader.node().Propose(context.Background(), lock.Tick{})
		if err == nil {
			t.Error("it is acknowledged")
		}
		time.Sleep(10 * time.Second)
		leader.disk.fail(nil)
		time.Sleep(time.Minute)
		if s := leader.node().Status(); !strings.Contains(s.Pending, "Replace the disk") {
			t.Errorf("the node says %+v", s)
		}
		if next := c.leader(); next == leader {
			t.Error("it leads")
		}
	})
}

// Disks that fail at random moments, under clients: the invariants hold, and afterwards all nodes are the same.
func TestDisksThatFailUnderLoad(t *testing.T) {
	bubble(t, 5*time.Minute, func(t *testing.T) {
		c, r := newCluster(t, 3, func(config *Config) {
			config.Limits.SnapshotEvery, config.Limits.TrailingLogs = 40, 20
			config.Timing.Snapshot = 5 * time.Second
		}), newRecord(t)
		r.watch(c)
		c.start()
		defer c.stopAll()
		c.leader()
		until := time.Now().Add(20 * time.Minute)
		stats, b := &workerStats{}, newBeliefs(t)
		var wg sync.WaitGroup
		for i := range 4 {
			w := &worker{
				cluster: c, beliefs: b, stats: stats, name: lease.ClientID(fmt.Sprintf("w%d", i)), number: byte(i + 1),
				rand: rand.New(rand.NewPCG(3, uint64(i))), ttl: 10 * time.Second,
			}
			wg.Go(func() { w.run([]lease.Resource{"a", "b", "c"}, until) })
		}
		choices := rand.New(rand.NewPCG(3, 1<<32))
		faults := 0
		for time.Now().Before(until) {
			m := c.members[choices.IntN(len(c.members))]
			full := fmt.Errorf("write: %w", syscall.ENOSPC)
			m.disk.fail(full)
			if choices.IntN(2) == 0 {
				m.stable.fail(full)
			}
			faults++
			time.Sleep(time.Duration(500+choices.IntN(20_000)) * time.Millisecond)
			m.disk.fail(nil)
			m.stable.fail(nil)
			time.Sleep(time.Duration(choices.IntN(40_000)) * time.Millisecond)
		}
		wg.Wait()
		outcome := mustPropose(t, c.leader().node(), lock.Tick{})
		if !polled(2*time.Minute, func() bool {
			for _, m := range c.members {
				if m.node().appliedIndex() < outcome.Index {
					return false
				}
			}
			return true
		}) {
			t.Error("the nodes are not the same two minutes after the last fault")
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		t.Logf("%d faults: %+v", faults, r.counts)
		if r.counts.grants < 100 || faults < 20 {
			t.Errorf("too little happened: %d faults, %+v", faults, r.counts)
		}
	})
}

// Each error of a store is one that the library gets, and the first is remembered.
func TestDisk(t *testing.T) {
	d := newDisk(func() time.Duration { return 0 })
	cause := errors.New("no")
	if err := d.do("write", func() error { return nil }); err != nil {
		t.Error(err)
	}
	if err := d.do("write", func() error { return cause }); !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
	called := false
	if err := d.do("read", func() error { called = true; return nil }); !errors.Is(err, cause) || called {
		t.Errorf("after a fault: %v, called %v", err, called)
	}
	if d.cutOff(true) || d.cutOff(false) {
		t.Error("an unguarded disk holds its callers")
	}
}
