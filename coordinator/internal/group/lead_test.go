package group

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// A dead holder's lock must come free although no leader lives for long: lease time goes on where the last
// leader left it. The bound is the TTL, a tick, and for each election the time without a leader and a tick.
func TestElectionsDoNotKeepADeadHolderAlive(t *testing.T) {
	const ttl, every = 10 * time.Second, 2500 * time.Millisecond
	bubble(t, time.Minute, func(t *testing.T) {
		c, r := newCluster(t, 3, nil), newRecord(t)
		r.watch(c)
		ended := make(chan time.Time, 1)
		r.observers = append(r.observers, func(a Applied) {
			for _, event := range a.Events {
				if _, ok := event.(lock.LeaseEnded); ok {
					ended <- time.Now()
				}
			}
		})
		c.start()
		defer c.stopAll()
		mustGrant(t, c.leader().node(), testAcquire("dead", "1", "x", 1))
		granted, elections, without := time.Now(), 0, time.Duration(0)
		for len(ended) == 0 && elections < 20 {
			time.Sleep(every)
			without += c.elect(elections == 1)
			elections++
		}
		freed := (<-ended).Sub(granted)
		bound := ttl + without + time.Duration(elections+1)*2*Timing{}.withDefaults().Tick
		t.Logf("freed %s after the grant, with %d elections and %s without a leader; the bound is %s", freed, elections, without, bound)
		if freed < ttl || freed > bound {
			t.Errorf("the lease of %s ends after %s, want between %s and %s", ttl, freed, ttl, bound)
		}
		if elections < 3 || without < time.Second {
			t.Errorf("too little happened: %d elections, %s without a leader", elections, without)
		}
	})
}

// elect makes another node lead, by cutting the leader off or by restarting everything, and reports how long
// nobody served.
func (c *cluster) elect(restart bool) time.Duration {
	leader, lost := c.leader(), time.Now()
	if restart {
		c.stopNodes()
		c.start()
		c.leader()
		return time.Since(lost)
	}
	c.network.isolate(leader.address, true)
	defer c.network.heal()
	for c.leader() == leader {
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(lost)
}

// Without a quorum nothing expires, and a holder that renews at once when it is back has lost nothing.
func TestNothingExpiresWithoutAQuorum(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		c, r := newCluster(t, 3, nil), newRecord(t)
		r.watch(c)
		c.start()
		defer c.stopAll()
		granted := mustGrant(t, c.leader().node(), testAcquire("a", "1", "x", 1))
		for _, m := range c.members {
			c.network.isolate(m.address, true)
		}
		time.Sleep(time.Hour)
		for _, m := range c.members {
			_, err := m.node().Propose(context.Background(), lock.Tick{})
			wantKind(t, "a proposal without a quorum", err, NotLeader)
		}
		c.network.heal()
		outcome := mustPropose(t, c.leader().node(), lock.Renew{Identity: "tenant", Lease: granted.Grant.Lease})
		if _, ok := outcome.Result.(lock.Renewed); !ok {
			t.Errorf("after an hour without a quorum the renewal is answered %+v", outcome.Result)
		}
	})
}

func TestAWaitEndsWhenItsLeaderIsDeposed(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.start()
		defer c.stopAll()
		leader := c.leader()
		held := testAcquire("a", "1", "x", 1)
		held.TTL = time.Hour
		mustGrant(t, leader.node(), held)
		waiting := testAcquire("b", "1", "x", 2)
		waiting.Wait, waiting.Call = time.Minute, 1
		wait := leader.node().Await(waiting.Identity, waiting.Client, waiting.Request)
		defer wait.Close()
		if _, ok := mustPropose(t, leader.node(), waiting).Result.(lock.Waiting); !ok {
			t.Fatal("it does not wait")
		}
		if n := len(leader.node().waits.byKey); n != 1 {
			t.Errorf("%d waits are registered", n)
		}
		c.network.isolate(leader.address, true)
		began := time.Now()
		end := <-wait.C
		if end.Err == nil || !end.Err.MaybeApplied() {
			t.Errorf("the wait ends with %+v", end)
		}
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("the wait ends %s after its leader was cut off", took)
		}
		// A retry at the new leader finds its place and is granted when the holder lets go.
		c.network.heal()
		next := c.leader().node()
		again := next.Await(waiting.Identity, waiting.Client, waiting.Request)
		defer again.Close()
		waiting.Call = 2
		if r, ok := mustPropose(t, next, waiting).Result.(lock.Waiting); !ok || r.Position != 1 {
			t.Errorf("the retry is answered %+v", r)
		}
		mustPropose(t, next, lock.Release{Identity: "tenant", Lease: held.Lease})
		if granted, ok := (<-again.C).Event.(lock.LeaseGranted); !ok || granted.Client != "b" || !granted.Late {
			t.Errorf("the wait at the new leader ends with %+v", granted)
		}
	})
}

// Every way to cut the six directed links of three nodes: nobody loses a lease that it could renew, and when
// the links are back everything goes on within the bound.
func TestAllSubsetsOfLinks(t *testing.T) {
	bubble(t, 5*time.Minute, func(t *testing.T) {
		start := time.Now()
		c, r := newCluster(t, 3, nil), newRecord(t)
		r.watch(c)
		c.start()
		defer c.stopAll()
		c.leader()
		var links []link
		for _, from := range c.members {
			for _, to := range c.others(from) {
				links = append(links, link{from.address, to.address})
			}
		}
		stop := make(chan struct{})
		var wg sync.WaitGroup
		stats, b := &workerStats{}, newBeliefs(t)
		for i := range 3 {
			w := &worker{
				cluster: c, beliefs: b, stats: stats, name: lease.ClientID(fmt.Sprintf("w%d", i)), number: byte(i + 1),
				rand: rand.New(rand.NewPCG(1, uint64(i))), ttl: 10 * time.Second,
			}
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
						w.run([]lease.Resource{"a", "b"}, time.Now().Add(5*time.Second))
					}
				}
			})
		}
		slowest := time.Duration(0)
		for subset := range 1 << len(links) {
			for i, l := range links {
				c.network.set(l.from, l.to, subset&(1<<i) != 0)
			}
			time.Sleep(4 * time.Second)
			c.network.heal()
			healed := time.Now()
			c.leader()
			slowest = max(slowest, time.Since(healed))
			time.Sleep(2 * time.Second)
		}
		close(stop)
		wg.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		t.Logf("simulated %s: 64 subsets, %+v; the slowest recovery took %s", time.Since(start).Round(time.Second), r.counts, slowest.Round(time.Millisecond))
		if slowest > 5*time.Second {
			t.Errorf("after a heal it took %s until a node served", slowest)
		}
		if r.counts.grants < 25 || r.counts.leaders < 10 || r.counts.compared < r.counts.entries {
			t.Errorf("too little happened: %+v", r.counts)
		}
	})
}

// The nodes' clocks were started hours apart. Lease time comes from the log, so neither the state nor the pace
// may show it when the leadership moves.
func TestClocksThatWereStartedHoursApart(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		c, r := newCluster(t, 3, nil), newRecord(t)
		r.watch(c)
		for i, m := range c.members {
			config := c.config(m)
			config.Transport = c.network.attach(m.address)
			g, err := New(config)
			if err != nil {
				t.Fatal(err)
			}
			g.start = g.start.Add(time.Duration(i-1) * 7 * time.Hour) // one of them is before its own start
			ctx, cancel := context.WithCancel(context.Background())
			m.current.Store(g)
			m.cancel, m.ended = cancel, make(chan error, 1)
			go func() { m.ended <- g.Run(ctx) }()
		}
		defer c.stopAll()
		c.leader()
		start, from := time.Now(), mustPropose(t, c.leader().node(), lock.Tick{}).Now
		led := make(map[string]int)
		for i := range 30 {
			leader := c.leader()
			led[leader.id]++
			mustGrant(t, leader.node(), testAcquire("a", fmt.Sprint(i), fmt.Sprint(i), byte(i+1)))
			time.Sleep(3 * time.Second)
			if err := leader.node().Transfer(context.Background(), ""); err != nil {
				t.Logf("transfer: %v", err)
			}
		}
		passed, real := mustPropose(t, c.leader().node(), lock.Tick{}).Now.Sub(from), time.Since(start)
		t.Logf("%s of lease time in %s, led by %v", passed, real, led)
		if passed > real || passed < real*9/10 {
			t.Errorf("%s of lease time in %s", passed, real)
		}
		if len(led) < 2 {
			t.Errorf("only %v led", led)
		}
	})
}

// Many leases that end at once are ended a bounded number an entry, one entry after the other.
func TestManyThatExpireAtOnceAreDrained(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		c, r := newCluster(t, 3, func(config *Config) {
			config.Lock.MaxRequests, config.Lock.MaxExpiries = 5000, 100
			config.Limits.Queue = 5000
		}), newRecord(t)
		c.onApply = func(_ string, a Applied) {
			r.mu.Lock()
			defer r.mu.Unlock()
			if a.Index > r.last {
				r.last = a.Index
				for _, event := range a.Events {
					r.event(a, event)
				}
			}
		}
		c.start()
		defer c.stopAll()
		g := c.leader().node()
		var wg sync.WaitGroup
		for i := range 2000 {
			wg.Go(func() {
				cmd := testAcquire("a", fmt.Sprint(i), fmt.Sprint(i), 0)
				cmd.Lease = lease.NewID(0, [14]byte{byte(i >> 8), byte(i), 1})
				mustGrant(t, g, cmd)
			})
		}
		wg.Wait()
		time.Sleep(12 * time.Second)
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.counts.expired != 2000 || r.lateness > time.Second {
			t.Errorf("%d of 2000 are ended two seconds after their deadline, the last %s late", r.counts.expired, r.lateness)
		}
	})
}

// A follower that was away for longer than the log is kept is brought up to date by a snapshot.
func TestALaggingFollowerIsSentASnapshot(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		restored := make(chan uint64, 10)
		c, r := newCluster(t, 3, func(config *Config) {
			config.Limits.SnapshotEvery, config.Limits.TrailingLogs = 20, 5
			config.Timing.Snapshot = time.Second
			config.OnRestore = func(index uint64) { restored <- index }
		}), newRecord(t)
		r.watch(c)
		c.start()
		defer c.stopAll()
		leader := c.leader()
		away := c.others(leader)[0]
		c.network.isolate(away.address, true)
		for i := range byte(50) {
			mustGrant(t, leader.node(), testAcquire("a", fmt.Sprint(i), fmt.Sprint(i), i+1))
		}
		time.Sleep(5 * time.Second)
		if leader.snapshots.count() == 0 {
			t.Fatal("no snapshot was taken")
		}
		c.network.heal()
		index := <-restored
		outcome := mustPropose(t, c.leader().node(), lock.Tick{})
		time.Sleep(time.Second)
		away.node().View(func(m *lock.Machine) {
			if got := m.Info().Index; got < outcome.Index || index == 0 {
				t.Errorf("a second after the snapshot at entry %d the follower is at entry %d, want %d", index, got, outcome.Index)
			}
		})
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.counts.compared == 0 || r.judge.steps < 50 {
			t.Errorf("too little happened: %+v", r.counts)
		}
	})
}
