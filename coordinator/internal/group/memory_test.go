package group

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/raft"
)

// snapshots keeps the newest complete snapshot in memory. The library's own keeps one that is half written.
type snapshots struct {
	mu     sync.Mutex
	taken  int
	latest *memorySnapshot
}

type memorySnapshot struct {
	meta  raft.SnapshotMeta
	data  bytes.Buffer
	store *snapshots
}

func (s *snapshots) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration, configurationIndex uint64, _ raft.Transport) (raft.SnapshotSink, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken++
	return &memorySnapshot{store: s, meta: raft.SnapshotMeta{
		Version: version, ID: fmt.Sprintf("%d-%d-%d", term, index, s.taken), Index: index, Term: term,
		Configuration: configuration, ConfigurationIndex: configurationIndex,
	}}, nil
}

func (s *snapshots) List() ([]*raft.SnapshotMeta, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest == nil {
		return nil, nil
	}
	meta := s.latest.meta
	return []*raft.SnapshotMeta{&meta}, nil
}

func (s *snapshots) Open(id string) (*raft.SnapshotMeta, io.ReadCloser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.latest == nil || s.latest.meta.ID != id {
		return nil, nil, errors.New("no such snapshot")
	}
	meta := s.latest.meta
	return &meta, io.NopCloser(bytes.NewReader(s.latest.data.Bytes())), nil
}

func (s *snapshots) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

func (m *memorySnapshot) Write(p []byte) (int, error) { return m.data.Write(p) }
func (m *memorySnapshot) ID() string                  { return m.meta.ID }
func (*memorySnapshot) Cancel() error                 { return nil }

func (m *memorySnapshot) Close() error {
	m.store.mu.Lock()
	defer m.store.mu.Unlock()
	m.meta.Size = int64(m.data.Len())
	if m.store.latest == nil || m.store.latest.meta.Index <= m.meta.Index {
		m.store.latest = m
	}
	return nil
}

// slowLog is a log store whose disk can be made to hang, or to fail.
type slowLog struct {
	raft.LogStore
	mu     sync.Mutex
	hung   chan struct{} // nil: it works; closed when it works again
	failed error
}

// fail makes every write end with an error; nil: no more.
func (s *slowLog) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
}

func (s *slowLog) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *slowLog) DeleteRange(min, max uint64) error {
	if err := s.failure(); err != nil {
		return err
	}
	return s.LogStore.DeleteRange(min, max)
}

// failingStable is a store of votes and terms whose disk can be made to fail.
type failingStable struct {
	raft.StableStore
	mu     sync.Mutex
	failed error
}

func (s *failingStable) fail(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failed = err
}

func (s *failingStable) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

func (s *failingStable) Set(key, value []byte) error {
	if err := s.failure(); err != nil {
		return err
	}
	return s.StableStore.Set(key, value)
}

func (s *failingStable) SetUint64(key []byte, value uint64) error {
	if err := s.failure(); err != nil {
		return err
	}
	return s.StableStore.SetUint64(key, value)
}

func (s *slowLog) hang() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hung = make(chan struct{})
}

func (s *slowLog) resume() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.hung)
	s.hung = nil
}

func (s *slowLog) StoreLogs(logs []*raft.Log) error {
	s.mu.Lock()
	hung := s.hung
	s.mu.Unlock()
	if hung != nil {
		<-hung
	}
	if err := s.failure(); err != nil {
		return err
	}
	return s.LogStore.StoreLogs(logs)
}

func (s *slowLog) StoreLog(log *raft.Log) error { return s.StoreLogs([]*raft.Log{log}) }
