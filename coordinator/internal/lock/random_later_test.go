package lock_test

import (
	"slices"
	"time"

	"pgregory.net/rapid"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// later draws a command that cluster version 2 added, or the rise to it.
func (w *world) later(past lock.Acquire) lock.Command {
	if w.live.Info().Version < 2 {
		return lock.SetVersion{Version: pick[uint32](w, "version", 0, 1, 1, 1, 2)}
	}
	switch pick(w, "later", "renew", "renew", "renew", "policy", "policy", "policy", "policy", "delete", "kill", "kill", "key", "retire", "member", "drop", "recover") {
	case "renew":
		return w.renewMany()
	case "policy":
		return w.policy()
	case "delete":
		return lock.DeletePolicy{By: "admin", Target: w.target()}
	case "kill":
		return w.kill(past)
	case "key":
		return lock.PutKey{Node: "n", KeyID: pick(w, "key", "1", "2")}
	case "retire":
		return lock.RetireKey{Node: "n", KeyID: pick(w, "key", "1", "2"), After: w.now.Add(pick(w, "after", 0, 3*time.Second))}
	case "member":
		id := pick(w, "member", "n1", "n2", "")
		return lock.PutMember{Member: lock.Member{ID: id, Peer: "p", GRPC: "g", HTTP: pick(w, "http", "h", "i")}}
	case "drop":
		return lock.DropMember{ID: pick(w, "member", "n1", "n2")}
	}
	if pick(w, "recover", 0, 0, 0, 1) == 0 {
		return lock.Tick{}
	}
	info := w.live.Info()
	return lock.Recover{
		Cluster: pick(w, "cluster", "c", "c", "c", "other"), Incarnation: info.Incarnation + pick[uint32](w, "incarnation", 0, 1, 2, 1<<13),
	}
}

func (w *world) renewMany() lock.Command {
	c := lock.RenewMany{Identity: w.identity()}
	for range pick(w, "many", 0, 1, 3, 5) {
		c.Leases = append(c.Leases, w.recent().Lease)
	}
	return c
}

func (w *world) target() lock.Target {
	return pick(
		w, "target", lock.Target{}, lock.Target{Kind: lock.TargetPrefix}, lock.Target{Kind: lock.TargetPrefix, Name: "r"},
		lock.Target{Kind: lock.TargetPrefix, Name: "r1"}, lock.Target{Kind: lock.TargetPrefix, Name: "r1"},
		lock.Target{Kind: lock.TargetTenant}, lock.Target{Kind: lock.TargetTenant}, lock.Target{Kind: lock.TargetTenant, Name: "t"},
	)
}

// policy draws few fields, mostly of the target's kind.
func (w *world) policy() lock.Command {
	c := lock.PutPolicy{By: "admin", Target: w.target()}
	fields := []string{"default", "min", "max", "hold", "hold", "hold", "hold", "delay", "delay", "delay", "exclusive", "shared", "waiters"}
	if c.Target.Kind == lock.TargetTenant {
		fields = []string{"waiters", "leases", "rate", "rate", "burst"}
	}
	if pick(w, "kinds", 0, 0, 0, 0, 0, 0, 0, 1) == 1 {
		fields = []string{"leases", "delay"}
	}
	for range pick(w, "fields", 0, 1, 1, 2, 3) {
		w.setField(&c.Policy, pick(w, "field", fields...))
	}
	return c
}

func (w *world) setField(p *lock.Policy, field string) {
	duration := func() *time.Duration {
		return new(pick(w, field, 3*time.Second, 3*time.Second, 5*time.Second, 7*time.Second, 9*time.Second, 30*time.Second))
	}
	switch field {
	case "default":
		p.DefaultTTL = duration()
	case "min":
		p.MinTTL = duration()
	case "max":
		p.MaxTTL = duration()
	case "hold":
		p.MaxHold = duration()
	case "delay":
		p.LockDelay = duration()
	case "exclusive":
		p.Exclusive = new(pick(w, field, true, false))
	case "shared":
		p.Shared = new(pick(w, field, true, false))
	case "waiters":
		p.MaxWaiters = new(rapid.IntRange(-1, 3).Draw(w.t, field))
	case "leases":
		p.MaxLeases = new(int64(rapid.IntRange(-1, 3).Draw(w.t, field)))
	case "requests":
		p.MaxRequests = new(int64(rapid.IntRange(0, 6).Draw(w.t, field)))
	case "rate":
		p.AcquireRate = new(int64(rapid.IntRange(0, 3).Draw(w.t, field)))
	case "burst":
		p.AcquireBurst = new(int64(rapid.IntRange(0, 3).Draw(w.t, field)))
	}
}

// kill is about an edge of the graph, or about requests that mostly are none.
func (w *world) kill(past lock.Acquire) lock.Command {
	if edges, _ := w.live.Edges(100); len(edges) > 0 && pick(w, "edge", 0, 0, 1) == 0 {
		e := pick(w, "which", edges...)
		return lock.KillWait{
			Identity: e.Waiter.Owner.Identity, Client: e.Waiter.Client, Request: e.Waiter.Request, Lease: e.Lease,
			Ahead: lock.RequestRef{Identity: e.Holder.Owner.Identity, Client: e.Holder.Client, Request: e.Holder.Request},
			Cycle: []lock.Owner{e.Waiter.Owner, e.Holder.Owner},
		}
	}
	other := w.recent()
	return lock.KillWait{
		Identity: past.Identity, Client: past.Client, Request: past.Request, Lease: other.Lease,
		Ahead: lock.RequestRef{Identity: other.Identity, Client: other.Client, Request: other.Request},
	}
}

// mustHitLater are situations of cluster version 2 that each run has to meet.
var mustHitLater = []string{
	"joined a shared period", "shared in version 1", "deadlock", "rate_limited",
	"too_many_leases", "hold_too_long", "lock_delayed", "victim of a deadlock across groups", "no_such_wait", "recovered",
	"incarnation_too_low", "incarnation_too_high", "other_cluster", "policy_invalid", "no_such_policy", "no_such_key",
	"member_invalid", "no_such_member", "version raised", "key dropped", "renewed of many", "lease_ended of many",
}

func countLater(hits map[string]int, version uint32, e lock.Entry, results []lock.Result, events []lock.Event) {
	for _, event := range events {
		switch event.(type) {
		case lock.VersionRaised:
			hits["version raised"]++
		case lock.KeyDropped:
			hits["key dropped"]++
		default:
		}
	}
	for i, result := range results {
		switch r := result.(type) {
		case lock.Granted:
			countShared(hits, r, events)
		case lock.RenewedMany:
			for _, single := range r.Renewals {
				if refused := single.Refused; refused != nil {
					hits[refused.Reason.String()+" of many"]++
				} else {
					hits["renewed of many"]++
				}
			}
		case lock.Refused:
			if a, ok := e.Commands[i].(lock.Acquire); ok && version < 2 && a.Mode == lease.Shared && r.Reason == lock.ReasonModeNotAllowed {
				hits["shared in version 1"]++
			}
		default:
		}
	}
}

// countShared looks at the grant of a shared lease on the spot.
func countShared(hits map[string]int, r lock.Granted, events []lock.Event) {
	began := slices.ContainsFunc(events, func(e lock.Event) bool {
		g, ok := e.(lock.LeaseGranted)
		return ok && g.Lease == r.Lease && g.Token == r.Token
	})
	if r.Mode == lease.Shared && began && !r.Retried {
		hits["joined a shared period"] += tokensOf(events, r.Token) - 1
	}
}

// tokensOf counts the leases that began under a token.
func tokensOf(events []lock.Event, token lease.Token) int {
	n := 0
	for _, e := range events {
		if g, ok := e.(lock.LeaseGranted); ok && g.Token == token {
			n++
		}
	}
	return n
}
