package lock

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lychgate/lychgate/coordinator/lease"
)

func crowdConfig() Config {
	return Config{
		DefaultTTL: time.Hour, MinTTL: time.Second, MaxTTL: time.Hour, MaxWait: time.Minute, RetryWindow: time.Minute,
		Grace: time.Minute, ClaimWindow: time.Minute, HeadStart: time.Second,
		MaxWaiters: 100_000, MaxRequests: 100_000, MaxExpiries: 1000,
	}
}

// crowdMachine has n shared holders of "r", clients c0 and on, with leases crowdLease(0) and on.
func crowdMachine(n int) *Machine {
	m := New()
	m.Apply(1, Entry{Commands: []Command{Init{Cluster: "c", Version: 2, Config: crowdConfig()}}})
	for i := range n {
		m.Apply(m.index+1, Entry{Commands: []Command{crowdAcquire(i, "r", Shared)}})
	}
	return m
}

// Shared and Exclusive are short for the modes.
const (
	Shared    = lease.Shared
	Exclusive = lease.Exclusive
)

func crowdLease(i int) lease.ID {
	return lease.NewID(0, [14]byte{byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24), 1})
}

func crowdAcquire(i int, name lease.Resource, mode lease.Mode) Acquire {
	return Acquire{
		Identity: "me", Client: lease.ClientID(fmt.Sprintf("c%d", i)), Request: lease.RequestID(fmt.Sprintf("%s%d", name, i)),
		Resource: name, Mode: mode, Lease: crowdLease(i),
	}
}

// TestCrowd compares the holders of a resource with a list, through joins, ends and lookups in any order.
func TestCrowd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := crowdMachine(0)
		var model []int
		for i := range rapid.IntRange(1, 150).Draw(t, "steps") {
			if len(model) == 0 || rapid.IntRange(0, 9).Draw(t, "join") < 6-len(model)/20 {
				m.Apply(m.index+1, Entry{Commands: []Command{crowdAcquire(i, "r", Shared)}})
				model = append(model, i)
			} else {
				at := rapid.IntRange(0, len(model)-1).Draw(t, "who")
				m.Apply(m.index+1, Entry{Commands: []Command{Release{Identity: "me", Lease: crowdLease(model[at])}}})
				model = append(model[:at], model[at+1:]...)
			}
			compareCrowd(t, m, model)
		}
	})
}

func compareCrowd(t *rapid.T, m *Machine, model []int) {
	if err := m.Check(); err != nil {
		t.Fatal(err)
	}
	r := m.lookUp("r")
	if r == nil {
		if len(model) > 0 {
			t.Fatalf("there are no holders, want %v", model)
		}
		return
	}
	var got []int
	for l := range r.all() {
		for _, i := range model {
			if m.termsOf(l).lease == crowdLease(i) {
				got = append(got, i)
			}
		}
	}
	if fmt.Sprint(got) != fmt.Sprint(model) || m.termsOf(r.first()).lease != crowdLease(model[0]) {
		t.Fatalf("holders are %v, want %v", got, model)
	}
}

// TestSearchIsBounded makes a graph that is too large to be searched. Who would close a cycle behind it waits in vain.
func TestSearchIsBounded(t *testing.T) {
	m := crowdMachine(maxSearch + 10)
	c := crowdAcquire(maxSearch+20, "s", Exclusive)
	m.Apply(m.index+1, Entry{Commands: []Command{c}})
	waits := func(i int, name lease.Resource, mode lease.Mode, id int) Result {
		c := crowdAcquire(i, name, mode)
		c.Wait, c.Call, c.Lease = time.Minute, uint64(id), crowdLease(id)
		results, _ := m.Apply(m.index+1, Entry{Commands: []Command{c}})
		return results[0]
	}
	// All holders of r wait for somebody, one of them for s; its holder would wait for all of them.
	m.Apply(m.index+1, Entry{Commands: []Command{crowdAcquire(maxSearch+30, "t", Exclusive)}})
	waits(0, "s", Exclusive, 1_000_000)
	if refused, ok := waits(maxSearch+20, "r", Exclusive, 1_000_001).(Refused); !ok || refused.Reason != ReasonDeadlock {
		t.Errorf("a short search finds %+v, want the deadlock", refused)
	}
	for i := 1; i < maxSearch+5; i++ {
		waits(i, "t", Shared, 2_000_000+i)
	}
	if got, ok := waits(maxSearch+20, "r", Exclusive, 1_000_002).(Waiting); !ok {
		t.Errorf("a search beyond the bound gives %+v, want a wait", got)
	}
}

// BenchmarkCrowd joins and leaves a shared period of so many.
func BenchmarkCrowd(b *testing.B) {
	for _, holders := range []int{1, 100, 10_000, 100_000} {
		b.Run(fmt.Sprintf("holders=%d", holders), func(b *testing.B) {
			m := crowdMachine(holders)
			i := holders
			b.ReportAllocs()
			for b.Loop() {
				c := crowdAcquire(i, "r", Shared)
				c.Client, c.Sequence, c.Acknowledged = "bench", uint64(i-holders)+1, uint64(i-holders)
				m.Apply(m.index+1, Entry{Commands: []Command{c, Release{Identity: "me", Lease: c.Lease}}})
				i++
			}
		})
	}
}

// BenchmarkWait queues for a lock and leaves again, behind so many waiters, while as many wait elsewhere.
func BenchmarkWait(b *testing.B) {
	for _, test := range []struct{ holders, waiters, elsewhere int }{
		{1, 0, 0}, {1, 1000, 0}, {1, 1000, 1000}, {10_000, 1000, 0}, {10_000, 1000, 1000},
	} {
		b.Run(fmt.Sprintf("holders=%d/waiters=%d/elsewhere=%d", test.holders, test.waiters, test.elsewhere), func(b *testing.B) {
			m := crowdMachine(test.holders)
			m.Apply(m.index+1, Entry{Commands: []Command{crowdAcquire(1<<20, "s", Exclusive)}})
			queue := func(i int, name lease.Resource) {
				c := crowdAcquire(i, name, Exclusive)
				c.Wait, c.Call = time.Minute, 1
				m.Apply(m.index+1, Entry{Commands: []Command{c}})
			}
			for i := range test.waiters {
				queue(1<<21+i, "r")
			}
			for i := range test.elsewhere {
				queue(1<<22+i, "s")
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				c := crowdAcquire(1<<23+i, "r", Exclusive)
				c.Client, c.Wait, c.Call, c.Sequence, c.Acknowledged = "bench", time.Minute, 1, uint64(i)+1, uint64(i)
				m.Apply(m.index+1, Entry{Commands: []Command{c, Cancel{Identity: "me", Client: "bench", Request: c.Request}}})
				i++
			}
		})
	}
}

// BenchmarkRenewMany renews five leases of a client in one command.
func BenchmarkRenewMany(b *testing.B) {
	m := crowdMachine(0)
	const leases = 100_000
	for i := range leases {
		c := crowdAcquire(i, lease.Resource(fmt.Sprint(i)), Exclusive)
		m.Apply(m.index+1, Entry{Commands: []Command{c}})
	}
	i := 0
	b.ReportAllocs()
	for b.Loop() {
		i = (i + 7919) % (leases - 5)
		c := RenewMany{Identity: "me", Leases: []lease.ID{crowdLease(i), crowdLease(i + 1), crowdLease(i + 2), crowdLease(i + 3), crowdLease(i + 4)}}
		m.Apply(m.index+1, Entry{Now: LeaseTime(m.index), Commands: []Command{c}})
	}
}
