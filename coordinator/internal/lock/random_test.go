package lock_test

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/internal/logpb"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// smallConfig makes every bound easy to reach.
func smallConfig() lock.Config {
	return lock.Config{
		DefaultTTL: 6 * time.Second, MinTTL: 2 * time.Second, MaxTTL: 20 * time.Second,
		MaxWait: 8 * time.Second, RetryWindow: 4 * time.Second, Grace: 3 * time.Second,
		ClaimWindow: 2 * time.Second, HeadStart: time.Second,
		MaxWaiters: 2, MaxRequests: 4, MaxExpiries: 2,
	}
}

// world draws commands about few names, so that they meet.
type world struct {
	t      *rapid.T
	now    lock.LeaseTime
	live   *observer // what has become of the commands so far
	past   []lock.Acquire
	calls  uint64
	leases int
}

func pick[T any](w *world, label string, from ...T) T {
	return rapid.SampledFrom(from).Draw(w.t, label)
}

func (w *world) entry() lock.Entry {
	w.now = w.now.Add(pick(w, "pass", 0, 0, 0, time.Second, time.Second, time.Second, 2*time.Second, 5*time.Second, 13*time.Second))
	e := lock.Entry{Now: max(0, w.now.Add(-pick(w, "skew", 0, 0, 0, 3*time.Second)))}
	for range pick(w, "commands", 0, 1, 1, 2, 3, 6) {
		e.Commands = append(e.Commands, w.command())
	}
	return e
}

// command makes a new request or one about an earlier request, mostly by its owner.
func (w *world) command() lock.Command {
	kind := pick(w, "kind", "acquire", "acquire", "acquire", "acquire", "retry", "retry", "retry", "renew", "renew",
		"release", "cancel", "cancel", "detach", "break", "leader", "forestall", "later", "later", "later")
	past := w.recent()
	switch kind {
	case "acquire":
		return w.acquire()
	case "retry":
		return w.retry(past)
	case "renew":
		ttl := pick(w, "ttl", 0, 0, 4*time.Second, time.Second, 21*time.Second)
		return lock.Renew{Identity: w.owner(past), Lease: past.Lease, TTL: ttl}
	case "release":
		return lock.Release{Identity: w.owner(past), Lease: past.Lease}
	case "cancel":
		return lock.Cancel{
			Identity: w.owner(past), Client: past.Client, Request: past.Request, AsOf: past.AsOf,
			TimedOut: pick(w, "timedout", false, false, true),
		}
	case "detach":
		call := pick(w, "call", past.Call, past.Call, w.calls, 0)
		return lock.Detach{Identity: past.Identity, Client: past.Client, Request: past.Request, Call: call}
	case "break":
		return lock.Break{Identity: "admin", Resource: w.resource()}
	case "later":
		return w.later(past)
	case "forestall":
		return lock.Cancel{Identity: w.identity(), Client: w.client(), Request: w.request(), AsOf: w.asOf()}
	}
	return lock.NewLeader{Node: "n1", Term: uint64(w.now)}
}

// recent is one of the last acquires, or the zero value, which fits nothing.
func (w *world) recent() lock.Acquire {
	if len(w.past) == 0 {
		return lock.Acquire{}
	}
	return pick(w, "past", w.past[max(0, len(w.past)-8):]...)
}

func (w *world) owner(c lock.Acquire) lease.Identity {
	return pick(w, "owner", c.Identity, c.Identity, c.Identity, c.Identity, c.Identity, c.Identity, "t:y")
}

// retry is a copy, by the same node or another one, seldom with a parameter changed.
func (w *world) retry(c lock.Acquire) lock.Acquire {
	switch pick(w, "retry", "copy", "copy", "again", "again", "again", "again", "again", "other") {
	case "copy":
		return c
	case "other":
		c.TTL = pick(w, "ttl", 3*time.Second, 4*time.Second)
	}
	c.Lease, c.Call, c.Wait = w.newLease(), w.call(), pick(w, "wait", 0, 2*time.Second, 8*time.Second)
	w.past = append(w.past, c)
	return c
}

func (w *world) acquire() lock.Acquire {
	c := lock.Acquire{
		Identity: w.identity(), Client: w.client(), Request: w.request(), Resource: w.resource(),
		Mode: lease.Exclusive, TTL: pick(w, "ttl", 0, 0, 0, 0, 0, 5*time.Second, time.Second), AsOf: w.asOf(),
		Wait: pick(w, "wait", 0, 3*time.Second, 8*time.Second, 8*time.Second, 8*time.Second, 9*time.Second), Call: w.call(),
	}
	if pick(w, "mode", 0, 0, 1) == 1 {
		c.Mode = lease.Shared
	}
	c.Owner = pick(w, "owner", "", "", "", "a", "thread")
	if c.Client == "c" { // numbers its requests
		c.Sequence = uint64(c.Request[0] - '0')
		c.Acknowledged = uint64(rapid.IntRange(0, 4).Draw(w.t, "acknowledged"))
	}
	c.Lease = w.newLease()
	w.past = append(w.past, c)
	return c
}

func (w *world) identity() lease.Identity {
	return pick[lease.Identity](w, "identity", "x", "x", "x", "t:y")
}
func (w *world) client() lease.ClientID { return pick[lease.ClientID](w, "client", "a", "b", "c") }
func (w *world) resource() lease.Resource {
	return pick[lease.Resource](w, "resource", "r1", "r1", "r2")
}

func (w *world) request() lease.RequestID {
	return pick[lease.RequestID](w, "request", "1", "2", "3", "4", "5", "6", "7", "8")
}

// newLease makes an id, seldom one that is in use.
func (w *world) newLease() lease.ID {
	w.leases++
	n := w.leases - pick(w, "lease", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1)
	return lease.NewID(0, [14]byte{byte(n >> 8), byte(n), 1})
}

// call is a new number, the last one, or none.
func (w *world) call() uint64 {
	w.calls++
	return pick(w, "call", w.calls, w.calls, w.calls, w.calls, w.calls-1, 0)
}

// asOf is now, or at, around and beyond both ends of the window.
func (w *world) asOf() lock.LeaseTime {
	return w.now.Add(pick(w, "asOf", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, -1*time.Second, -5*time.Second, -12*time.Second, -13*time.Second, time.Second, 12*time.Second, 13*time.Second))
}

// TestRandom runs random logs on three machines: one live and judged, one behind the codec, one that is restored
// from its snapshot now and then. All must agree, the judge must find nothing, and snapshots must stay frozen.
func TestRandom(t *testing.T) {
	must := slices.Concat(mustHit, mustHitLater)
	checkUntilHit(t, must, func(t *rapid.T, hits map[string]int) {
		config := smallConfig()
		live, encoded, restored := newObserver(config), lock.New(), lock.New()
		w := &world{t: t, live: live}
		var frozen []frozenSnapshot
		var smallest lease.Token
		entry := lock.Entry{Commands: []lock.Command{lock.Init{Cluster: "c", Version: pick[uint32](w, "version", 1, 2, 2, 2, 2), Config: config}}}
		for i := range uint64(rapid.IntRange(40, 100).Draw(t, "entries")) {
			if err := live.Accepts(entry); err != nil {
				t.Fatalf("entry %d: %v", i+1, err)
			}
			version := live.Info().Version
			results, events, err := live.step(entry)
			if err != nil {
				t.Fatalf("entry %d: %v", i+1, err)
			}
			count(hits, entry, results, events)
			countLater(hits, version, entry, results, events)
			sameOutcome(t, "behind the codec", encoded, i+1, recoded(t, entry), results, events, live.Digest())
			if rapid.IntRange(0, 3).Draw(t, "restore") == 0 {
				restored = restore(t, restored)
			}
			if rapid.IntRange(0, 7).Draw(t, "freeze") == 0 {
				frozen = append(frozen, frozenSnapshot{live.Snapshot(), live.Digest()})
				latest := frozen[len(frozen)-1].snapshot.SmallestLive()
				if latest < smallest {
					t.Fatalf("entry %d: the smallest live token went from %d to %d", i+1, smallest, latest)
				}
				smallest = latest
			}
			sameOutcome(t, "restored", restored, i+1, entry, results, events, live.Digest())
			entry = w.entry()
		}
		for _, f := range frozen {
			if f.snapshot.Digest() != f.digest {
				t.Fatal("a frozen snapshot has changed")
			}
		}
		drain(t, live, w.now)
	})
}

// checkUntilHit checks a property over random runs until each of the situations was met, which it counts in hits: a
// property that never meets them proves less than it should.
func checkUntilHit(t *testing.T, must []string, property func(*rapid.T, map[string]int)) {
	t.Helper()
	hits := make(map[string]int)
	missing := must
	for range 20 {
		rapid.Check(t, func(t *rapid.T) { property(t, hits) })
		missing = slices.DeleteFunc(slices.Clone(missing), func(s string) bool { return hits[s] > 0 })
		if t.Failed() || len(missing) == 0 {
			break
		}
	}
	if len(missing) > 0 && !t.Failed() {
		t.Errorf("no run had %q: the test proves less than it should", missing)
	}
	t.Logf("situations: %v", hits)
}

type frozenSnapshot struct {
	snapshot *lock.Snapshot
	digest   [32]byte
}

// drain lets time pass until nothing is timed, which must come, and must leave nothing behind.
func drain(t *rapid.T, o *observer, now lock.LeaseTime) {
	for range 100 {
		if !o.Timed() {
			break
		}
		now = now.Add(time.Second)
		if _, _, err := o.step(lock.Entry{Now: now, Commands: []lock.Command{lock.Tick{}}}); err != nil {
			t.Fatalf("while draining: %v", err)
		}
	}
	if info := o.Info(); o.Timed() || info.Leases+info.Waiters+info.Requests+info.Clients > 0 {
		t.Fatalf("left behind: %+v", info)
	}
}

func recoded(t *rapid.T, e lock.Entry) lock.Entry {
	b, err := logpb.EncodeEntry(e)
	if err != nil {
		t.Fatal(err)
	}
	e, err = logpb.DecodeEntry(b)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func restore(t interface{ Fatal(...any) }, m *lock.Machine) *lock.Machine {
	var b bytes.Buffer
	if err := logpb.WriteSnapshot(&b, m.Snapshot()); err != nil {
		t.Fatal(err)
	}
	restored, err := logpb.ReadSnapshot(&b)
	if err != nil {
		t.Fatal(err)
	}
	return restored
}

func sameOutcome(
	t *rapid.T, who string, m *lock.Machine, index uint64, e lock.Entry,
	results []lock.Result, events []lock.Event, digest [32]byte,
) {
	gotResults, gotEvents := m.Apply(index, e)
	if !reflect.DeepEqual(gotResults, results) {
		t.Fatalf("entry %d, %s: results are\n%+v\nwant\n%+v", index, who, gotResults, results)
	}
	if !reflect.DeepEqual(gotEvents, events) {
		t.Fatalf("entry %d, %s: events are\n%+v\nwant\n%+v", index, who, gotEvents, events)
	}
	if m.Digest() != digest {
		t.Fatalf("entry %d, %s: another digest", index, who)
	}
	if err := m.Check(); err != nil {
		t.Fatalf("entry %d, %s: %v", index, who, err)
	}
}

// mustHit are situations that each run has to meet.
var mustHit = []string{
	"granted late", "lease_id_taken", "granted on re-attaching", "two grants of a resource in one entry", "unclaimed", "expired",
	"waited too long", "abandoned", "cancelled while waiting", "cancelled while held", "cancelled before it came",
	"retried while held", "broken", "held", "already_held", "lease_ended", "not_owner", "request_mismatch",
	"request_too_old", "request_ended", "request_cancelled", "request_ahead", "ttl_too_short", "ttl_too_long",
	"wait_too_long", "mode_not_allowed", "too_many_waiters", "too_many_requests",
}

func count(hits map[string]int, e lock.Entry, results []lock.Result, events []lock.Event) {
	granted := make(map[lease.Resource]int)
	late := make(map[lease.ID]bool)
	for _, event := range events {
		switch event := event.(type) {
		case lock.LeaseGranted:
			if granted[event.Resource]++; granted[event.Resource] == 2 {
				hits["two grants of a resource in one entry"]++
			}
			if late[event.Lease] = event.Late; event.Late {
				hits["granted late"]++
			}
		case lock.LeaseEnded:
			hits[event.Cause.String()]++
		case lock.WaitEnded:
			hits[map[lock.WaitCause]string{
				lock.WaitTimedOut: "waited too long", lock.WaitAbandoned: "abandoned", lock.WaitCancelled: "cancelled while waiting",
				lock.WaitDeadlocked: "victim of a deadlock across groups", lock.WaitRecovered: "recovered while waiting",
			}[event.Cause]]++
		case lock.WaitStarted, lock.WaitAttached, lock.WaitDetached, lock.ResourceBroken, lock.KeyAdded, lock.LeaderStarted,
			lock.KeyRetired, lock.KeyDropped, lock.PolicyChanged, lock.VersionRaised, lock.MemberChanged, lock.Recovered:
		}
	}
	for _, result := range results {
		switch r := result.(type) {
		case lock.Granted:
			if isLate, now := late[r.Lease]; r.Retried && now && !isLate {
				hits["granted on re-attaching"]++
			} else if r.Retried {
				hits["retried while held"]++
			}
		case lock.Cancelled:
			hits[map[lock.RequestState]string{
				lock.RequestUnknown: "cancelled before it came", lock.RequestHeld: "cancelled while held",
				lock.RequestWaiting: "cancelled waiter", lock.RequestEnded: "cancelled in vain",
			}[r.Was]]++
		case lock.Refused:
			hits[r.Reason.String()]++
		case lock.Waiting, lock.Renewed, lock.RenewedMany, lock.Released, lock.Broken, lock.Done:
		}
	}
	hits[fmt.Sprintf("entries of %d commands", len(e.Commands))]++
}
