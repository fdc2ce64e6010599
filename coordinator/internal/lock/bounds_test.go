package lock_test

import (
	"fmt"
	"reflect"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// started2 is started with cluster version 2.
func started2(t testing.TB, config lock.Config) *lock.Machine {
	t.Helper()
	m := lock.New()
	results, _ := m.Apply(1, lock.Entry{Commands: []lock.Command{lock.Init{Cluster: "c", Version: 2, Config: config}}})
	if results[0] != (lock.Done{}) {
		t.Fatalf("init gave %+v", results[0])
	}
	return m
}

// TestClusterBounds fills each list of the cluster's own: one more is refused with the bound, a change of one is not.
func TestClusterBounds(t *testing.T) {
	for _, test := range []struct {
		name   string
		bound  int
		reason lock.Reason
		nth    func(int) lock.Command
	}{
		{"keys", 1000, lock.ReasonTooManyKeys, func(n int) lock.Command { return lock.PutKey{Node: "n", KeyID: fmt.Sprint(n)} }},
		{"members", 100, lock.ReasonTooManyMembers, func(n int) lock.Command {
			return lock.PutMember{Member: lock.Member{ID: fmt.Sprint(n), Peer: "p", GRPC: "g", HTTP: "h"}}
		}},
		{"policies", 1000, lock.ReasonTooManyPolicies, func(n int) lock.Command {
			return lock.PutPolicy{Target: lock.Target{Kind: lock.TargetPrefix, Name: fmt.Sprint(n)}}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			m := started2(t, baseConfig())
			for n := range test.bound {
				if results, _ := apply(m, 0, test.nth(n)); results[0] != (lock.Done{}) {
					t.Fatalf("number %d gave %+v", n+1, results[0])
				}
			}
			results, _ := apply(m, 0, test.nth(test.bound), test.nth(5))
			want := []lock.Result{lock.Refused{Reason: test.reason, Count: test.bound}, lock.Done{}}
			if !reflect.DeepEqual(results, want) {
				t.Errorf("got %+v, want %+v", results, want)
			}
			if twin := restore(t, m); twin.Digest() != m.Digest() {
				t.Error("a full machine is restored as another")
			}
		})
	}
}

// TestAccepts tells which entries a machine can apply.
func TestAccepts(t *testing.T) {
	drop := lock.DropMember{ID: "n"}
	for name, test := range map[string]struct {
		version  uint32 // 0: not created
		commands []lock.Command
		want     bool
	}{
		"old command":               {1, []lock.Command{lock.Tick{}}, true},
		"new command too early":     {1, []lock.Command{lock.Tick{}, drop}, false},
		"new command":               {2, []lock.Command{drop}, true},
		"behind the rise":           {1, []lock.Command{lock.SetVersion{Version: 2}, drop}, true},
		"before the rise":           {1, []lock.Command{drop, lock.SetVersion{Version: 2}}, false},
		"an unknown version":        {2, []lock.Command{lock.SetVersion{Version: lock.MaxVersion + 1}}, false},
		"a cluster of it":           {0, []lock.Command{lock.Init{Version: lock.MaxVersion + 1, Config: baseConfig()}}, false},
		"created once":              {2, []lock.Command{lock.Init{Version: 1, Config: baseConfig()}, drop}, true},
		"in the entry of Init":      {0, []lock.Command{lock.Init{Version: 2, Config: baseConfig()}, drop}, true},
		"before there is a cluster": {0, []lock.Command{drop}, true},
	} {
		m := lock.New()
		if test.version > 0 {
			m.Apply(1, lock.Entry{Commands: []lock.Command{lock.Init{Cluster: "c", Version: test.version, Config: baseConfig()}}})
		}
		if err := m.Accepts(lock.Entry{Commands: test.commands}); (err == nil) != test.want {
			t.Errorf("%s: got %v, want accepted: %v", name, err, test.want)
		}
	}
}

// TestTimedByWhatIsNoLease checks that the leader ticks for what is timed besides leases, waits and clients.
func TestTimedByWhatIsNoLease(t *testing.T) {
	config := baseConfig()
	config.MaxWait, config.RetryWindow = time.Second, time.Second
	for name, test := range map[string]struct {
		commands    []lock.Command
		still, over time.Duration // timed at, and not any more
	}{
		"a lock-delay": {[]lock.Command{everyPolicy()[0], acquire("a", "closed", 1)}, 50 * time.Minute, 51 * time.Minute},
		"a retiring key": {[]lock.Command{
			lock.PutKey{Node: "n", KeyID: "k"}, lock.RetireKey{Node: "n", KeyID: "k", After: lock.LeaseTime(time.Minute)},
		}, 59 * time.Second, time.Minute},
		"a bucket that fills": {[]lock.Command{
			lock.PutPolicy{Target: lock.Target{Kind: lock.TargetTenant}, Policy: lock.Policy{AcquireRate: new(int64(1)), AcquireBurst: new(int64(20))}},
			acquire("a", "a", 1), acquire("b", "a", 2), acquire("c", "a", 3),
			lock.Release{Identity: "me", Lease: lease.ID{2: 1}},
		}, 2900 * time.Millisecond, 3100 * time.Millisecond},
	} {
		m := started2(t, config)
		apply(m, 0, test.commands...)
		for at := time.Duration(0); at <= test.still; at += max(time.Second, test.still/100) {
			apply(m, at, lock.Tick{})
		}
		apply(m, test.still, lock.Tick{})
		if !m.Timed() {
			t.Errorf("%s: nothing is timed at %v", name, test.still)
		}
		if apply(m, test.over, lock.Tick{}); m.Timed() {
			t.Errorf("%s: something is timed at %v", name, test.over)
		}
	}
}

// TestViewOfACrowd checks that a view is bounded, and counts.
func TestViewOfACrowd(t *testing.T) {
	m := started2(t, baseConfig())
	const holders = lock.MaxViewHolders + 50
	for n := range holders {
		c := acquire(fmt.Sprint(n), "r", 1)
		c.Mode, c.Lease = lease.Shared, lease.NewID(0, [14]byte{byte(n), byte(n >> 8), 1})
		apply(m, 0, c)
	}
	v := m.Get("r")
	if len(v.Holders) != lock.MaxViewHolders || v.Holding != holders || v.Holders[3].Client != "3" {
		t.Errorf("%d holders of %d are shown, the fourth is %+v", len(v.Holders), v.Holding, v.Holders[3])
	}
}
