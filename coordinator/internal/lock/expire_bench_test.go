package lock_test

import (
	"syscall"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// BenchmarkExpire has 500,000 leases end that were taken until the same moment, ten of a client, as many in an entry as
// nodes have by default. Their order is another than that of their places in memory. It reports CPU, since others may use
// the machine; collecting garbage is in it.
func BenchmarkExpire(b *testing.B) {
	const leases, each = 500_000, 10
	for _, shape := range []struct {
		name         string
		acknowledged bool
	}{{"remembered", false}, {"acknowledged", true}} {
		b.Run(shape.name, func(b *testing.B) {
			b.ReportAllocs()
			var spent time.Duration
			for b.Loop() {
				b.StopTimer()
				m := together(b, leases, each, shape.acknowledged)
				before := cpu(b)
				b.StartTimer()
				index := m.Info().Index
				for m.Info().Leases > 0 {
					index++
					m.Apply(index, lock.Entry{Now: lock.LeaseTime(2 * time.Minute), Commands: []lock.Command{lock.Tick{}}})
				}
				spent += cpu(b) - before
			}
			b.ReportMetric(float64(spent)/float64(b.N)/leases, "cpu-ns/lease")
		})
	}
}

// together has leases that end within some milliseconds of each other.
func together(tb testing.TB, leases, each int, acknowledged bool) *lock.Machine {
	tb.Helper()
	config := baseConfig()
	config.MaxRequests, config.MaxTTL, config.MaxExpiries = 1<<20, time.Hour, 2500
	m := lock.New()
	m.Apply(1, lock.Entry{Commands: []lock.Command{lock.Init{Cluster: "c", Config: config}}})
	const batch = 100
	var commands []lock.Command
	for i := range leases {
		c := realistic(i, i%(leases/each), i/(leases/each)+1)
		c.TTL = time.Minute + 4*time.Millisecond*time.Duration(uint32(i)*2654435761>>8)>>24
		if acknowledged {
			c.Acknowledged = c.Sequence - 1
		}
		if commands = append(commands, c); len(commands) == batch {
			m.Apply(uint64(i)+2, lock.Entry{Commands: commands})
			commands = commands[:0]
		}
	}
	if got := m.Info().Leases; got != leases {
		tb.Fatalf("there are %d leases, want %d", got, leases)
	}
	return m
}

// cpu is what the process has used.
func cpu(tb testing.TB) time.Duration {
	tb.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
