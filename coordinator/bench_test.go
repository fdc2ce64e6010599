package coordinator

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// BenchmarkCycle takes and releases locks through the public API of three durable nodes on loopback, asked at all
// three. An operation is one acquire and one release.
func BenchmarkCycle(b *testing.B) {
	for _, workers := range []int{1, 64, 512} {
		b.Run(fmt.Sprintf("workers=%d", workers), func(b *testing.B) { benchmarkCycle(b, workers) })
	}
}

func benchmarkCycle(b *testing.B, workers int) {
	r := newRunning(b, 3)
	for i := range r.configs {
		r.configs[i].Timing, r.configs[i].Lease = DefaultConfig().Timing, DefaultConfig().Lease
	}
	r.startAll()
	var clients []lockpb.LocksClient
	for i := range r.nodes {
		conn, err := grpc.NewClient(r.nodes[i].node.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
		check(b, err)
		defer conn.Close()
		clients = append(clients, lockpb.NewLocksClient(conn))
	}
	var left, failed atomic.Int64
	left.Store(int64(b.N))
	done := make(chan struct{})
	b.ResetTimer()
	for w := range workers {
		go func() {
			defer func() { done <- struct{}{} }()
			for left.Add(-1) >= 0 {
				if err := cycle(clients[w%3], w, left.Load()); err != nil && failed.Add(1) == 1 {
					b.Log(err)
				}
			}
		}()
	}
	for range workers {
		<-done
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "cycles/s")
	if failed.Load() > 0 {
		b.Errorf("%d of %d cycles failed", failed.Load(), b.N)
	}
}

func cycle(locks lockpb.LocksClient, worker int, n int64) error {
	client := fmt.Sprintf("w%d", worker)
	held, err := locks.Acquire(context.Background(), &lockpb.AcquireRequest{
		Resource: "bench/" + client, ClientId: client, RequestId: fmt.Sprintf("%d", n),
	})
	if err != nil {
		return err
	}
	_, err = locks.Release(context.Background(), &lockpb.ReleaseRequest{LeaseId: held.GetLeaseId()})
	return err
}
