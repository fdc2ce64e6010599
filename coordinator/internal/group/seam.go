package group

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// seam joins a log and its snapshots to one history, between the library and its stores.
//
// A snapshot that a leader sends replaces what this node has up to the snapshot's last entry. The library keeps the entries
// that it replaces. Where they are of another history, left by a leader that was deposed, the next entries do not fit
// them, the leader is told so, and it sends the same snapshot again, for ever (hashicorp/raft issue 697); and if this node
// should lead one day, it would send them to others.
//
// So when a snapshot is restored, whatever it replaces leaves the log, unless the log has the snapshot's own last entry; and
// from then on the snapshot answers for what it covers: muzzle.fit. Both are done anew at each start, by the library's
// restore of the newest snapshot, so that a crash between two steps leaves nothing behind.
type seam struct {
	raft.LogStore
	raft.SnapshotStore
	covered atomic.Uint64 // the last entry that is in a snapshot and in the state; 0: none
	off     bool          // for the test that shows the fault
}

// Create implements raft.SnapshotStore.
func (s *seam) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration, configurationIndex uint64,
	transport raft.Transport,
) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, configuration, configurationIndex, transport)
	if err != nil {
		return nil, err
	}
	return &seamSink{SnapshotSink: sink, seam: s, index: index, term: term}, nil
}

// seamSink is a snapshot while it is written.
type seamSink struct {
	raft.SnapshotSink
	seam        *seam
	index, term uint64
}

// Close implements raft.SnapshotSink. A snapshot of this node's own state covers from here on; one that a leader sends does
// so when it is restored.
func (s *seamSink) Close() error {
	if err := s.SnapshotSink.Close(); err != nil {
		return err
	}
	has, err := s.seam.has(s.index, s.term)
	if err != nil {
		return err
	}
	if has {
		s.seam.cover(s.index)
	}
	return nil
}

// has reports whether the log has that entry of that term.
func (s *seam) has(index, term uint64) (bool, error) {
	var entry raft.Log
	err := s.GetLog(index, &entry)
	if errors.Is(err, raft.ErrLogNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read log entry %d: %w", index, err)
	}
	return entry.Term == term, nil
}

func (s *seam) cover(index uint64) {
	if !s.off && index > s.covered.Load() { // only the library's restore and snapshot come here, one at a time
		s.covered.Store(index)
	}
}

// Open implements raft.SnapshotStore.
func (s *seam) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	meta, content, err := s.SnapshotStore.Open(id)
	if err != nil {
		return nil, nil, err
	}
	return meta, &opened{ReadCloser: content, seam: s, index: meta.Index, term: meta.Term}, nil
}

// opened is a snapshot while it is read.
type opened struct {
	io.ReadCloser
	seam        *seam
	index, term uint64
}

// restoring is called when a snapshot that from reads is whole and about to become the state.
func restoring(from io.ReadCloser) error {
	for {
		wrapper, ok := from.(raft.ReadCloserWrapper)
		if !ok {
			break
		}
		from = wrapper.WrappedReadCloser()
	}
	if o, ok := from.(*opened); ok && !o.seam.off {
		return o.seam.adopt(o.index, o.term)
	}
	return nil
}

// adopt makes the log fit a snapshot of everything up to an entry. If the log does not have that entry, what it has up to
// there is another history, or ends before it: it goes. What comes after it stays, and the library clears it away when
// it does not fit the leader's.
func (s *seam) adopt(index, term uint64) error {
	has, err := s.has(index, term)
	if err != nil {
		return err
	}
	if !has {
		if err := s.clear(index); err != nil {
			return fmt.Errorf("remove the log entries that the snapshot of entry %d replaces: %w", index, err)
		}
	}
	s.cover(index)
	return nil
}

// clear removes the log up to an entry.
func (s *seam) clear(index uint64) error { return s.DeleteRange(0, index) }

// DeleteRange implements raft.LogStore. The library does not know that the log may be shorter than it was when it
// last looked, or empty.
func (s *seam) DeleteRange(from, to uint64) error {
	first, err := s.FirstIndex()
	if err != nil {
		return err
	}
	last, err := s.LastIndex()
	if err != nil {
		return err
	}
	from, to = max(from, first), min(to, last)
	if first == 0 || from > to {
		return nil
	}
	return s.LogStore.DeleteRange(from, to)
}
