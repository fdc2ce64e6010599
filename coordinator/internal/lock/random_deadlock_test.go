package lock_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// tangle draws commands that make owners wait for one another: leases outlive the test, and callers come and go.
type tangle struct {
	t    *rapid.T
	past []lock.Acquire
	n    int
}

func (w *tangle) command() lock.Command {
	past := lock.Acquire{}
	if len(w.past) > 0 {
		past = rapid.SampledFrom(w.past[max(0, len(w.past)-12):]).Draw(w.t, "past")
	}
	switch rapid.SampledFrom([]string{
		"acquire", "acquire", "acquire", "acquire", "acquire", "detach", "detach", "retry", "retry", "retry", "release", "cancel", "leader",
	}).Draw(w.t, "kind") {
	case "detach":
		return lock.Detach{Identity: past.Identity, Client: past.Client, Request: past.Request, Call: past.Call}
	case "retry":
		return past
	case "release":
		return lock.Release{Identity: past.Identity, Lease: past.Lease}
	case "cancel":
		return lock.Cancel{Identity: past.Identity, Client: past.Client, Request: past.Request}
	case "leader":
		if rapid.IntRange(0, 3).Draw(w.t, "leader") == 0 {
			return lock.NewLeader{Node: "n", Term: 1}
		}
	}
	return w.acquire()
}

func (w *tangle) acquire() lock.Acquire {
	w.n++
	c := lock.Acquire{
		Identity: "x", Client: lease.ClientID(rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(w.t, "client")),
		Request: lease.RequestID(fmt.Sprint(w.n)), Owner: rapid.SampledFrom([]string{"", "", "", "", "a", "t"}).Draw(w.t, "owner"),
		Resource: lease.Resource(rapid.SampledFrom([]string{"r1", "r2", "r3"}).Draw(w.t, "resource")),
		Mode:     rapid.SampledFrom([]lease.Mode{lease.Exclusive, lease.Exclusive, lease.Shared}).Draw(w.t, "mode"),
		Wait:     time.Minute, Lease: lease.NewID(0, [14]byte{byte(w.n >> 8), byte(w.n), 1}), Call: uint64(w.n),
	}
	w.past = append(w.past, c)
	return c
}

// TestRandomDeadlocks compares the search for deadlocks with the whole graph: no command closes a cycle, and who is
// refused would have closed the one that it is told. A restored replica searches alike.
func TestRandomDeadlocks(t *testing.T) {
	must := []string{"1", "2", "3", "through a named owner", "on re-attaching", "shared", "several shared waiters granted at once"}
	checkUntilHit(t, must, func(t *rapid.T, hits map[string]int) {
		config := baseConfig()
		config.MaxRequests, config.HeadStart = 1000, time.Second
		live, twin := newObserver(config), lock.New()
		w := &tangle{t: t}
		entry := lock.Entry{Commands: []lock.Command{lock.Init{Cluster: "c", Version: 2, Config: config}}}
		for i := range uint64(rapid.IntRange(50, 200).Draw(t, "entries")) {
			results, events, err := live.step(entry)
			if err != nil {
				t.Fatalf("entry %d: %v", i+1, err)
			}
			judgeDeadlock(t, hits, live, entry, results)
			countRuns(hits, events)
			if rapid.IntRange(0, 9).Draw(t, "restore") == 0 {
				twin = restore(t, twin)
			}
			sameOutcome(t, "restored", twin, i+1, entry, results, events, live.Digest())
			entry = lock.Entry{Now: lock.LeaseTime(i) * lock.LeaseTime(50*time.Millisecond), Commands: []lock.Command{w.command()}}
		}
	})
}

// countRuns looks for runs of shared waiters.
func countRuns(hits map[string]int, events []lock.Event) {
	late := make(map[lease.Token]int)
	for _, event := range events {
		if g, ok := event.(lock.LeaseGranted); ok && g.Mode == lease.Shared && g.Late {
			if late[g.Token]++; late[g.Token] == 2 {
				hits["several shared waiters granted at once"]++
			}
		}
	}
}

func judgeDeadlock(t *rapid.T, hits map[string]int, m *observer, e lock.Entry, results []lock.Result) {
	r, ok := results[0].(lock.Refused)
	if !ok || r.Reason != lock.ReasonDeadlock {
		return
	}
	c := e.Commands[0].(lock.Acquire)
	if err := m.ProvesCycle(c, r.Cycle); err != nil {
		t.Fatal(err)
	}
	hits[fmt.Sprint(len(r.Cycle))]++
	if slices.ContainsFunc(r.Cycle, func(o lock.Owner) bool { return o.Name == "t" }) {
		hits["through a named owner"]++
	}
	if c.Mode == lease.Shared {
		hits["shared"]++
	}
	if _, waits := m.Waiting(c.Identity, c.Client, c.Request); waits {
		hits["on re-attaching"]++
		if m.Get(c.Resource).Holding == 0 {
			hits["on re-attaching to a free resource"]++
		}
	}
}
