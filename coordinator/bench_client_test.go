package coordinator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// BenchmarkClient is BenchmarkCycle with the client library: all workers are threads of one client, whose calls share a
// session with the leader. CPU is that of the whole process: three nodes and the client.
func BenchmarkClient(b *testing.B) {
	for _, way := range []struct {
		name   string
		unary  bool
		opts   []client.Option
		worker []int
	}{
		{"sessions", false, nil, []int{1, 64, 512}},
		{"sessions without tickets", false, []client.Option{client.NoTicket()}, []int{1, 64, 512}},
		{"call by call", true, nil, []int{512}},
	} {
		for _, workers := range way.worker {
			b.Run(fmt.Sprintf("%s/workers=%d", way.name, workers), func(b *testing.B) {
				benchmarkClient(b, workers, way.unary, way.opts)
			})
		}
	}
}

func benchmarkClient(b *testing.B, workers int, unary bool, opts []client.Option) {
	r := newRunning(b, 3)
	for i := range r.configs {
		r.configs[i].Timing, r.configs[i].Lease = DefaultConfig().Timing, DefaultConfig().Lease
	}
	r.startAll()
	config := client.Config{Unary: unary}
	for _, n := range r.nodes {
		config.Addrs = append(config.Addrs, n.node.GRPCAddr())
	}
	c, err := client.Dial(config)
	check(b, err)
	b.Cleanup(func() { _ = c.Close() })
	for range 20 { // the session with the leader is there before the clock starts
		_, err := clientCycle(c, "warm", opts)
		check(b, err)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	latencies := make([][]time.Duration, workers)
	var wg sync.WaitGroup
	entries, cpu := appliedIndex(b, c), cpuTime()
	b.ResetTimer()
	for w := range workers {
		wg.Go(func() {
			resource := fmt.Sprintf("bench/w%d", w)
			for left.Add(-1) >= 0 {
				took, err := clientCycle(c, resource, opts)
				if err != nil {
					b.Errorf("worker %d: %v", w, err)
					return
				}
				latencies[w] = append(latencies[w], took)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	all := slices.Concat(latencies...)
	b.ReportMetric(float64((cpuTime()-cpu).Microseconds())/float64(len(all)), "cpu-us/cycle")
	b.ReportMetric(float64(2*len(all))/float64(appliedIndex(b, c)-entries), "commands/entry")
	reportCycles(b, all)
}

// clientCycle takes and releases a lock, and reports how long the acquire took.
func clientCycle(c *client.Client, resource string, opts []client.Option) (took time.Duration, err error) {
	began := time.Now()
	l, err := c.Acquire(context.Background(), resource, opts...)
	if err != nil {
		return 0, err
	}
	took = time.Since(began)
	return took, l.Release(context.Background())
}

// appliedIndex is how many entries a node has applied.
func appliedIndex(b *testing.B, c *client.Client) uint64 {
	status, err := c.Cluster().Status(context.Background(), &lockpb.StatusRequest{})
	check(b, err)
	return status.GetAppliedIndex()
}

// cpuTime is what the process has used.
func cpuTime() time.Duration {
	var used syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &used) != nil {
		return 0
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
