package audit

import (
	"context"
	"fmt"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// BenchmarkExpire is the CPU of the lines of leases that expire, as many in an entry as nodes have by default, until they
// are in the file.
func BenchmarkExpire(b *testing.B) {
	const each = 2500
	a := group.Applied{Term: 3, Now: 123456789012, Commands: []lock.Command{lock.Tick{}}, Results: []lock.Result{lock.Done{}}}
	for i := range each {
		a.Events = append(a.Events, lock.LeaseEnded{
			Holder: lock.Holder{
				Resource: lease.Resource(fmt.Sprintf("bench/tenant-%04d/order/%010d", i, i)), Hash: lease.ID{byte(i), byte(i >> 8)}.Hash(),
				Token: lease.Token(1_000_000 + i), Mode: lease.Exclusive, Identity: "spiffe://example.org/billing",
				Client: lease.ClientID(fmt.Sprintf("bench-app-%07d-%010d", i%250, i)),
			},
			Cause: lock.EndExpired, Request: lease.RequestID(fmt.Sprintf("%013d%013d", i, i)),
		})
	}
	config := Config{Path: filepath.Join(b.TempDir(), "audit"), MaxBytes: 16 << 20, Keep: 1, Node: "n1"}
	l, err := New(config)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	before := used(b)
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(b.Context())
	go func() { done <- l.Run(ctx) }()
	for b.Loop() {
		a.Index++
		l.Applied(a)
		for l.waiting.Load() > each {
			time.Sleep(time.Millisecond) // what is dropped costs nothing
		}
	}
	stop()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(used(b)-before)/float64(b.N)/each, "cpu-ns/line")
}

func used(tb testing.TB) time.Duration {
	tb.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
