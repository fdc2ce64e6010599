// Package audit writes what the cluster decided: one JSON line for each decision, in log order.
//
// Each Raft group has its own log, so it has an audit log of its own; the lines of groups but the first name it, and may be
// mixed. Every line covers the log indexes "from" to "index"; the decision is that of "index", and those before it had
// none. So a reader checks that nothing is missing by one rule: each line begins where the one before it ended (lines
// of one entry share its index). What could not be written is said in a line of its own, decision "lost". Every node
// writes all decisions, so a range that one node lost is found at another. A node whose log began anew, because its data
// was removed, says so in a line with the decision "restarted" and counts on from its index.
//
// The log never waits for the audit file. Entries go through a bounded buffer; when that is full, because the disk
// is full or hangs, entries are dropped, counted and logged, and once writing works again a "lost" line says which.
// Lines are given to the operating system when the buffer is empty and are not synced one by one: after a crash of
// the process nothing is missing, and after a power cut the entries since the last snapshot are written again.
package audit

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// Bounds of what may wait for the disk: log entries, and the decisions in them.
const (
	buffered          = 4096
	bufferedDecisions = 1 << 19 // some 150 MB; a single entry may always wait
)

// quiet is how many log indexes without a decision may pass before a line says so.
const quiet = 1000

// Config is what a Log is made from.
type Config struct {
	Path     string
	Group    uint16 // of the log: each Raft group has an audit log of its own, gap-free by its index
	MaxBytes int64  // of one file; then it is renamed to PATH.INDEX and a new one begins
	Keep     int    // renamed files that are kept
	Node     string
	Renewals bool // write renewals that worked, too; for those of a lock.RenewMany its Grants are needed

	Dropped func(entries int) // told how many entries are missing that had decisions, or may have had some; may be nil
	Logger  *slog.Logger
}

// Log is the audit log of one group on one node. Applied and Restored are called by the replica, in log order, from one goroutine;
// Run writes.
type Log struct {
	config  Config
	queue   chan item
	waiting atomic.Int64 // decisions in queue
	seen    uint64       // last index that Applied or Restored was called for; theirs alone
	dropped atomic.Bool
}

// item is a log entry, or a restored snapshot if applied is nil.
type item struct {
	after   uint64 // the index that was seen before it, 0 for the first: what lies between it and the last line is lost
	index   uint64
	applied *group.Applied
}

// decisions are as many as the item keeps in memory.
func (i item) decisions() int64 {
	if i.applied == nil {
		return 0
	}
	return int64(len(i.applied.Results) + len(i.applied.Events))
}

// New checks the configuration and does no I/O.
func New(config Config) (*Log, error) {
	if config.Path == "" || config.MaxBytes <= 0 || config.Keep <= 0 {
		return nil, errors.New("audit: a path, a size and a number of files are needed")
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Dropped == nil {
		config.Dropped = func(int) {}
	}
	return &Log{config: config, queue: make(chan item, buffered)}, nil
}

// Applied takes an entry that the replica applied. It does not block.
func (l *Log) Applied(a group.Applied) {
	a.Commands, a.Results = l.worthKeeping(a.Commands, a.Results)
	a.Events = append(a.Events[:0:0], a.Events...)
	l.offer(item{index: a.Index, applied: &a})
}

// worthKeeping copies the commands whose results may give lines. Most are renewals, which do not: thousands of them must
// not be kept while the disk is slow.
func (l *Log) worthKeeping(commands []lock.Command, results []lock.Result) ([]lock.Command, []lock.Result) {
	var keptCommands []lock.Command
	var keptResults []lock.Result
	for i, result := range results {
		if saysNothing(result, l.config.Renewals) {
			continue
		}
		keptCommands, keptResults = append(keptCommands, commands[i]), append(keptResults, result)
	}
	return keptCommands, keptResults
}

// saysNothing reports whether a result gives no line, whatever it is of.
func saysNothing(result lock.Result, renewals bool) bool {
	switch r := result.(type) {
	case lock.Renewed:
		return !renewals
	case lock.RenewedMany:
		return !renewals && !slices.ContainsFunc(r.Renewals, func(each lock.Renewal) bool { return each.Refused != nil })
	case lock.Granted, lock.Waiting, lock.Released, lock.Broken, lock.Done: // these show as events, or change nothing
		return true
	case lock.Cancelled:
		return r.Was != lock.RequestUnknown
	case lock.Refused:
	}
	return false
}

// Restored says that the replica's state was replaced by that of a snapshot, whose last entry had this index.
func (l *Log) Restored(index uint64) { l.offer(item{index: index}) }

func (l *Log) offer(i item) {
	i.after, l.seen = l.seen, i.index
	n := i.decisions()
	if waiting := l.waiting.Add(n); waiting == n || waiting <= bufferedDecisions {
		select {
		case l.queue <- i:
			return
		default:
		}
	}
	l.waiting.Add(-n)
	l.drop(i)
}

// drop counts an entry for which there is no room.
func (l *Log) drop(i item) {
	l.config.Dropped(1)
	if !l.dropped.Swap(true) {
		l.config.Logger.Error("audit log does not keep up, entries are dropped", "index", i.index)
	}
}

// take writes what has waited.
func (l *Log) take(w *writer, i item) {
	w.take(i)
	l.waiting.Add(-i.decisions())
}

// Run writes until ctx is done and what was taken by then is written. It fails only if the file cannot be opened;
// later faults are logged, and bridged by "lost" lines.
func (l *Log) Run(ctx context.Context) error {
	out, err := openFile(l.config)
	if err != nil {
		return err
	}
	w := &writer{config: l.config, out: out, covered: out.last}
	for {
		select {
		case i := <-l.queue:
			l.take(w, i)
			continue
		default:
		}
		w.flush()
		l.dropped.Store(false)
		select {
		case i := <-l.queue:
			l.take(w, i)
		case <-ctx.Done():
			return l.drain(w)
		}
	}
}

func (l *Log) drain(w *writer) error {
	for {
		select {
		case i := <-l.queue:
			l.take(w, i)
		default:
			w.finish()
			return nil
		}
	}
}

// writer turns items into lines.
type writer struct {
	config   Config
	out      *file
	covered  uint64 // up to this index everything is in the lines written or buffered
	passed   uint64 // up to this index nothing was decided since; 0 or above covered
	gathered int    // entries whose lines are buffered
	lines    []line // room for those of one entry
}

// maxKept bounds the lines for which room is kept.
const maxKept = 4096

func (w *writer) take(i item) {
	if i.index <= w.covered {
		if i.applied == nil || i.applied.Replayed {
			return // written before
		}
		w.restarted(i.index)
	}
	if i.applied == nil {
		w.lost(i.index, "the state was restored from a snapshot")
		return
	}
	if i.after > max(w.covered, w.passed) {
		w.lost(i.after, "the lines were not written in time")
	}
	lines := linesOf(w.lines[:0], i.applied, w.config)
	if cap(lines) <= maxKept {
		w.lines = lines // they are written before this returns
	}
	if len(lines) == 0 {
		w.passed = i.index
		if i.index-w.covered >= quiet {
			w.pass()
		}
		return
	}
	for n := range lines {
		lines[n].From, lines[n].More = i.index, n < len(lines)-1
	}
	lines[0].From = w.covered + 1
	w.gathered++
	w.write(i.index, lines...)
}

// lost says that the indexes after the last line and up to this one are not in the file.
func (w *writer) lost(index uint64, cause string) {
	if index > w.covered {
		w.write(index, line{From: w.covered + 1, Index: index, Decision: "lost", Cause: cause})
	}
}

// restarted says that the log is another one than that of the last line: an entry that is new to this node has an index
// that the file has already. The node's data was removed, or belongs to another cluster, and the file was not.
func (w *writer) restarted(index uint64) {
	w.write(index-1, line{From: index - 1, Index: index - 1, Decision: "restarted", Cause: "the node's log began anew"})
}

// pass says that nothing was decided since the last line.
func (w *writer) pass() {
	if w.passed > w.covered {
		w.write(w.passed, line{From: w.covered + 1, Index: w.passed, Decision: "none"})
	}
}

func (w *writer) write(index uint64, lines ...line) {
	w.covered, w.passed = index, 0
	w.settle(w.out.add(index, lines))
}

func (w *writer) flush() { w.settle(w.out.flush()) }

// settle counts what the file has taken, or has not. Then the writer goes back to what the file holds for certain; the
// next line that works is preceded by a "lost" one.
func (w *writer) settle(ok bool) {
	switch {
	case !ok:
		w.config.Dropped(w.gathered)
		w.covered, w.passed, w.gathered = w.out.last, 0, 0
	case w.out.last == w.covered:
		w.gathered = 0
	}
}

func (w *writer) finish() {
	w.pass()
	w.flush()
	w.out.close()
}
