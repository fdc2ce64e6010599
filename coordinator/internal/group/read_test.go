package group

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// A leader is cut off while the answers to what it sent before are still on their way: they keep it believing
// that it leads after another has been elected and has acknowledged a newer token. A read that only asked its
// followers whether it still leads would count those answers.
func TestAReadAtADeposedLeaderIsNeverOld(t *testing.T) {
	const rounds = 24
	bubble(t, 2*time.Minute, func(t *testing.T) {
		c := newCluster(t, 3, func(config *Config) {
			if config.Node == "n1" { // it is patient with itself, the others are not with it
				config.Timing.Heartbeat, config.Timing.LeaderLease = 4*time.Second, 4*time.Second
			}
		})
		c.start()
		defer c.stopAll()
		var seen deposedReads
		for round := range rounds {
			c.readAtDeposed(t, round, &seen)
			c.network.heal()
			time.Sleep(5 * time.Second)
		}
		t.Logf("%d rounds: %d reads at a leader that was deposed and did not know, %d answered; its own state was old %d times", rounds, seen.reads.Load(), seen.answered.Load(), seen.oldViews.Load())
		if seen.oldViews.Load() < rounds*4 || seen.reads.Load() < rounds*4 {
			t.Error("too few reads met a leader that was deposed and did not know")
		}
	})
}

type deposedReads struct{ reads, answered, oldViews atomic.Int64 }

func (c *cluster) readAtDeposed(t *testing.T, round int, seen *deposedReads) {
	old := c.makeLeader(c.members[0])
	resource := fmt.Sprintf("r%d", round)
	first := testAcquire("a", fmt.Sprint(round), resource, byte(2*round+1))
	before := mustGrant(t, old.node(), first)
	for _, other := range c.others(old) {
		c.network.slow(other.address, old.address, 1500*time.Millisecond)
	}
	time.Sleep(150 * time.Millisecond) // the answers to what is sent now will be late
	for _, other := range c.others(old) {
		c.network.set(old.address, other.address, true)
	}
	next := c.otherLeader(old)
	mustPropose(t, next.node(), lock.Release{Identity: "tenant", Lease: before.Grant.Lease})
	after := mustGrant(t, next.node(), testAcquire("b", fmt.Sprint(round), resource, byte(2*round+2)))

	var wg sync.WaitGroup
	for range 10 { // acknowledged: from here on no read may answer with less
		if _, self := old.node().Leader(); !self {
			break
		}
		seen.reads.Add(1)
		old.node().View(func(m *lock.Machine) {
			if tokenOf(m, resource) < after.Token {
				seen.oldViews.Add(1)
			}
		})
		wg.Go(func() { c.readOnce(t, old, resource, after.Token, seen) })
		time.Sleep(50 * time.Millisecond)
	}
	wg.Wait()
}

func (c *cluster) readOnce(t *testing.T, at *member, resource string, acknowledged lease.Token, seen *deposedReads) {
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Second)
	defer cancel()
	_, err := at.node().Read(ctx, func(m *lock.Machine) {
		seen.answered.Add(1)
		if got := tokenOf(m, resource); got < acknowledged {
			t.Errorf("a read of %s answers token %d after %d was acknowledged", resource, got, acknowledged)
		}
	})
	var e *Error
	if err != nil && (!errors.As(err, &e) || e.MaybeApplied()) {
		t.Errorf("a read of %s ends with %v", resource, err)
	}
}

// makeLeader moves the leadership to m.
func (c *cluster) makeLeader(m *member) *member {
	for range 100 {
		leader := c.leader()
		if leader == m {
			return m
		}
		_ = leader.node().raft.Load().LeadershipTransferToServer(raft.ServerID(m.id), m.address).Error() // tried again
		time.Sleep(100 * time.Millisecond)
	}
	c.t.Fatalf("%s does not become the leader", m.id)
	return nil
}

// otherLeader waits for a node other than old that serves.
func (c *cluster) otherLeader(old *member) *member {
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		for _, m := range c.others(old) {
			if _, err := m.node().Read(context.Background(), func(*lock.Machine) {}); err == nil {
				return m
			}
		}
		time.Sleep(5 * time.Millisecond)
	}
	c.t.Fatal("no other node leads within 20s")
	return nil
}

func tokenOf(m *lock.Machine, resource string) lease.Token {
	holders := m.Get(lease.Resource(resource)).Holders
	if len(holders) == 0 {
		return 0
	}
	return holders[0].Token
}

// A read at the leader sees what was acknowledged before it came, and costs an entry only if none is due.
func TestReadsShareEntries(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.start()
		defer c.stopAll()
		g := c.leader().node()
		granted := mustGrant(t, g, testAcquire("a", "1", "x", 1))
		before := mustPropose(t, g, lock.Tick{}).Index
		results := make(chan error, 500)
		for range 500 {
			go func() {
				_, err := g.Read(context.Background(), func(m *lock.Machine) {
					if tokenOf(m, "x") != granted.Token {
						t.Error("a read does not see the grant")
					}
				})
				results <- err
			}()
		}
		for range 500 {
			if err := <-results; err != nil {
				t.Error(err)
			}
		}
		if entries := mustPropose(t, g, lock.Tick{}).Index - before; entries > 250 {
			t.Errorf("500 reads at once take %d entries", entries)
		}
	})
}
