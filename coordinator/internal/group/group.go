// Package group is one Raft group of the coordinator: it replicates the commands of the pure state machine
// in package lock, stamps them with lease time, and answers each caller with the result of its own command.
//
// A Group is made with New and lives while Run does. Propose and Read work on the node that leads; the
// others say who that is. Nothing here decides about locks.
package group

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// Outcome is a result and the committed entry that it came from. Now is that entry's lease time: what
// remains of a lease is its deadline minus this Now, never minus anything that a leader keeps in memory.
type Outcome struct {
	Index  uint64
	Now    lock.LeaseTime
	Result lock.Result // nil for a read
}

// Group is one node's part in a Raft group. Its methods may be called from any goroutine, also before Run
// and after it.
type Group struct {
	config  Config
	start   time.Time // origin of the monotonic instants
	queue   *queue
	waits   *waits
	replica *replica

	raft       atomic.Pointer[raft.Raft] // nil before Run has opened the stores
	leadership leadership

	key        atomic.Pointer[lock.PutKey] // the node's ticket key: Config.Key, then what SetKey says
	sightings  *sightings
	contacts   atomic.Pointer[contacts] // of the muzzle in use; never nil
	membership sync.Mutex               // one change of the members at a time
	port       *Port                    // nil if the transport was given; set before the library runs
	memory     atomic.Int32             // a memory
	reasons    reasons                  // why the node does not take part

	muzzle   atomic.Pointer[muzzle]      // the one in use; nil before the stores are open
	muzzled  chan struct{}               // capacity 1: the muzzle has changed
	replaced atomic.Pointer[replacement] // the state is of a life that was given up
	lost     chan string                 // nodes whose last connection has ended
}

// New validates the configuration and makes a group that does not run yet.
func New(config Config) (*Group, error) {
	config, err := config.normalise()
	if err != nil {
		return nil, err
	}
	ws := newWaits(config.Limits.Waits)
	g := &Group{
		config:     config,
		start:      time.Now(),
		queue:      newQueue(config.Limits),
		waits:      ws,
		replica:    newReplica(ws, config.OnApply, config.OnRestore, config.Limits.SnapshotBytes),
		leadership: leadership{changed: make(chan struct{})},
		sightings:  newSightings(config),
		muzzled:    make(chan struct{}, 1),
		lost:       make(chan string, 16),
	}
	g.SetKey(config.Key)
	g.contacts.Store(newContacts())
	g.replica.group, g.replica.knows, g.replica.describes = g, config.MaxVersion, config.DescribeRenewals
	g.replica.spread = config.spread()
	g.replica.adopt(g.replica.machine) // nobody else has it yet
	return g, nil
}

// instant is the monotonic time since the group was made.
func (g *Group) instant() time.Duration { return time.Since(g.start) }

// Propose gets cmd into the log and returns its result. It blocks until the command is applied here, or ctx
// ends, or this node can no longer tell; the error is then always an *Error, whose Kind says whether the
// command may have been applied. A refusal by the state machine is a result and not an error.
func (g *Group) Propose(ctx context.Context, cmd lock.Command) (Outcome, error) {
	p := newProposal(cmd, leasesOf{g.replica})
	if refusal := g.queue.push(p); refusal != nil {
		g.config.Observer.CommandRefused(refusal.Kind)
		return Outcome{}, g.hint(refusal)
	}
	select {
	case a := <-p.done:
		return g.answered(a)
	case <-ctx.Done():
	}
	if g.queue.withdraw(p) {
		return Outcome{}, g.hint(&Error{Kind: Abandoned, Err: context.Cause(ctx)})
	}
	select {
	case a := <-p.done: // it was answered in the same moment
		return g.answered(a)
	default:
		return Outcome{}, g.hint(&Error{Kind: Unknown, Err: context.Cause(ctx)})
	}
}

// Read runs fn on a state that contains everything that was acknowledged before the call, anywhere: an entry
// that was proposed after the call has been applied. It works only on the leader. Outcome says which state fn
// saw. fn must not keep the machine, and holds up the replica while it runs. An error means that fn did not run.
func (g *Group) Read(ctx context.Context, fn func(*lock.Machine)) (Outcome, error) {
	r := &reading{done: make(chan answer, 1)}
	if refusal := g.queue.pushRead(r); refusal != nil {
		return Outcome{}, g.hint(refusal)
	}
	select {
	case a := <-r.done:
		if a.err != nil {
			return Outcome{}, g.hint(a.err)
		}
	case <-ctx.Done():
		g.queue.withdrawRead(r)
		return Outcome{}, g.hint(&Error{Kind: Abandoned, Err: context.Cause(ctx)})
	}
	var seen Outcome
	g.replica.view(func(m *lock.Machine) {
		info := m.Info()
		seen = Outcome{Index: info.Index, Now: info.Now}
		fn(m)
	})
	return seen, nil
}

// View runs fn on this replica's state as it stands, which may be older than what others have seen. fn must
// not keep the machine, and holds up the replica while it runs.
func (g *Group) View(fn func(*lock.Machine)) { g.replica.view(fn) }

// Freeze returns a copy of this replica's state as it stands, which the caller may read at leisure, and what View would
// have said of it. It costs one pointer for each page of records and holds up the replica and every View meanwhile.
func (g *Group) Freeze() (*lock.Snapshot, lock.Info) { return g.replica.freeze() }

// Await registers for the end of the wait of one request. Register before proposing the acquire, or the end
// may pass unseen, and Close in any case. On a node that does not lead, or past the bound on waits, the Wait
// has its End at once.
func (g *Group) Await(identity lease.Identity, client lease.ClientID, request lease.RequestID) *Wait {
	return g.waits.add(waitKey{identity, client, request})
}

// Glance describes this replica's state as View would, after some entry that was applied before. Unlike View it does not wait for
// the entry that is being applied, and does not hold up the next.
func (g *Group) Glance() lock.Info { return *g.replica.info.Load() }

// Signable reports whether the state knows this node's own ticket key, so that what it signs can be verified.
func (g *Group) Signable() bool {
	found := false
	g.replica.view(func(m *lock.Machine) { found = hasKey(m, *g.key.Load()) })
	return found
}

// SetKey replaces Config.Key, for the terms that begin from now on. Whoever calls it has registered the key already.
func (g *Group) SetKey(key lock.PutKey) { g.key.Store(&key) }

func hasKey(m *lock.Machine, key lock.PutKey) bool {
	for _, k := range m.Keys() {
		if k.KeyID == key.KeyID && k.Public.Equal(key.Public) {
			return true
		}
	}
	return false
}

// leasesOf tells of the leases of a replica, waiting for the entry that is being applied.
type leasesOf struct{ replica *replica }

func (l leasesOf) Holder(id lease.ID) (client lease.ClientID, ok bool) {
	l.replica.view(func(m *lock.Machine) { client, ok = m.Holder(id) })
	return client, ok
}

func (l leasesOf) Deadline(id lease.ID) (deadline lock.LeaseTime, ok bool) {
	l.replica.view(func(m *lock.Machine) { deadline, ok = m.Deadline(id) })
	return deadline, ok
}

// hint is e with the leader that this node knows of.
func (g *Group) hint(e *Error) *Error {
	hinted := *e
	hinted.Leader, _ = g.Leader()
	return &hinted
}

func (g *Group) answered(a answer) (Outcome, error) {
	if a.err != nil {
		return Outcome{}, g.hint(a.err)
	}
	return a.outcome, nil
}

// leadership is who leads, as this node knows it.
type leadership struct {
	mu      sync.Mutex
	leader  string
	self    bool
	term    uint64
	changed chan struct{}
}

// Leader is the id of the node that leads, empty if this node knows of none, and whether it is this one.
func (g *Group) Leader() (id string, self bool) {
	g.leadership.mu.Lock()
	defer g.leadership.mu.Unlock()
	return g.leadership.leader, g.leadership.self
}

// Changed is closed at the next change of what Leader returns. Ask for it before Leader.
func (g *Group) Changed() <-chan struct{} {
	g.leadership.mu.Lock()
	defer g.leadership.mu.Unlock()
	return g.leadership.changed
}

// set records who leads and reports whether that is news.
func (l *leadership) set(leader string, self bool, term uint64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	news := l.leader != leader || l.self != self || (self && l.term != term)
	l.leader, l.self, l.term = leader, self, term
	if news {
		close(l.changed)
		l.changed = make(chan struct{})
	}
	return news
}
