package lock_test

import (
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

var wholePassage = flag.Bool("passage", false, "TestNamesThatPassLeaveNothing with 10,000,000 names, 100,000 at a time")

// realistic is a numbered acquire with names as long as those of real clients: 34 bytes of a resource, 26 of a request.
func realistic(i, client, sequence int) lock.Acquire {
	return lock.Acquire{
		Identity: "spiffe://example.org/billing", Client: lease.ClientID(fmt.Sprintf("bench-app-%07d-%010d", client%250, client)),
		Request:  lease.RequestID(fmt.Sprintf("%013d%013d", client, i)),
		Resource: lease.Resource(fmt.Sprintf("bench/tenant-%04d/order/%010d", i%1000, i)), Mode: lease.Exclusive,
		Lease:    lease.NewID(0, [14]byte{byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24), 1}),
		Sequence: uint64(sequence), TTL: time.Hour,
	}
}

// populated has n leases, each client so many.
func populated(tb testing.TB, n, each int) *lock.Machine {
	tb.Helper()
	config := baseConfig()
	config.MaxRequests, config.MaxTTL = 1<<20, time.Hour
	m := lock.New()
	m.Apply(1, lock.Entry{Commands: []lock.Command{lock.Init{Cluster: "c", Config: config}}})
	for i := range n {
		// A real command comes out of a message, with strings of its own.
		results, _ := m.Apply(uint64(i)+2, lock.Entry{Commands: []lock.Command{realistic(i, i/each, i%each+1)}})
		if _, granted := results[0].(lock.Granted); !granted {
			tb.Fatalf("lease %d: %v", i, results[0])
		}
	}
	return m
}

// TestMemoryOfALease bounds the heap of a lease, and what the runtime holds for that: small objects that were made among
// garbage keep far more than they fill. Its words and its id alone are 76 bytes.
func TestMemoryOfALease(t *testing.T) {
	const leases = 200_000
	for _, shape := range []struct {
		name       string
		each, most int // leases of a client, bytes of a lease
	}{
		{"5 of each client", 5, 205},
		{"10 of each client", 10, 195},
		{"all of one client", leases, 185},
	} {
		t.Run(shape.name, func(t *testing.T) {
			before, heldBefore := heapAndHeld()
			m := populated(t, leases, shape.each)
			after, heldAfter := heapAndHeld()
			got, held := int(after-before)/leases, int(heldAfter-heldBefore)/leases
			t.Logf("%d B, %d B held", got, held)
			if got > shape.most || held > shape.most+shape.most/20 {
				t.Errorf("a lease takes %d B and holds %d B, want at most %d, and a twentieth more", got, held, shape.most)
			}
			runtime.KeepAlive(m)
		})
	}
}

// heapAndHeld are the bytes of live objects, and of the spans that they are in.
func heapAndHeld() (live, held int64) {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc), int64(stats.HeapInuse)
}

// TestNamesThatPassLeaveNothing has many names come and go, few at a time: some are released and acknowledged, some
// expire and are remembered for the window.
func TestNamesThatPassLeaveNothing(t *testing.T) {
	names, live := 2_000_000, 20_000
	switch {
	case *wholePassage:
		names, live = 10_000_000, 100_000
	case testing.Short() || raceDetector:
		names, live = 200_000, 2_000
	}
	config := baseConfig()
	config.MaxRequests, config.MaxExpiries = 1<<20, 1000
	window := config.MaxWait + config.RetryWindow
	m := lock.New()
	m.Apply(1, lock.Entry{Commands: []lock.Command{lock.Init{Cluster: "c", Config: config}}})
	step := window / time.Duration(live/2) // of lease time for each name, so that half are remembered at a time
	var settled uint64
	for i := range names {
		c := realistic(i, i%100, i/100+1)
		c.TTL, c.AsOf = config.MinTTL, lock.LeaseTime(i)*lock.LeaseTime(step)
		c.Acknowledged = c.Sequence - 1
		if i%2 == 0 {
			c.Sequence, c.Acknowledged = 0, 0
		}
		commands := []lock.Command{c}
		if old := i - live/4; old >= 0 && old%4 == 1 {
			commands = append(commands, lock.Release{Identity: c.Identity, Lease: realistic(old, 0, 0).Lease})
		}
		m.Apply(uint64(i)+2, lock.Entry{Now: c.AsOf, Commands: commands})
		if i == names/4 {
			settled = heap()
		}
	}
	info := m.Info()
	if info.Requests > live || info.Requests < live/4 {
		t.Fatalf("%d requests are remembered, want some of %d", info.Requests, live)
	}
	if now := heap(); now > settled+settled/10 {
		t.Errorf("the heap was %d B after a quarter of the names and is %d B after all", settled, now)
	}
	runtime.KeepAlive(m)
}

// TestMemoryOfASnapshot bounds what a snapshot costs beside the state: nothing while the state rests, and at most what
// is changed meanwhile.
func TestMemoryOfASnapshot(t *testing.T) {
	const leases = 50_000
	m := populated(t, leases, 10)
	alone := heap()
	s := m.Snapshot()
	if frozen := heap(); frozen > alone+alone/20 {
		t.Errorf("the heap went from %d to %d B by freezing", alone, frozen)
	}
	want := s.Digest()
	for i := 0; i < leases; i += 100 { // all in one page of a hundred
		m.Apply(uint64(leases+i)+2, lock.Entry{Commands: []lock.Command{
			lock.Renew{Identity: "spiffe://example.org/billing", Lease: realistic(i%500, 0, 0).Lease},
		}})
	}
	if changed := heap(); changed > alone+alone/20 {
		t.Errorf("the heap went from %d to %d B by changing a hundredth of what is frozen", alone, changed)
	}
	if s.Digest() != want {
		t.Error("the snapshot has changed with the machine")
	}
	runtime.KeepAlive(m)
}
