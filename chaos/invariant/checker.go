// Package invariant judges histories by the invariants of the design: what must be true of every run, whatever the
// faults. It knows nothing of the code that it judges; each test layer translates what it saw into the events here.
package invariant

import (
	"fmt"
	"maps"
	"time"
)

// Options say what the history was promised. The zero value promises the least.
type Options struct {
	// Window is how long after its first effect a request may be retried; its copies are refused later. 0 means that
	// no request is ever used twice.
	Window time.Duration
	// MaxLate is how long after its end a lease may live on; 0 means that it is not judged.
	MaxLate time.Duration
	// ClockError is by how many parts in a million the clock of the history may run fast.
	ClockError int64
	// TokensSeen says that the history has every grant before the first use of its token at a store.
	TokensSeen bool
	// Replicas is how many vote; 0 means that the quorum is not judged. Otherwise each entry's steps come behind its
	// Stored.
	Replicas int
}

// Violation is a step that no correct system takes.
type Violation struct {
	Invariant int // its number in the design
	Event     Event
	Detail    string
}

func (v *Violation) Error() string {
	return fmt.Sprintf("invariant %d: %s (%T %+v)", v.Invariant, v.Detail, v.Event, v.Event)
}

// Checker judges the history of one group, step by step in the order of its log. It is not safe for concurrent use.
type Checker struct {
	options  Options
	history  *history
	tokens   *tokens
	requests *requests
	floors   *floors
	quorum   *quorum
	replicas *replicas
	rules    []rule
}

// rule is one invariant: it looks at a step before the history follows it, and says what is wrong with it.
type rule struct {
	invariant int
	judge     func(*history, Event) string
}

// New returns a checker at the beginning of a history.
func New(o Options) *Checker {
	c := &Checker{
		options: o, history: newHistory(), tokens: newTokens(), requests: newRequests(o), floors: newFloors(o),
		quorum: newQuorum(o), replicas: newReplicas(),
	}
	c.rules = c.allRules()
	return c
}

func (c *Checker) allRules() []rule {
	return []rule{
		{1, exclusion},
		{2, c.tokens.judge},
		{3, c.floors.neverDown},
		{4, c.floors.writes},
		{5, ownership},
		{6, c.quorum.judge},
		{7, c.requests.judge},
		{8, order},
		{9, expiry(c.options)},
		{10, c.replicas.judge},
		{12, c.floors.issued},
	}
}

// Clone returns a checker of the same history so far, which may go on otherwise.
func (c *Checker) Clone() *Checker {
	twin := &Checker{
		options: c.options, history: c.history.clone(), tokens: new(*c.tokens), requests: c.requests.clone(),
		floors: c.floors.clone(), quorum: new(*c.quorum), replicas: &replicas{maps.Clone(c.replicas.digests)},
	}
	twin.rules = twin.allRules()
	return twin
}

// Observe judges the next step. The error is a *Violation, or says that the history itself makes no sense; after
// one the checker is of no more use.
func (c *Checker) Observe(e Event) error {
	for _, r := range c.rules {
		if detail := r.judge(c.history, e); detail != "" {
			return &Violation{Invariant: r.invariant, Event: e, Detail: detail}
		}
	}
	return c.history.follow(e)
}

// Finish judges what should have happened by now, at the end of the history or of any part of it.
func (c *Checker) Finish(at Instant) error {
	if c.options.MaxLate == 0 {
		return nil
	}
	for _, l := range c.history.leases {
		if at > l.deadline().Add(c.options.MaxLate) {
			return &Violation{Invariant: 9, Event: l.Granted, Detail: fmt.Sprintf("the lease ran out at %v and has not ended by %v", l.deadline(), at)}
		}
	}
	for _, w := range c.history.waiters {
		if at > w.Deadline.Add(c.options.MaxLate) {
			return &Violation{Invariant: 11, Event: w.Queued, Detail: fmt.Sprintf("the wait was over at %v and is not answered by %v", w.Deadline, at)}
		}
	}
	return nil
}
