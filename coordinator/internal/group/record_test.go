package group

import (
	"sync"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// record is what all replicas of a cluster applied, in log order, seen from outside and on a perfect clock.
type record struct {
	t     *testing.T
	start time.Time

	mu        sync.Mutex
	entries   map[uint64]seen
	last      uint64
	lastToken lease.Token
	counts    counts
	lateness  time.Duration // the most that an expired lease outlived its deadline, in lease time
	judge     *judge
	stamps    map[uint64][]stamped // by term, in the order of their assignment
	lag       time.Duration        // by how much lease time has fallen behind real time so far
	reported  bool
	judged    int // entries whose stamp was judged on the perfect clock
	observers []func(Applied)
}

// seen is the first application of one entry.
type seen struct {
	digest [32]byte
	now    lock.LeaseTime
	at     time.Time
	node   string
}

// stamped is one assignment of lease time.
type stamped struct {
	stamp lock.LeaseTime
	at    time.Duration // since the record began
}

type counts struct{ entries, compared, grants, late, expired, released, leaders int }

func newRecord(t *testing.T) *record {
	return &record{
		t: t, entries: make(map[uint64]seen), stamps: make(map[uint64][]stamped),
		judge: newJudge(testLockConfig()), start: time.Now(),
	}
}

// watch makes the cluster's replicas report to the record.
func (r *record) watch(c *cluster) {
	c.stamped = r.stamped
	r.judge.watch(c)
	c.onApply = func(node string, a Applied) {
		for _, m := range c.members {
			if m.id == node {
				var digest [32]byte
				m.node().View(func(machine *lock.Machine) { digest = machine.Digest() })
				r.applied(node, a, digest)
			}
		}
	}
}

func (r *record) applied(node string, a Applied, digest [32]byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if first, ok := r.entries[a.Index]; ok {
		r.counts.compared++
		if first.digest != digest || first.now != a.Now {
			r.t.Errorf("entry %d: %s and %s differ: lease time %d and %d, digest %x and %x", a.Index, first.node, node, first.now, a.Now, first.digest[:4], digest[:4])
		}
		return
	}
	if a.Index < r.last {
		r.t.Errorf("entry %d is first applied after entry %d", a.Index, r.last)
	}
	previous := r.entries[r.last]
	r.last = a.Index
	r.entries[a.Index] = seen{digest, a.Now, time.Now(), node}
	r.counts.entries++
	if a.Now < previous.now {
		r.t.Errorf("entry %d: lease time goes back from %d to %d", a.Index, previous.now, a.Now)
	}
	for _, event := range a.Events {
		r.event(a, event)
	}
	r.pace(a)
	r.judge.observe(a)
	if r.judge.err != nil && !r.reported {
		r.reported = true
		r.t.Errorf("entry %d: %v", a.Index, r.judge.err)
	}
	for _, observe := range r.observers {
		observe(a)
	}
}

// stamped notes when a stamp was assigned, on a perfect clock.
func (r *record) stamped(term uint64, stamp lock.LeaseTime) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stamps[term] = append(r.stamps[term], stamped{stamp, time.Since(r.start)})
}

// pace judges that lease time never ran faster than the perfect clock between any two entries: it may only
// fall behind further and further.
func (r *record) pace(a Applied) {
	for i, s := range r.stamps[a.Term] {
		if s.stamp != a.Now {
			continue
		}
		r.stamps[a.Term] = r.stamps[a.Term][i+1:]
		lag := s.at - time.Duration(s.stamp)
		if lag < r.lag {
			r.t.Errorf("entry %d: lease time ran faster than real time: it was %s behind and is %s behind", a.Index, r.lag, lag)
		}
		r.lag = max(r.lag, lag)
		r.judged++
		return
	}
}

func (r *record) event(a Applied, event lock.Event) {
	switch e := event.(type) {
	case lock.LeaseGranted:
		r.counts.grants++
		if e.Late {
			r.counts.late++
		}
		r.token(a.Index, e.Token)
	case lock.ResourceBroken:
		r.token(a.Index, e.Token)
	case lock.LeaseEnded:
		switch e.Cause {
		case lock.EndExpired, lock.EndUnclaimed:
			r.counts.expired++
			if a.Now < e.Deadline {
				r.t.Errorf("entry %d ends a lease at %d, before its deadline %d", a.Index, a.Now, e.Deadline)
			}
			r.lateness = max(r.lateness, a.Now.Sub(e.Deadline))
		case lock.EndReleased, lock.EndCancelled, lock.EndBroken, lock.EndRecovered:
			r.counts.released++
		}
	case lock.LeaderStarted:
		r.counts.leaders++
	case lock.WaitStarted, lock.WaitAttached, lock.WaitDetached, lock.WaitEnded, lock.KeyAdded, lock.KeyRetired, lock.KeyDropped,
		lock.PolicyChanged, lock.VersionRaised, lock.MemberChanged, lock.Recovered:
	}
}

// token holds for exclusive leases, which is all that these tests take: every grant's is larger.
func (r *record) token(index uint64, token lease.Token) {
	if token <= r.lastToken {
		r.t.Errorf("entry %d issues token %d after %d", index, token, r.lastToken)
	}
	r.lastToken = token
}

// beliefs is what clients may rightly believe about who holds what, on a perfect clock.
type beliefs struct {
	t *testing.T

	mu      sync.Mutex
	holders map[lease.Resource]belief
}

type belief struct {
	client lease.ClientID
	token  lease.Token
	until  time.Time
}

func newBeliefs(t *testing.T) *beliefs {
	return &beliefs{t: t, holders: make(map[lease.Resource]belief)}
}

// hold records that a client has been told that it holds a lease until then. Nobody else may believe so.
func (b *beliefs) hold(resource lease.Resource, client lease.ClientID, token lease.Token, until time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	other, ok := b.holders[resource]
	if ok && other.client != client && other.until.After(time.Now()) {
		b.t.Errorf("%s is granted to %s with token %d while %s may hold it with token %d for another %s",
			resource, client, token, other.client, other.token, time.Until(other.until))
	}
	if ok && token < other.token {
		b.t.Errorf("%s is granted to %s with token %d after token %d", resource, client, token, other.token)
	}
	b.holders[resource] = belief{client, token, until}
}

// drop records that a client gives up what it holds.
func (b *beliefs) drop(resource lease.Resource, client lease.ClientID) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if held := b.holders[resource]; held.client == client {
		held.until = time.Now()
		b.holders[resource] = held
	}
}
