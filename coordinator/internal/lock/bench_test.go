package lock_test

import (
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// benchMachine holds n leases of n/10 clients.
func benchMachine(b *testing.B, n int) *lock.Machine {
	b.Helper()
	config := baseConfig()
	config.MaxRequests, config.DefaultTTL = 1<<20, time.Hour
	m := lock.New()
	m.Apply(1, lock.Entry{Commands: []lock.Command{lock.Init{Cluster: "c", Config: config}}})
	for i := range n {
		m.Apply(uint64(i)+2, lock.Entry{Commands: []lock.Command{numbered(i, fmt.Sprintf("c%d", i/10), fmt.Sprintf("r%d", i), 0)}})
	}
	return m
}

func numbered(i int, client, resource string, sequence uint64) lock.Acquire {
	return lock.Acquire{
		Identity: "me", Client: lease.ClientID(client), Request: lease.RequestID(fmt.Sprintf("request-%d", i)),
		Resource: lease.Resource(resource), Mode: lease.Exclusive,
		Lease:    lease.NewID(0, [14]byte{byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24), 1}),
		Sequence: sequence, Acknowledged: max(sequence, 1) - 1,
	}
}

func BenchmarkAcquireRelease(b *testing.B) {
	for _, leases := range []int{0, 100_000} {
		b.Run(fmt.Sprintf("leases=%d", leases), func(b *testing.B) {
			m := benchMachine(b, leases)
			index, i := m.Info().Index, leases
			b.ReportAllocs()
			for b.Loop() {
				c := numbered(i, "bench", "bench", uint64(i-leases)+1)
				index++
				m.Apply(index, lock.Entry{Commands: []lock.Command{c, lock.Release{Identity: "me", Lease: c.Lease}}})
				i++
			}
		})
	}
}

func BenchmarkRenew(b *testing.B) {
	for _, leases := range []int{1_000, 100_000} {
		b.Run(fmt.Sprintf("leases=%d", leases), func(b *testing.B) {
			m := benchMachine(b, leases)
			ids := make([]lease.ID, leases)
			for i := range ids {
				ids[i] = numbered(i, "", "", 0).Lease
			}
			index, i := m.Info().Index, 0
			b.ReportAllocs()
			for b.Loop() {
				index++
				i = (i + 7919) % leases
				m.Apply(index, lock.Entry{Now: lock.LeaseTime(index), Commands: []lock.Command{lock.Renew{Identity: "me", Lease: ids[i]}}})
			}
		})
	}
}

// BenchmarkHeartbeats is an entry with the heartbeats of 256 clients, five leases each, of 100,000.
func BenchmarkHeartbeats(b *testing.B) {
	const each, together, leases = 5, 256, 500_000
	m := benchMachine(b, leases)
	commands := make([]lock.Command, leases/each)
	for i := range commands {
		c := lock.RenewMany{Identity: "me"}
		for k := range each {
			c.Leases = append(c.Leases, numbered(i*each+k, "", "", 0).Lease)
		}
		commands[i] = c
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(commands), func(i, k int) { commands[i], commands[k] = commands[k], commands[i] })
	index, i := m.Info().Index, 0
	b.ReportAllocs()
	for b.Loop() {
		if i+together > len(commands) {
			i = 0
		}
		index++
		m.Apply(index, lock.Entry{Now: lock.LeaseTime(index), Commands: commands[i : i+together]})
		i += together
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*together*each), "ns/lease")
}

// BenchmarkSnapshot is what Apply waits for.
func BenchmarkSnapshot(b *testing.B) {
	m := benchMachine(b, 100_000)
	b.ReportAllocs()
	for b.Loop() {
		m.Snapshot()
	}
}

func BenchmarkDigest(b *testing.B) {
	m := benchMachine(b, 100_000)
	for b.Loop() {
		m.Digest()
	}
}

// BenchmarkMemory reports the heap of one lease.
func BenchmarkMemory(b *testing.B) {
	const leases = 200_000
	for b.Loop() {
		before := heap()
		m := benchMachine(b, leases)
		b.ReportMetric(float64(heap()-before)/leases, "B/lease")
		runtime.KeepAlive(m)
	}
}

func heap() uint64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

// BenchmarkList is a page of 100 of 300,000 resources: looking for it in the state, which nothing may change meanwhile,
// and in a frozen copy, with what freezing costs.
func BenchmarkList(b *testing.B) {
	m := benchMachine(b, 300_000)
	b.Run("state", func(b *testing.B) {
		for b.Loop() {
			m.List("", "", 100)
		}
	})
	b.Run("freeze", func(b *testing.B) {
		for b.Loop() {
			m.Snapshot()
		}
	})
	b.Run("copy", func(b *testing.B) {
		frozen := m.Snapshot()
		for b.Loop() {
			n := 0
			for name := range frozen.Resources() {
				n += len(name)
			}
		}
	})
}
