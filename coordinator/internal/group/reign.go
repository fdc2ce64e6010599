package group

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// reign is this node's leadership in one term: a proposer, and a collector of what was proposed.
type reign struct {
	group   *Group
	node    *raft.Raft
	term    uint64
	serving chan struct{} // closed once the first entry of the term is applied
	told    bool          // the succession's own

	cancel  context.CancelFunc
	done    chan struct{} // closed when both goroutines have ended
	slots   chan struct{} // one for each entry in flight
	sent    chan *entry   // in the order of the log
	more    chan struct{} // capacity 1: an entry left something overdue behind
	clock   leaseClock
	tick    time.Duration // the longest time without an entry while something timed is pending
	lastPut time.Duration // when the last entry was proposed

	mu     sync.Mutex
	flying map[*entry]struct{} // those whose callers have no answer yet
}

// entry is one log entry on its way.
type entry struct {
	system    []lock.Command // the leader's own, before the callers'
	proposals []*proposal
	reads     []*reading
	bytes     int
	stamped   time.Duration
	future    raft.ApplyFuture
}

// newReign begins a term. Commands queue from now on and are proposed once the first entry is applied.
func (g *Group) newReign(node *raft.Raft, term uint64) *reign {
	ctx, cancel := context.WithCancel(context.Background())
	r := &reign{
		group: g, node: node, term: term,
		serving: make(chan struct{}),
		cancel:  cancel,
		done:    make(chan struct{}),
		slots:   make(chan struct{}, g.config.Limits.InFlight),
		sent:    make(chan *entry, g.config.Limits.InFlight),
		more:    make(chan struct{}, 1),
		flying:  make(map[*entry]struct{}),
	}
	g.queue.open()
	g.waits.open()
	go r.run(ctx)
	return r
}

// depose ends a reign whose leadership is lost. It waits for what is in flight: the library answers that
// when it leaves the leader's state.
func (r *reign) depose() {
	r.cancel()
	deposed := &Error{Kind: NotLeader, Err: errDeposed}
	r.group.queue.close(deposed)
	r.group.waits.close(&Error{Kind: Unknown, Err: errDeposed}, deposed)
	<-r.done
}

// abandon ends a reign at once, with nothing known of what is in flight: it does not wait for the library, which waits
// for the disk.
func (r *reign) abandon(cause error) {
	r.cancel()
	r.group.queue.close(&Error{Kind: NotLeader, Err: cause})
	r.group.waits.close(&Error{Kind: Unknown, Err: cause}, &Error{Kind: NotLeader, Err: cause})
	r.mu.Lock()
	flying := slices.Collect(maps.Keys(r.flying))
	r.mu.Unlock()
	for _, e := range flying {
		r.fail(e, fmt.Errorf("%w: %w", raft.ErrLeadershipLost, cause))
	}
}

// fly says that an entry's callers have no answer yet.
func (r *reign) fly(e *entry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flying[e] = struct{}{}
}

// land reports whether an entry's callers have no answer yet; from now on they count as answered.
func (r *reign) land(e *entry) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, flying := r.flying[e]
	delete(r.flying, e)
	return flying
}

// retire ends a reign while it leads, and waits for what is in flight, but not longer than the bound: a hung
// log store answers nothing.
func (r *reign) retire(bound time.Duration) {
	r.cancel()
	timer := time.NewTimer(bound)
	defer timer.Stop()
	select {
	case <-r.done:
	case <-timer.C:
		r.group.config.Logger.Warn("entries in flight were not answered in time", "term", r.term)
		r.abandon(errStopped)
	}
}

func (r *reign) run(ctx context.Context) {
	collected := make(chan struct{})
	go func() {
		defer close(collected)
		for e := range r.sent {
			r.collect(e)
			<-r.slots
		}
	}()
	r.propose(ctx)
	close(r.sent)
	<-collected
	close(r.done)
}

// propose is the one goroutine that makes entries.
func (r *reign) propose(ctx context.Context) {
	if !r.begin(ctx) {
		return
	}
	close(r.serving)
	timer := time.NewTimer(r.tick)
	defer timer.Stop()
	for {
		due := false
		select {
		case <-ctx.Done():
			return
		case <-r.group.queue.ready:
		case <-r.more:
			due = true
		case <-timer.C:
			rest := r.tick - (r.group.instant() - r.lastPut)
			due = rest <= 0 && r.timed()
			if rest <= 0 {
				rest = r.tick
			}
			timer.Reset(rest)
		}
		select {
		case <-ctx.Done():
			return
		case r.slots <- struct{}{}:
		}
		if !r.next(due) {
			<-r.slots
		}
	}
}

// timed reports whether lease time must go on without anybody asking.
func (r *reign) timed() (timed bool) {
	r.group.replica.view(func(m *lock.Machine) { timed = m.Timed() })
	return timed
}

// beginPause is the pause between two attempts to begin a term.
const beginPause = 20 * time.Millisecond

// begin gets the first entry of the term applied. It goes on until that is so or the reign is over: there are
// refusals that do not end a term, a transfer to another node that fails for one.
func (r *reign) begin(ctx context.Context) bool {
	for {
		err := r.tryBegin(ctx)
		if err == nil {
			return true
		}
		r.group.config.Logger.Info("the term has not begun", "term", r.term, "error", err)
		select {
		case <-ctx.Done():
			return false
		case <-time.After(beginPause):
		}
	}
}

// tryBegin waits until everything of earlier terms is applied here, starts the clock from that state, and
// proposes the first entry of the term.
func (r *reign) tryBegin(ctx context.Context) error {
	if err := r.node.Barrier(0).Error(); err != nil {
		return fmt.Errorf("barrier: %w", err)
	}
	var info lock.Info
	r.group.replica.view(func(m *lock.Machine) { info = m.Info() })
	minTTL := r.group.config.Lock.MinTTL
	if info.Initialised {
		minTTL = info.Config.MinTTL
	}
	limit := clockLimit(minTTL)
	r.clock = startLeaseClock(info.Now, r.group.instant(), limit)
	r.tick = min(r.group.config.Timing.Tick, limit/2)

	commands, err := r.firstCommands(ctx, info)
	if err != nil {
		return err
	}
	first := &entry{system: commands}
	if err := r.put(first); err != nil {
		return fmt.Errorf("first entry: %w", err)
	}
	if _, err := r.settle(first); err != nil {
		return fmt.Errorf("first entry: %w", err)
	}
	return nil
}

// firstCommands begin a term: the cluster if there is none, the leader, and its key if it is not known.
func (r *reign) firstCommands(ctx context.Context, info lock.Info) ([]lock.Command, error) {
	config := r.group.config
	var commands []lock.Command
	if !info.Initialised {
		name, err := config.Name(ctx)
		if err != nil {
			return nil, fmt.Errorf("name of the cluster: %w", err)
		}
		first := lock.Init{Cluster: name, Version: config.Version, Config: config.Lock}
		if config.Version < 2 {
			first.Config.MaxTenantRequests = 0 // not known there
		}
		commands = append(commands, first)
	}
	commands = append(commands, lock.NewLeader{Node: config.Node, Term: r.term})
	if key := *r.group.key.Load(); key.KeyID != "" && !r.group.Signable() {
		commands = append(commands, key)
	}
	return commands, nil
}

// next proposes what has gathered, or a tick if one is due or reads wait for an entry. It reports whether an
// entry is in flight.
func (r *reign) next(tick bool) bool {
	limits := r.group.config.Limits
	e := &entry{}
	e.proposals, e.reads = r.group.queue.take(limits.BatchCommands, limits.BatchBytes)
	r.early(e)
	if !e.wanted(tick) {
		return false
	}
	r.fly(e)
	err := r.put(e)
	if err != nil {
		r.weed(e)
		if !e.wanted(tick) {
			r.land(e)
			return false
		}
		err = r.put(e)
	}
	if err != nil {
		r.fail(e, err)
		return false
	}
	r.sent <- e // as many places as there are slots: never blocks
	return true
}

// wanted reports whether the entry is to be proposed. One for reads alone or for a tick carries a tick.
func (e *entry) wanted(tick bool) bool {
	if len(e.proposals) > 0 {
		return true
	}
	if !tick && len(e.reads) == 0 {
		return false
	}
	e.system = []lock.Command{lock.Tick{}}
	return true
}

// early takes the commands that the cluster's version does not have yet out of an entry and answers them: a member that does
// not know them would stop. The version never goes back, and nobody else proposes in this term.
func (r *reign) early(e *entry) {
	version := r.group.replica.info.Load().Version // without waiting for the entry before
	if version >= lock.MaxVersion {
		return
	}
	e.proposals = slices.DeleteFunc(e.proposals, func(p *proposal) bool {
		needs := lock.Needs(p.cmd)
		if needs <= version {
			return false
		}
		r.group.config.Observer.CommandRefused(VersionTooLow)
		p.finish(answer{err: &Error{Kind: VersionTooLow, Err: fmt.Errorf("it needs cluster version %d, the cluster has %d", needs, version)}})
		return true
	})
}

// weed takes the commands that cannot be encoded out of an entry and answers them, so that they fail alone.
func (r *reign) weed(e *entry) {
	e.proposals = slices.DeleteFunc(e.proposals, func(p *proposal) bool {
		_, err := seal(r.term, lock.Entry{Commands: []lock.Command{p.cmd}})
		if err == nil {
			return false
		}
		r.group.config.Logger.Error("a command cannot be encoded", "command", fmt.Sprintf("%T", p.cmd), "error", err)
		r.group.config.Observer.CommandRefused(Malformed)
		p.finish(answer{err: &Error{Kind: Malformed, Err: err}})
		return true
	})
}

// put stamps and encodes an entry and hands it to the library; an error means that it could not be encoded. It blocks while the library's loop is busy,
// with a slow log store say: nothing is refused for that, and the loop answers as soon as it has lost its
// leadership or is shut down.
func (r *reign) put(e *entry) error {
	e.stamped = r.group.instant()
	r.lastPut = e.stamped
	stamp := r.clock.stamp(e.stamped, r.group.replica.leaseTime())
	if r.group.config.stamped != nil {
		r.group.config.stamped(r.term, stamp)
	}
	log, err := seal(r.term, lock.Entry{Now: stamp, Commands: e.commands()})
	if err != nil {
		return err
	}
	e.bytes = len(log.Data)
	e.future = r.node.ApplyLog(log, 0)
	return nil
}

// settle waits for an entry's result.
func (r *reign) settle(e *entry) (applied, error) {
	if err := e.future.Error(); err != nil {
		return applied{}, err
	}
	result, ok := e.future.Response().(applied)
	if !ok {
		return applied{}, errNoResponse
	}
	return result, result.err
}

// collect answers the callers of an entry.
func (r *reign) collect(e *entry) {
	result, err := r.settle(e)
	if err != nil {
		r.fail(e, err)
		return
	}
	if !r.land(e) {
		return // the reign was abandoned
	}
	r.group.config.Observer.EntryCommitted(len(e.proposals)+len(e.system), e.bytes, r.group.instant()-e.stamped)
	own := result.results[len(e.system):]
	if r.group.replica.behind.Load() {
		select {
		case r.more <- struct{}{}:
		default:
		}
	}
	for i, p := range e.proposals {
		p.finish(answer{outcome: Outcome{Index: result.index, Now: result.now, Result: own[i]}})
	}
	for _, read := range e.reads {
		read.done <- answer{}
	}
}

// fail answers the callers of an entry that has no result. A read has no effect whatever became of it.
func (r *reign) fail(e *entry, cause error) {
	if !r.land(e) {
		return // the reign was abandoned
	}
	kind := classify(cause)
	r.group.config.Observer.EntryFailed(kind)
	for _, p := range e.proposals {
		p.finish(answer{err: &Error{Kind: kind, Err: cause}})
	}
	for _, read := range e.reads {
		read.done <- answer{err: &Error{Kind: NotLeader, Err: cause}}
	}
}

func (e *entry) commands() []lock.Command {
	commands := make([]lock.Command, 0, len(e.system)+len(e.proposals))
	commands = append(commands, e.system...)
	for _, p := range e.proposals {
		commands = append(commands, p.cmd)
	}
	return commands
}
