package group

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// BenchmarkPropose takes and gives back leases on three nodes with real logs and sockets on one machine. One
// operation is one command with its durable result. The latencies are of single commands.
func BenchmarkPropose(b *testing.B) {
	for _, callers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("%d callers", callers), func(b *testing.B) { benchmarkPropose(b, callers) })
	}
}

func benchmarkPropose(b *testing.B, callers int) {
	c := startReal(b)
	defer c.stop()
	c.leader() // elected before the clock starts
	var next atomic.Int64
	latencies := make([][]time.Duration, callers)
	var wg sync.WaitGroup
	b.ResetTimer()
	for caller := range callers {
		wg.Go(func() {
			cycle := 0
			for next.Add(2) <= int64(b.N)+1 {
				cycle++
				acquire := testAcquire(fmt.Sprintf("c%d", caller), fmt.Sprintf("q%d", cycle), fmt.Sprintf("r/%d", caller), 0)
				acquire.Lease = lease.NewID(0, [14]byte{byte(caller >> 8), byte(caller), byte(cycle >> 16), byte(cycle >> 8), byte(cycle)})
				acquire.Sequence, acquire.Acknowledged = uint64(cycle), uint64(cycle-1)
				for _, cmd := range []lock.Command{acquire, lock.Release{Identity: acquire.Identity, Lease: acquire.Lease}} {
					sent := time.Now()
					outcome := c.propose(cmd)
					if refused, ok := outcome.Result.(lock.Refused); ok && refused.Reason != lock.ReasonLeaseEnded { // a retry may find it released
						b.Errorf("refused: %v", refused.Reason)
						return
					}
					latencies[caller] = append(latencies[caller], time.Since(sent))
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	reportLatencies(b, slices.Concat(latencies...))
	b.ReportMetric(float64(c.failed.Load()), "retries")
}

func reportLatencies(b *testing.B, all []time.Duration) {
	if len(all) == 0 {
		return
	}
	slices.Sort(all)
	b.ReportMetric(float64(len(all))/b.Elapsed().Seconds(), "commands/s")
	b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(all[len(all)*99/100].Microseconds())/1000, "p99-ms")
}

// realCluster is three nodes in this process on files and TCP.
type realCluster struct {
	tb     testing.TB
	groups []*Group
	stop   func()
	failed atomic.Int64 // attempts without a result; a machine that is too busy elects
}

func startReal(tb testing.TB) *realCluster {
	tb.Helper()
	dir, members := tb.TempDir(), testMembers(tb, 3)
	ctx, cancel := context.WithCancel(context.Background())
	c := &realCluster{tb: tb}
	var wg sync.WaitGroup
	for _, m := range members {
		config := nodeSpec{Node: m.ID, Dir: filepath.Join(dir, m.ID), Members: members}.config()
		config.Limits, config.Timing, config.Logger = Limits{}, Timing{}, nil
		g, err := New(config)
		if err != nil {
			tb.Fatal(err)
		}
		c.groups = append(c.groups, g)
		wg.Go(func() {
			if err := g.Run(ctx); err != nil {
				tb.Errorf("run: %v", err)
			}
		})
	}
	c.stop = func() {
		cancel()
		wg.Wait()
	}
	return c
}

// leader waits for a node that serves.
func (c *realCluster) leader() *Group {
	c.tb.Helper()
	leader := c.groups[0]
	found := polled(20*time.Second, func() bool {
		for _, g := range c.groups {
			if _, self := g.Leader(); !self {
				continue
			}
			if _, err := g.Read(context.Background(), func(*lock.Machine) {}); err == nil {
				leader = g
				return true
			}
		}
		return false
	})
	if !found {
		c.tb.Error("no leader within 20s")
	}
	return leader
}

// propose tries until there is a result.
func (c *realCluster) propose(cmd lock.Command) (outcome Outcome) {
	done := polled(time.Minute, func() bool {
		for _, g := range c.groups {
			if _, self := g.Leader(); !self {
				continue
			}
			var err error
			if outcome, err = g.Propose(context.Background(), cmd); err == nil {
				return true
			}
			c.failed.Add(1)
		}
		return false
	})
	if !done {
		c.tb.Error("no result within a minute")
	}
	return outcome
}
