package group

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
	"github.com/hashicorp/raft-wal/migrate"
)

// The log is a write-ahead log: an append is one write and one sync. In a B+tree it is two syncs and a page for each change;
// that halved what a group commits.

const (
	segmentBytes = 16 << 20 // of one file, allocated when it is begun; compaction removes whole files
	copiedAtOnce = 1 << 20  // bytes in one append while a log is moved
)

// openLog opens the log in dir, which is made. A log that an earlier release kept in old is moved: copied whole, then
// removed there; a crash in between begins the copy anew.
func openLog(dir string, old raft.LogStore, logger hclog.Logger) (*wal.WAL, error) {
	last, err := old.LastIndex()
	if err != nil {
		return nil, fmt.Errorf("read the end of the former log: %w", err)
	}
	if last == 0 {
		return openSegments(dir, logger)
	}
	if err := os.RemoveAll(dir); err != nil { // a copy that was not finished: what is whole is still in old
		return nil, err
	}
	log, err := openSegments(dir, logger)
	if err != nil {
		return nil, err
	}
	if err := move(log, old, last); err != nil {
		return nil, errors.Join(fmt.Errorf("move the former log: %w", err), log.Close())
	}
	return log, nil
}

func openSegments(dir string, logger hclog.Logger) (*wal.WAL, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := repairTail(dir); err != nil {
		return nil, err
	}
	return wal.Open(dir, wal.WithSegmentSize(segmentBytes), wal.WithLogger(logger))
}

// move empties old into log.
func move(log, old raft.LogStore, last uint64) error {
	first, err := old.FirstIndex()
	if err != nil {
		return err
	}
	if err := migrate.CopyLogs(context.Background(), log, old, copiedAtOnce, nil); err != nil {
		return err
	}
	return old.DeleteRange(first, last)
}
