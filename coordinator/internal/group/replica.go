package group

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/internal/logpb"
)

// Applied is one log entry as this replica applied it. The slices belong to the receiver of the call only
// while it runs, unless it copies them; nothing in them may be changed.
type Applied struct {
	Index    uint64
	Term     uint64
	Now      lock.LeaseTime
	Commands []lock.Command
	Results  []lock.Result // one for each command
	Events   []lock.Event
	Replayed bool // it was in this node's log before the node started
}

// replica is the state machine behind the interface of the Raft library. It decides nothing.
//
// An entry that it cannot read stops it: going on would make this replica differ from the others. From then
// on it applies nothing and takes no snapshot, and failed tells the owner to end the node.
type replica struct {
	waits     *waits
	onApply   func(Applied)
	onRestore func(index uint64)
	replayed  uint64 // last index that was in the log at start

	knows     uint32 // the newest cluster version that this program knows
	describes bool   // see Config.DescribeRenewals
	group     *Group // told of members; nil in tests of the replica alone

	mu      sync.RWMutex
	machine *lock.Machine

	info   atomic.Pointer[lock.Info] // of the state; looking at the state itself waits for the entry that is being applied
	now    atomic.Int64              // lease time of the state
	life   atomic.Uint32             // a life: that of the state, or of what it will be restored from
	behind atomic.Bool               // the last entry ended as much as one may: there is probably more that is overdue
	bytes  atomic.Int64              // of the entries applied since the last snapshot
	limit  int64                     // of bytes, at least
	spread float64                   // factor of limit and size; see Config.spread
	size   atomic.Int64              // of the last snapshot: bytes may come to as much
	grown  chan struct{}             // capacity 1: bytes has passed its limit
	rush   atomic.Bool               // the library is to end: snapshots are written without rests
	told   atomic.Uint64             // the last entry that onApply or onRestore was called for
	failed chan struct{}

	detached atomic.Bool // it belongs to a library that was cut off, and changes no more
	err      error       // set before failed is closed; written by the applying goroutine only
}

func newReplica(ws *waits, onApply func(Applied), onRestore func(uint64), bytes int64) *replica {
	r := &replica{
		waits: ws, onApply: onApply, onRestore: onRestore, machine: lock.New(),
		limit: bytes, spread: 1, grown: make(chan struct{}, 1), knows: lock.MaxVersion, failed: make(chan struct{}),
	}
	r.info.Store(new(r.machine.Info()))
	return r
}

// applied is what Apply returns to the leader's future.
type applied struct {
	index   uint64
	now     lock.LeaseTime
	results []lock.Result
	err     error
}

// Apply implements raft.FSM.
func (r *replica) Apply(log *raft.Log) any {
	if r.err != nil {
		return applied{err: r.err}
	}
	if r.detached.Load() {
		return applied{err: errDetached}
	}
	entry, err := unseal(log)
	if err == nil {
		err = r.accepts(entry)
	}
	if err != nil {
		r.fail(fmt.Errorf("log entry %d of term %d: %w", log.Index, log.Term, err))
		return applied{err: r.err}
	}
	results, events, now := r.run(log.Index, entry)
	if r.bytes.Add(int64(len(log.Data))) > int64(r.spread*float64(max(r.limit, r.size.Load()))) {
		select {
		case r.grown <- struct{}{}:
		default:
		}
	}
	if log.Index > r.told.Load() { // after a new start on the same stores some are applied again
		r.told.Store(log.Index)
		r.onApply(Applied{
			Index: log.Index, Term: log.Term, Now: now,
			Commands: entry.Commands, Results: results, Events: events,
			Replayed: log.Index <= r.replayed,
		})
	}
	if r.group != nil {
		r.group.membersChanged(events)
	}
	r.waits.applied(log.Index, now, events)
	return applied{index: log.Index, now: now, results: results}
}

func (r *replica) run(index uint64, entry lock.Entry) ([]lock.Result, []lock.Event, lock.LeaseTime) {
	r.mu.Lock()
	defer r.mu.Unlock()
	results, events := r.machine.Apply(index, entry)
	info := r.machine.Info()
	r.info.Store(&info)
	r.now.Store(int64(info.Now))
	r.life.Store(uint32(lifeOf(info.Incarnation)))
	r.behind.Store(overdue(events) >= max(info.Config.MaxExpiries, 1))
	return results, events, info.Now
}

// overdue counts what ended for want of time.
func overdue(events []lock.Event) int {
	n := 0
	for _, event := range events {
		switch e := event.(type) {
		case lock.LeaseEnded:
			if e.Cause == lock.EndExpired || e.Cause == lock.EndUnclaimed {
				n++
			}
		case lock.WaitEnded:
			if e.Cause == lock.WaitTimedOut || e.Cause == lock.WaitAbandoned {
				n++
			}
		case lock.LeaseGranted, lock.WaitStarted, lock.WaitAttached, lock.WaitDetached, lock.ResourceBroken, lock.KeyAdded, lock.LeaderStarted,
			lock.KeyRetired, lock.KeyDropped, lock.PolicyChanged, lock.VersionRaised, lock.MemberChanged, lock.Recovered:
		}
	}
	return n
}

// Snapshot implements raft.FSM. The copy is frozen here and written by another goroutine.
func (r *replica) Snapshot() (raft.FSMSnapshot, error) {
	if r.err != nil {
		return nil, r.err
	}
	if r.detached.Load() {
		return nil, errDetached
	}
	r.bytes.Store(0)
	snapshot, _ := r.freeze()
	return frozen{snapshot, r}, nil
}

// freeze copies the state, which nobody may look at meanwhile, and describes the copy.
func (r *replica) freeze() (*lock.Snapshot, lock.Info) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.machine.Snapshot(), r.machine.Info()
}

// Restore implements raft.FSM.
func (r *replica) Restore(from io.ReadCloser) error {
	machine, err := logpb.ReadSnapshot(from)
	if err != nil {
		if errors.Is(err, logpb.ErrUnknown) {
			r.fail(err)
		}
		return fmt.Errorf("read the snapshot: %w", err)
	}
	if r.detached.Load() {
		return errDetached
	}
	if version := machine.Info().Version; version > r.knows {
		r.fail(fmt.Errorf("the snapshot of entry %d: %w", machine.Info().Index, unknownVersion(version, r.knows)))
		return r.err
	}
	if err := restoring(from); err != nil {
		return err
	}
	info := machine.Info()
	r.mu.Lock()
	r.adopt(machine)
	r.info.Store(&info)
	r.now.Store(int64(info.Now))
	r.life.Store(uint32(lifeOf(info.Incarnation)))
	r.mu.Unlock()
	if r.group != nil {
		r.group.know(machine.Members())
	}
	if info.Index > r.told.Load() {
		r.told.Store(info.Index)
		r.onRestore(info.Index)
	}
	return nil
}

// adopt goes on with another machine. The caller holds mu.
func (r *replica) adopt(m *lock.Machine) {
	if r.describes {
		m.DescribeRenewals()
	}
	r.machine = m
}

var errDetached = errors.New("the library was cut off from the state")

// detach keeps a library that was cut off from changing the state.
func (r *replica) detach() { r.detached.Store(true) }

// reset is for a new start of the library, which restores and replays from its stores. The old one has ended.
func (r *replica) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.adopt(lock.New())
	r.info.Store(new(r.machine.Info()))
	r.now.Store(0)
	r.bytes.Store(0)
	r.behind.Store(false)
	r.detached.Store(false)
}

// fail stops the replica for good. Only the goroutine that applies and restores comes here.
func (r *replica) fail(err error) {
	if r.err == nil {
		r.err = err
		close(r.failed)
	}
}

// healthy reports whether the replica still applies.
func (r *replica) healthy() bool {
	select {
	case <-r.failed:
		return false
	default:
		return true
	}
}

// view runs fn on the state as it stands.
func (r *replica) view(fn func(*lock.Machine)) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	fn(r.machine)
}

func (r *replica) leaseTime() lock.LeaseTime { return lock.LeaseTime(r.now.Load()) }

// frozen writes a snapshot out.
type frozen struct {
	snapshot *lock.Snapshot
	replica  *replica
}

// Persist implements raft.FSMSnapshot.
func (f frozen) Persist(sink raft.SnapshotSink) error {
	out := newPaced(sink, &f.replica.rush)
	if err := logpb.WriteSnapshot(out, f.snapshot); err != nil {
		return fmt.Errorf("write the snapshot: %w", err) // the library cancels the sink
	}
	f.replica.size.Store(out.written)
	return nil // and closes it
}

// Release implements raft.FSMSnapshot.
func (frozen) Release() {}
