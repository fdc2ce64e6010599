package coordinator

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// BenchmarkCycle takes and releases locks that nobody contends for through the public API of three durable nodes on
// loopback, asked at all three. An operation is one acquire and one release; the latencies are of the acquires.
func BenchmarkCycle(b *testing.B) {
	for _, workers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) { benchmarkCycle(b, workers) })
	}
}

func benchmarkCycle(b *testing.B, workers int) {
	clients := benchClients(b)
	var left atomic.Int64
	left.Store(int64(b.N))
	latencies := make([][]time.Duration, workers)
	var wg sync.WaitGroup
	b.ResetTimer()
	for w := range workers {
		wg.Go(func() {
			for n := 0; left.Add(-1) >= 0; n++ {
				took, err := cycle(clients[w%len(clients)], w, n)
				if err != nil {
					b.Errorf("worker %d, cycle %d: %v", w, n, err)
					return
				}
				latencies[w] = append(latencies[w], took)
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	reportCycles(b, slices.Concat(latencies...))
}

// benchClients starts three nodes as they are by default, has each of them serve a call, and returns a client of each.
func benchClients(b *testing.B) (clients []lockpb.LocksClient) {
	b.Helper()
	r := newRunning(b, 3)
	for i := range r.configs {
		r.configs[i].Timing, r.configs[i].Lease = DefaultConfig().Timing, DefaultConfig().Lease
	}
	r.startAll()
	for i := range r.nodes {
		conn, err := grpc.NewClient(r.nodes[i].node.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		check(b, err)
		b.Cleanup(func() { _ = conn.Close() })
		clients = append(clients, lockpb.NewLocksClient(conn))
		_, err = cycle(clients[i], -1-i, 0) // connections are made before the clock starts
		check(b, err)
	}
	return clients
}

// cycle takes and releases a lock, and reports how long the acquire took.
func cycle(locks lockpb.LocksClient, worker, n int) (took time.Duration, err error) {
	client := fmt.Sprintf("w%d", worker)
	began := time.Now()
	held, err := locks.Acquire(context.Background(), &lockpb.AcquireRequest{
		Resource: "bench/" + client, ClientId: client, RequestId: fmt.Sprint(n),
		Sequence: uint64(n) + 1, Acknowledged: uint64(n), // as the client library does, so that little is remembered
	})
	if err != nil {
		return 0, err
	}
	took = time.Since(began)
	_, err = locks.Release(context.Background(), &lockpb.ReleaseRequest{LeaseId: held.GetLeaseId()})
	return took, err
}

func reportCycles(b *testing.B, acquires []time.Duration) {
	b.Helper()
	if len(acquires) == 0 {
		return // failed, and said so
	}
	slices.Sort(acquires)
	b.ReportMetric(float64(len(acquires))/b.Elapsed().Seconds(), "cycles/s")
	b.ReportMetric(float64(acquires[len(acquires)/2].Microseconds()), "acquire-p50-us")
	b.ReportMetric(float64(acquires[len(acquires)*99/100].Microseconds()), "acquire-p99-us")
}
