package group

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// disk is what the library's stores are written through. It knows how long a call has been on its way, and remembers the
// first that failed. From then on it takes no further calls: what the library has in memory and what is stored may differ,
// and only a new start on the stores settles it.
//
// It never lets an error through that the library panics at: such a call waits until the library has been cut off from
// the other nodes and from the state, and then succeeds, because nothing of it matters any more.
type disk struct {
	clock func() time.Duration

	mu       sync.Mutex
	calls    map[*call]struct{}
	fault    error
	terms    bool // writes of terms may wait: somebody will cut the library off when there is a fault
	reads    bool // and so may reads
	failed   chan struct{}
	released chan struct{} // closed once the library is cut off
	release  sync.Once
}

// call is one call of a store on its way.
type call struct {
	name  string
	since time.Duration
}

func newDisk(clock func() time.Duration) *disk {
	return &disk{clock: clock, calls: make(map[*call]struct{}), failed: make(chan struct{}), released: make(chan struct{})}
}

// do makes one call.
func (d *disk) do(name string, fn func() error) error {
	c := &call{name: name}
	if err := d.begin(c); err != nil {
		return err
	}
	return d.end(c, fn())
}

func (d *disk) begin(c *call) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fault != nil {
		return d.fault
	}
	c.since = d.clock()
	d.calls[c] = struct{}{}
	return nil
}

func (d *disk) end(c *call, err error) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.calls, c)
	if err == nil || errors.Is(err, raft.ErrLogNotFound) {
		return err
	}
	err = fmt.Errorf("%s: %w", c.name, err)
	if d.fault == nil {
		d.fault = err
		close(d.failed)
	}
	return err
}

// oldest is the call that has been on its way for longest; ok is false if there is none.
func (d *disk) oldest() (name string, took time.Duration, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock()
	for c := range d.calls {
		if t := now - c.since; !ok || t > took {
			name, took, ok = c.name, t, true
		}
	}
	return name, took, ok
}

// guard says that letGo will be called after a fault. While the library starts, its reads are made by the goroutine that will
// see to that.
func (d *disk) guard(reads bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.terms, d.reads = true, reads
}

// letGo lets the library's calls end. It must be cut off.
func (d *disk) letGo() { d.release.Do(func() { close(d.released) }) }

// cutOff waits until the library may be told anything. It reports false where nobody will see to that.
func (d *disk) cutOff(read bool) bool {
	d.mu.Lock()
	guarded := d.reads || d.terms && !read
	d.mu.Unlock()
	if guarded {
		<-d.released
	}
	return guarded
}

func (d *disk) err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.fault
}

// diskLog is a log store on a disk.
type diskLog struct {
	raft.LogStore
	disk *disk
}

// GetLog implements raft.LogStore. The library panics at an error while it applies.
func (l diskLog) GetLog(index uint64, log *raft.Log) error {
	err := l.disk.do("read the log", func() error { return l.LogStore.GetLog(index, log) })
	if err == nil || errors.Is(err, raft.ErrLogNotFound) || !l.disk.cutOff(true) {
		return err
	}
	*log = raft.Log{Index: index, Type: raft.LogNoop}
	return nil
}

// StoreLog implements raft.LogStore.
func (l diskLog) StoreLog(log *raft.Log) error {
	return l.disk.do("write the log", func() error { return l.LogStore.StoreLog(log) })
}

// StoreLogs implements raft.LogStore.
func (l diskLog) StoreLogs(logs []*raft.Log) error {
	return l.disk.do("write the log", func() error { return l.LogStore.StoreLogs(logs) })
}

// DeleteRange implements raft.LogStore.
func (l diskLog) DeleteRange(min, max uint64) error {
	return l.disk.do("delete from the log", func() error { return l.LogStore.DeleteRange(min, max) })
}

// diskStable is a store of terms and votes on a disk.
type diskStable struct {
	raft.StableStore
	disk *disk

	mu   sync.Mutex
	last map[string]uint64 // what is stored, as far as it was read or written
}

func (s *diskStable) is(key []byte, value uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	last, ok := s.last[string(key)]
	return ok && last == value
}

func (s *diskStable) now(key []byte, value uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.last == nil {
		s.last = make(map[string]uint64)
	}
	s.last[string(key)] = value
}

// GetUint64 implements raft.StableStore.
func (s *diskStable) GetUint64(key []byte) (uint64, error) {
	value, err := s.StableStore.GetUint64(key)
	if err == nil {
		s.now(key, value)
	}
	return value, err
}

// Set implements raft.StableStore. The library gives no vote that it could not write.
func (s *diskStable) Set(key, value []byte) error {
	return s.disk.do("write the vote", func() error { return s.StableStore.Set(key, value) })
}

// SetUint64 implements raft.StableStore. The library panics if it cannot write the term.
func (s *diskStable) SetUint64(key []byte, value uint64) error {
	if s.is(key, value) {
		return nil // while the library starts it writes what it has read, and nobody could cut it off yet
	}
	err := s.disk.do("write the term", func() error { return s.StableStore.SetUint64(key, value) })
	switch {
	case err == nil:
		s.now(key, value)
	case s.disk.cutOff(false):
		return nil
	}
	return err
}
