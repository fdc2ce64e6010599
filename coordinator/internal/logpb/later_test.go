package logpb

import (
	"slices"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// everyLaterCommand has each kind of command that came with cluster version 2, with each field set.
func everyLaterCommand() lock.Entry {
	id := lease.ID{0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14}
	prefix, tenant := everyPolicy()
	return lock.Entry{Now: 2_345_678_901_000, Commands: []lock.Command{
		lock.SetVersion{Version: 2},
		lock.RenewMany{Identity: "team", Leases: []lease.ID{id, {1}}},
		lock.RenewMany{Leases: []lease.ID{}},
		lock.KillWait{
			Identity: "team", Client: "b", Request: "attached", Lease: id,
			Ahead: lock.RequestRef{Identity: "team", Client: "a", Request: "held"},
			Cycle: []lock.Owner{{Identity: "team", Name: "b"}, {Identity: "team", Name: "a"}},
		},
		lock.PutPolicy{By: "admin", Target: lock.Target{Kind: lock.TargetPrefix, Name: "db/"}, Policy: prefix},
		lock.PutPolicy{By: "admin", Target: lock.Target{Kind: lock.TargetTenant, Name: "t"}, Policy: tenant},
		lock.DeletePolicy{By: "admin", Target: lock.Target{Kind: lock.TargetTenant, Name: "t"}},
		lock.RetireKey{Node: "n1", KeyID: "a", After: 3_000_000_000_000},
		lock.PutMember{Member: lock.Member{ID: "n4", Peer: "h:1", GRPC: "h:2", HTTP: "h:3"}},
		lock.DropMember{ID: "n4"},
		lock.Recover{Cluster: "other", Incarnation: 7},
	}}
}

// everyPolicy has each field of a policy.
func everyPolicy() (prefix, tenant lock.Policy) {
	prefix = lock.Policy{
		DefaultTTL: new(10 * time.Second), MinTTL: new(6 * time.Second), MaxTTL: new(time.Minute), MaxHold: new(time.Hour),
		LockDelay: new(40 * time.Second), Exclusive: new(true), Shared: new(false), MaxWaiters: new(5),
	}
	tenant = lock.Policy{
		MaxWaiters: new(7), MaxLeases: new(int64(100)), AcquireRate: new(int64(3)), AcquireBurst: new(int64(10)),
	}
	return prefix, tenant
}

// fullerMachine is fullMachine in cluster version 2, with shared leases, policies, a delay, a retiring key and a member.
func fullerMachine(t testing.TB) *lock.Machine {
	t.Helper()
	m := fullMachine(t)
	at := m.Info().Now
	step := func(after time.Duration, commands ...lock.Command) {
		at = at.Add(after)
		results, _ := m.Apply(m.Info().Index+1, lock.Entry{Now: at, Commands: commands})
		if i := slices.IndexFunc(results, func(r lock.Result) bool { _, bad := r.(lock.Refused); return bad }); i >= 0 {
			t.Fatalf("%+v gave %+v", commands[i], results[i])
		}
	}
	acquire := func(client, resource string, mode lease.Mode, number byte) lock.Acquire {
		return lock.Acquire{
			Identity: "t:team", Client: lease.ClientID(client), Request: "1", Owner: "thread", Resource: lease.Resource(resource),
			Mode: mode, Lease: lease.ID{number}, AsOf: at,
		}
	}
	prefix, tenant := everyPolicy()
	step(time.Second, lock.SetVersion{Version: 2},
		lock.PutPolicy{Target: lock.Target{Kind: lock.TargetPrefix, Name: "db/"}, Policy: prefix},
		lock.PutPolicy{Target: lock.Target{Kind: lock.TargetTenant, Name: "t"}, Policy: tenant},
		lock.PutMember{Member: lock.Member{ID: "n4", Peer: "h:1", GRPC: "h:2", HTTP: "h:3"}},
		lock.RetireKey{Node: "n1", KeyID: "a", After: at.Add(time.Hour)})
	step(time.Second, acquire("h", "db/x", lease.Exclusive, 101))
	step(10*time.Second,
		acquire("i", "s", lease.Shared, 102), acquire("j", "s", lease.Shared, 103), acquire("k", "s", lease.Shared, 104))
	if v := m.Get("db/x"); v.ClosedUntil == 0 {
		t.Fatal("the machine is not as full as the test needs: nothing is closed")
	}
	return m
}
