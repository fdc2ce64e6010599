package group

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

var (
	simulated = flag.Duration("simulated", 20*time.Minute, "how much virtual time the simulation runs")
	seed      = flag.Uint64("seed", 0, "seed of the simulation's choices; 0 takes one from the clock")
)

// TestSimulation runs three nodes, their clients and the faults between them in virtual time: elections,
// crashes and restarts, partitions in one direction and both, late and lost answers, a log store that
// hangs or is full, and snapshots every few entries. It is not deterministic: the seed fixes the choices only.
func TestSimulation(t *testing.T) {
	if *seed == 0 {
		*seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", *seed)
	began := time.Now()
	bubble(t, 10*time.Minute+*simulated/10, func(t *testing.T) {
		s := newSimulation(t)
		s.cluster.start()
		s.cluster.leader()
		s.run(*simulated)
		s.settle()
		s.report()
		s.cluster.stopAll()
	})
	t.Logf("took %s of real time", time.Since(began).Round(time.Second))
}

type simulation struct {
	t       *testing.T
	cluster *cluster
	record  *record
	beliefs *beliefs
	stats   workerStats
	faults  map[string]int
	start   time.Time

	restores atomic.Int64 // snapshots that replaced a replica's state, at a start or from the leader
}

func newSimulation(t *testing.T) *simulation {
	s := &simulation{t: t, record: newRecord(t), beliefs: newBeliefs(t), faults: make(map[string]int), start: time.Now()}
	s.cluster = newCluster(t, 3, func(config *Config) {
		config.Limits.SnapshotEvery = 40
		// Less than commits during a fault: a deposed leader with a tail of its own is sent a snapshot now and then.
		config.Limits.TrailingLogs = 20
		config.Timing.Snapshot = 5 * time.Second
		config.OnRestore = func(uint64) { s.restores.Add(1) }
	})
	s.record.watch(s.cluster)
	return s
}

func (s *simulation) run(d time.Duration) {
	until := time.Now().Add(d)
	resources := []lease.Resource{"a", "b", "c", "d"}
	var wg sync.WaitGroup
	for i := range 8 {
		w := &worker{
			cluster: s.cluster, beliefs: s.beliefs, stats: &s.stats,
			name: lease.ClientID(fmt.Sprintf("w%d", i)), number: byte(i + 1),
			rand: rand.New(rand.NewPCG(*seed, uint64(i))), ttl: time.Duration(6+i) * time.Second, lose: 0.1,
		}
		wg.Go(func() { w.run(resources, until) })
	}
	s.disturb(until)
	wg.Wait()
}

// disturb causes one fault after the other, each healed before the next begins.
func (s *simulation) disturb(until time.Time) {
	choices := rand.New(rand.NewPCG(*seed, 1<<32))
	kinds := []struct {
		name string
		do   func(*rand.Rand)
	}{
		{"transfer", s.transfer},
		{"isolate", s.isolate},
		{"cut one way", s.cutOneWay},
		{"slow link", s.slowLink},
		{"crash", s.crash},
		{"restart", s.restart},
		{"hung log", s.hungLog},
		{"full disk", s.fullDisk},
	}
	for time.Now().Before(until) {
		time.Sleep(time.Duration(2000+choices.IntN(13_000)) * time.Millisecond)
		kind := kinds[choices.IntN(len(kinds))]
		s.faults[kind.name]++
		kind.do(choices)
		s.cluster.network.heal()
	}
}

func (s *simulation) transfer(*rand.Rand) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, m := range s.cluster.members {
		if _, self := m.node().Leader(); self {
			_ = m.node().Transfer(ctx, "") // may fail: another fault's consequences are still felt
		}
	}
}

// victim is the leader more often than not.
func (s *simulation) victim(choices *rand.Rand) *member {
	for _, m := range s.cluster.members {
		if _, self := m.node().Leader(); self && choices.IntN(3) > 0 {
			return m
		}
	}
	return s.cluster.members[choices.IntN(len(s.cluster.members))]
}

func (s *simulation) isolate(choices *rand.Rand) {
	s.cluster.network.isolate(s.victim(choices).address, true)
	time.Sleep(time.Duration(500+choices.IntN(10_000)) * time.Millisecond)
}

func (s *simulation) cutOneWay(choices *rand.Rand) {
	m := s.victim(choices)
	others := s.cluster.others(m)
	if choices.IntN(2) == 0 {
		others = others[:1]
	}
	outward := choices.IntN(2) == 0
	for _, other := range others {
		if outward {
			s.cluster.network.set(m.address, other.address, true)
		} else {
			s.cluster.network.set(other.address, m.address, true)
		}
	}
	time.Sleep(time.Duration(500+choices.IntN(10_000)) * time.Millisecond)
}

func (s *simulation) slowLink(choices *rand.Rand) {
	m := s.victim(choices)
	for _, other := range s.cluster.others(m) {
		s.cluster.network.slow(other.address, m.address, time.Duration(choices.IntN(400))*time.Millisecond)
	}
	time.Sleep(time.Duration(500+choices.IntN(10_000)) * time.Millisecond)
}

func (s *simulation) crash(choices *rand.Rand) {
	m := s.victim(choices)
	s.cluster.crash(m)
	time.Sleep(time.Duration(choices.IntN(8_000)) * time.Millisecond)
	s.cluster.startNode(m)
}

func (s *simulation) restart(choices *rand.Rand) {
	m := s.victim(choices)
	s.cluster.stop(m)
	time.Sleep(time.Duration(choices.IntN(3_000)) * time.Millisecond)
	s.cluster.startNode(m)
}

func (s *simulation) hungLog(choices *rand.Rand) {
	m := s.victim(choices)
	m.disk.hang()
	time.Sleep(time.Duration(500+choices.IntN(6_000)) * time.Millisecond)
	m.disk.resume()
}

func (s *simulation) fullDisk(choices *rand.Rand) {
	m := s.victim(choices)
	full := fmt.Errorf("write: %w", syscall.ENOSPC)
	m.disk.fail(full)
	if choices.IntN(2) == 0 {
		m.stable.fail(full)
	}
	time.Sleep(time.Duration(500+choices.IntN(8_000)) * time.Millisecond)
	m.disk.fail(nil)
	m.stable.fail(nil)
}

// settle heals everything and expects the three replicas to agree at the same entry.
func (s *simulation) settle() {
	s.cluster.network.heal()
	leader := s.cluster.leader()
	outcome := mustPropose(s.t, leader.node(), lock.Tick{})
	for _, m := range s.cluster.members {
		deadline := time.Now().Add(time.Minute)
		for index := uint64(0); index < outcome.Index; {
			m.node().View(func(machine *lock.Machine) { index = machine.Info().Index })
			if time.Now().After(deadline) {
				s.t.Fatalf("%s has applied entry %d and not %d a minute after everything healed", m.id, index, outcome.Index)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func (s *simulation) report() {
	r, elapsed := s.record, time.Since(s.start)
	r.mu.Lock()
	defer r.mu.Unlock()
	snapshots := 0
	for _, m := range s.cluster.members {
		snapshots += m.snapshots.count()
	}
	lost := elapsed - time.Duration(r.entries[r.last].now)
	s.t.Logf("simulated %s: %+v, %d snapshots, %d restores", elapsed.Round(time.Second), r.counts, snapshots, s.restores.Load())
	s.t.Logf("faults: %v; %d stamps and %d steps judged", s.faults, r.judged, r.judge.steps)
	s.t.Logf("clients: %d calls, %d answers lost, %d leases held, %d renewals, %d died holding, %d outages, %d unanswered",
		s.stats.calls.Load(), s.stats.lostAnswers.Load(), s.stats.held.Load(), s.stats.renewals.Load(), s.stats.deaths.Load(), s.stats.outages.Load(), s.stats.unanswered.Load())
	s.t.Logf("lease time lost to elections and stalls: %s; an expired lease outlived its deadline by at most %s of lease time", lost.Round(time.Millisecond), r.lateness.Round(time.Millisecond))
	minutes := int(elapsed / time.Minute)
	for _, minimum := range []struct {
		what string
		got  int
		want int
	}{
		{"grants", r.counts.grants, 10 * minutes},
		{"late grants", r.counts.late, 2 * minutes},
		{"expired leases", r.counts.expired, minutes / 2},
		{"elections", r.counts.leaders, minutes},
		{"entries compared", r.counts.compared, r.counts.entries},
		{"stamps judged", r.judged, r.counts.entries * 9 / 10},
		{"steps judged by the invariants", r.judge.steps, 50 * minutes},
		{"snapshots", snapshots, 2 * minutes},
		{"restores", int(s.restores.Load()), minutes / 4},
		{"lost answers", int(s.stats.lostAnswers.Load()), 5 * minutes},
		{"kinds of faults", len(s.faults), min(8, minutes/2)},
	} {
		if minimum.got < minimum.want {
			s.t.Errorf("too little happened: %d %s, want at least %d", minimum.got, minimum.what, minimum.want)
		}
	}
	if lost < 0 {
		s.t.Errorf("lease time ran ahead of real time by %s", -lost)
	}
}
