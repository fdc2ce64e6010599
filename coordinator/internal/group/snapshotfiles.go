package group

import (
	"fmt"
	"path/filepath"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// snapshotFiles are the library's files of snapshots, each in a folder of its own. The library syncs the files and the name of the folder,
// but not the names in it: after a loss of power the folder may be empty, while the log is already cut.
type snapshotFiles struct {
	raft.SnapshotStore
	dir string
}

func openSnapshots(dir string, logger hclog.Logger) (raft.SnapshotStore, error) {
	store, err := raft.NewFileSnapshotStoreWithLogger(dir, keptSnapshots, logger)
	if err != nil {
		return nil, err
	}
	return &snapshotFiles{store, filepath.Join(dir, "snapshots")}, nil
}

// Create implements raft.SnapshotStore.
func (s *snapshotFiles) Create(version raft.SnapshotVersion, index, term uint64, configuration raft.Configuration, configurationIndex uint64,
	transport raft.Transport,
) (raft.SnapshotSink, error) {
	sink, err := s.SnapshotStore.Create(version, index, term, configuration, configurationIndex, transport)
	if err != nil {
		return nil, err
	}
	return &snapshotFile{sink, s.dir}, nil
}

// snapshotFile is a snapshot while it is written.
type snapshotFile struct {
	raft.SnapshotSink
	dir string
}

// Close implements raft.SnapshotSink. The log is cut only after it.
func (s *snapshotFile) Close() error {
	if err := s.SnapshotSink.Close(); err != nil {
		return err
	}
	if err := syncDir(filepath.Join(s.dir, s.ID())); err != nil {
		return fmt.Errorf("sync the snapshot %s: %w", s.ID(), err)
	}
	return nil
}
