// Package feed keeps what lately became true of the resources, in the order of each group's log, and hands it to
// those who watch. It is fed by the replica of its own node, never holds it up, and never drops anything silently:
// who reads too slowly, or comes back too late, is told that changes were missed.
//
// There is one bounded ring for each group and no buffer for each watcher: a watcher is a few positions in the rings.
package feed

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// Config is what a Feed is made from. Zero fields take their default.
type Config struct {
	Groups   int // number of groups; 1
	Entries  int // changes kept of each group; 65,536
	Bytes    int // of the changes kept of all groups together; 16 MiB
	Watchers int // at most so many at once; 1,000
}

// Feed is that of one node. Its methods may be called from any goroutine.
type Feed struct {
	rings    []*ring
	limit    int64
	watchers atomic.Int64

	news chan struct{} // capacity 1: something changed since the watchers were last woken

	mu   sync.Mutex
	wake chan struct{} // closed to wake the watchers
}

// New makes a feed that has seen nothing yet.
func New(config Config) *Feed {
	set(&config.Groups, 1)
	set(&config.Entries, 1<<16)
	set(&config.Bytes, 16<<20)
	set(&config.Watchers, 1000)
	f := &Feed{limit: int64(config.Watchers), news: make(chan struct{}, 1), wake: make(chan struct{})}
	for g := range config.Groups {
		f.rings = append(f.rings, &ring{
			group: uint16(g), maxEntries: config.Entries, maxBytes: config.Bytes / config.Groups,
		})
	}
	return f
}

func set(field *int, value int) {
	if *field == 0 {
		*field = value
	}
}

// Applied takes an entry that the group's replica applied. It does not block. Entries that a restart applies again are
// taken like others: who resumes from a place before them has not seen them.
func (f *Feed) Applied(group uint16, index uint64, now lock.LeaseTime, events []lock.Event) {
	if slices.ContainsFunc(events, beginsAnew) {
		f.Restored(group, index)
		return
	}
	if f.rings[group].append(index, now, events) {
		f.tell()
	}
}

// beginsAnew reports whether an event says that the cluster lives another life: what was before it is no past of it.
func beginsAnew(event lock.Event) bool {
	_, ok := event.(lock.Recovered)
	return ok
}

// Restored says that the group's state was replaced by one at this index: what led to it is not known here.
func (f *Feed) Restored(group uint16, index uint64) {
	f.rings[group].restart(index)
	f.tell()
}

func (f *Feed) tell() {
	select {
	case f.news <- struct{}{}:
	default: // the news before it has not gone out yet, and does for both
	}
}

// How often the watchers are woken at most. The first change goes out at once; under load they find several at a time,
// and more of them wake less often, so that they cost the node a bounded part of its time.
const (
	pace           = time.Millisecond
	pacePerWatcher = 20 * time.Microsecond
)

// Run wakes the watchers until ctx is done. Without it they see news only when they look by themselves.
func (f *Feed) Run(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-f.news:
		case <-ctx.Done():
			return
		}
		f.mu.Lock()
		close(f.wake)
		f.wake = make(chan struct{})
		f.mu.Unlock()
		pause.Reset(pace + time.Duration(f.watchers.Load())*pacePerWatcher)
		select {
		case <-pause.C:
		case <-ctx.Done():
			return
		}
	}
}

// ErrTooMany says that the feed has as many watchers as it may.
var ErrTooMany = errors.New("feed: too many watchers")

// Watchers is how many there are.
func (f *Feed) Watchers() int { return int(f.watchers.Load()) }

// End is how far the node has seen each group's log.
func (f *Feed) End() []Position {
	at := make([]Position, len(f.rings))
	for g, r := range f.rings {
		at[g] = r.end()
	}
	return at
}

// Watcher is one reader of a feed. It belongs to one goroutine.
type Watcher struct {
	feed   *Feed
	prefix string
	show   func(lease.Resource) bool
	at     []Position
	turn   int // the group that is looked at first
	closed bool
}

// Watch begins to read the changes of the resources with a prefix that show lets pass (nil: all), after the given places,
// one for each group. A place may be ahead of what this node has seen; then nothing is reported until it is passed. The
// only error is ErrTooMany.
func (f *Feed) Watch(prefix string, show func(lease.Resource) bool, from []Position) (*Watcher, error) {
	if f.watchers.Add(1) > f.limit {
		f.watchers.Add(-1)
		return nil, ErrTooMany
	}
	return &Watcher{feed: f, prefix: prefix, show: show, at: append([]Position(nil), from...)}, nil
}

// Close ends the reading. It may be called more than once.
func (w *Watcher) Close() {
	if !w.closed {
		w.closed = true
		w.feed.watchers.Add(-1)
	}
}

// Changed returns a channel that is closed when there is news. Ask for it before Read.
func (w *Watcher) Changed() <-chan struct{} {
	w.feed.mu.Lock()
	defer w.feed.mu.Unlock()
	return w.feed.wake
}

// At is how far the watcher has read each group.
func (w *Watcher) At() []Position { return append([]Position(nil), w.at...) }

// Reached reports whether the watcher has read as far as a place in each group.
func (w *Watcher) Reached(goal []Position) bool {
	for g := range w.at {
		if w.at[g].before(goal[g]) {
			return false
		}
	}
	return true
}

// Batch is what a watcher reads at once.
type Batch struct {
	Changes []Change // those of one group in the order of its log
	Missed  bool     // changes were missed before these; At is then the end of what the node knows
	More    bool     // there is more already
}

// Read takes what there is, without blocking: about so many changes and so many bytes of names at most.
func (w *Watcher) Read(most, mostBytes int) Batch {
	var b Batch
	w.turn++ // so that a busy group cannot keep the others' changes back
	for i := range w.at {
		g := (w.turn + i) % len(w.at)
		p := w.feed.rings[g].read(w.at[g], w.prefix, w.show, most-len(b.Changes), mostBytes)
		if p.missed {
			w.catchUp()
			return Batch{Missed: true, More: true}
		}
		w.at[g] = p.next
		b.Changes = append(b.Changes, p.changes...)
		b.More = b.More || p.more
		mostBytes -= p.bytes
		if len(b.Changes) >= most || mostBytes <= 0 {
			b.More = b.More || i < len(w.at)-1
			return b
		}
	}
	return b
}

// catchUp puts the watcher at the end of what the node knows, in every group; where it is ahead of that it stays.
func (w *Watcher) catchUp() {
	for g, r := range w.feed.rings {
		w.at[g] = later(w.at[g], r.end())
	}
}

// Reset puts the watcher at the end of what the node knows, also where it was ahead: for logs that began anew.
func (w *Watcher) Reset() { w.at = w.feed.End() }
