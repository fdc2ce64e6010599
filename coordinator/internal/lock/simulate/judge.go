package simulate

import (
	"errors"
	"fmt"
	"time"

	"github.com/lychgate/lychgate/chaos/invariant"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/internal/lock/locktest"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// judge holds what happens against the invariants, and the ends of leases against the perfect clock.
type judge struct {
	world   *world
	checker *invariant.Checker
	stamped map[lease.IDHash]stamped
}

// stamped is when a lease was granted or renewed last.
type stamped struct {
	real  time.Duration // its entry was stamped, by the perfect clock
	ttl   time.Duration // it stands from then
	owner *client
}

func newJudge(w *world) *judge {
	o := locktest.Options(w.drawn.config)
	o.TokensSeen = true
	// A step of lease time is at most the limit, and each entry ends at least one of the leases that are overdue.
	o.MaxLate = time.Duration(w.drawn.clients+2) * w.cfg.Limit(w.drawn.config.MinTTL)
	return &judge{world: w, checker: invariant.New(o), stamped: make(map[lease.IDHash]stamped)}
}

func (j *judge) observe(e invariant.Event) { j.world.fail(j.checker.Observe(e)) }

// applied judges an entry that was committed.
func (j *judge) applied(e *entry, now lock.LeaseTime, results []lock.Result, events []lock.Event) {
	w := j.world
	w.note("entry", uint64(now), uint64(len(e.Commands)), uint64(len(events)))
	if _, idle := e.Commands[0].(lock.Tick); idle && len(e.Commands) == 1 && len(events) == 0 {
		return
	}
	steps := locktest.Steps(locktest.Applied{
		Now: now, Config: w.drawn.config, Commands: e.Commands, Results: results, Events: events,
	})
	for _, step := range steps {
		j.observe(step)
		w.fail(j.early(e.real, step))
	}
}

// early looks for a lease that expired before its time had passed on the perfect clock, or that its client, by its own
// clock, took for held.
func (j *judge) early(real time.Duration, step invariant.Event) error {
	switch s := step.(type) {
	case invariant.Granted:
		j.stamped[s.Lease] = stamped{real: real, ttl: s.TTL, owner: j.world.client(s.Request.Client)}
	case invariant.Renewed:
		j.stamped[s.Lease] = stamped{real: real, ttl: s.TTL, owner: j.stamped[s.Lease].owner}
	case invariant.Ended:
		l := j.stamped[s.Lease]
		delete(j.stamped, s.Lease)
		if s.Cause != invariant.Expired {
			return nil
		}
		j.world.meet("a lease expired")
		error := l.ttl / 1_000_000 * worstDrift
		if lived := real - l.real; lived < l.ttl-error {
			return fmt.Errorf("invariant 9: a lease of %s expired %v after it was stamped for %v, by the perfect clock", l.owner.id, lived, l.ttl)
		}
		if h := l.owner.held; h != nil && h.lease.Hash() == s.Lease && l.owner.clock(real) < h.deadline {
			return fmt.Errorf("invariant 9: a lease expired that %s took for held for another %v", l.owner.id, h.deadline-l.owner.clock(real))
		}
	}
	return nil
}

func (w *world) client(id lease.ClientID) *client {
	for _, c := range w.clients {
		if c.id == id {
			return c
		}
	}
	panic("simulate: a grant to nobody")
}

// hear tells clients what an entry made of their waits.
func (w *world) hear(events []lock.Event, now lock.LeaseTime) {
	for _, event := range events {
		switch e := event.(type) {
		case lock.LeaseGranted:
			w.note("granted", uint64(e.Token))
			w.tell("%s is granted %s, token %d, at lease time %v", e.Client, e.Resource, e.Token, now.Sub(0))
			if !e.Late {
				w.meet("a lock was granted at once")
				continue
			}
			w.meet("a waiter was granted")
			c := w.client(e.Client)
			if a := c.ask; a != nil && a.Request == e.Request {
				w.carry(func() { c.after(0, func() { c.granted(a, e.Grant) }) })
			}
		case lock.WaitEnded:
			w.meet("a wait was over without a grant")
			c := w.client(e.Client)
			if a := c.ask; a != nil && a.Request == e.Request && e.Cause == lock.WaitTimedOut {
				w.carry(func() {
					c.after(0, func() {
						if c.ask == a {
							c.rest()
						}
					})
				})
			}
		case lock.LeaseEnded:
			w.tell("the lease of %s on %s ends (cause %d)", e.Client, e.Resource, e.Cause)
		default:
		}
	}
}

// settled is invariant 11: when the faults have been over for long enough, nobody waits or holds, and all replicas agree.
func (w *world) settled() error {
	if !w.cluster.leads() {
		return errors.New("invariant 11: the faults are over and nobody leads")
	}
	for _, n := range w.cluster.nodes {
		w.cluster.catchUp(n)
	}
	if err := w.cluster.agree(); err != nil {
		return err
	}
	if info := w.cluster.reign.node.machine.Info(); info.Waiters != 0 || info.Leases != 0 {
		return fmt.Errorf("invariant 11: long after the faults %d wait and %d leases stand", info.Waiters, info.Leases)
	}
	for _, c := range w.clients {
		if c.ask != nil || c.held != nil {
			return fmt.Errorf("invariant 11: long after the faults %s has no answer", c.id)
		}
	}
	return nil
}
