package group

import (
	"errors"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lychgate/lychgate/chaos/invariant"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/internal/lock/locktest"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// judge has a log, as replicas applied it, judged by the invariants.
type judge struct {
	checker *invariant.Checker
	options invariant.Options
	config  lock.Config
	stored  func(a Applied) []string // names the members that have the entry in their logs; nil: not judged
	steps   int
	err     error // the first violation; nothing is judged behind it
}

func newJudge(config lock.Config) *judge {
	options := locktest.Options(config)
	// A leader ticks, and no stamp is further from the one before than the clock's limit. That holds while no entry
	// leaves anything overdue behind: these tests have fewer leases than MaxExpiries.
	options.MaxLate = clockLimit(config.MinTTL)
	return &judge{checker: invariant.New(options), options: options, config: config}
}

// watch has the quorum judged too, by the logs of a cluster. Nothing may have been observed yet.
func (j *judge) watch(c *cluster) {
	j.options.Replicas = len(c.members)
	j.checker = invariant.New(j.options)
	j.stored = c.stored
}

// stored names the members whose logs have the entry, or have it behind them in a snapshot.
func (c *cluster) stored(a Applied) []string {
	var names []string
	for _, m := range c.members {
		var entry raft.Log
		first, err := m.disk.FirstIndex()
		if err != nil {
			c.t.Errorf("%s: first index of the log: %v", m.id, err)
		}
		err = m.disk.GetLog(a.Index, &entry)
		switch {
		case err == nil && entry.Term == a.Term, errors.Is(err, raft.ErrLogNotFound) && a.Index < first:
			names = append(names, m.id)
		case err != nil && !errors.Is(err, raft.ErrLogNotFound):
			c.t.Errorf("%s: log entry %d: %v", m.id, a.Index, err)
		}
	}
	return names
}

// observe judges one entry when it is first applied anywhere, and whether anything should have ended by it that has
// not.
func (j *judge) observe(a Applied) {
	if j.stored != nil {
		j.step(invariant.Stored{Index: a.Index, Replicas: j.stored(a)})
	}
	steps := locktest.Steps(locktest.Applied{
		Now: a.Now, Config: j.config, Commands: a.Commands, Results: a.Results, Events: a.Events,
	})
	for _, step := range steps {
		j.step(step)
	}
	j.steps += len(steps)
	if j.err == nil {
		j.err = j.checker.Finish(invariant.Instant(a.Now))
	}
}

func (j *judge) step(e invariant.Event) {
	if j.err == nil {
		j.err = j.checker.Observe(e)
	}
}

// The judge finds what outlives its end, and what takes effect without a majority.
func TestJudge(t *testing.T) {
	deadline := lock.LeaseTime(10 * time.Second)
	grant := lock.Grant{Resource: "a", Lease: lease.NewID(0, [14]byte{1}), Token: 1, Mode: lease.Exclusive, Deadline: deadline}
	granted := Applied{Index: 1, Events: []lock.Event{lock.LeaseGranted{Grant: grant}}}
	waits := Applied{Index: 1, Events: []lock.Event{lock.WaitStarted{Resource: "a", Request: "r", Attached: true, Deadline: deadline}}}
	limit := clockLimit(testLockConfig().MinTTL)
	idle := func(now lock.LeaseTime) Applied { return Applied{Index: 2, Now: now} }
	for _, c := range []struct {
		name      string
		invariant int // 0: none
		stored    []string
		entries   []Applied
	}{
		{"ticked in time", 0, []string{"n1", "n3"}, []Applied{granted, idle(deadline.Add(limit))}},
		{"lease not ended", 9, []string{"n1", "n3"}, []Applied{granted, idle(deadline.Add(limit + 1))}},
		{"wait not answered", 11, []string{"n1", "n3"}, []Applied{waits, idle(deadline.Add(limit + 1))}},
		{"one of three", 6, []string{"n2"}, []Applied{granted}},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := newJudge(testLockConfig())
			j.watch(&cluster{members: make([]*member, 3)})
			j.stored = func(Applied) []string { return c.stored }
			for _, a := range c.entries {
				j.observe(a)
			}
			var violation *invariant.Violation
			if c.invariant == 0 && j.err != nil || c.invariant != 0 && (!errors.As(j.err, &violation) || violation.Invariant != c.invariant) {
				t.Errorf("got %v, want a violation of invariant %d (0: none)", j.err, c.invariant)
			}
		})
	}
}
