package group

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// Stores is where a group keeps its log, its votes and its snapshots.
type Stores struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore
	Close     func() error // may be nil

	cached int // entries of the log that are kept in memory
}

const (
	keptSnapshots = 2
	cachedLogs    = 128              // entries kept in memory for followers that are nearly up to date
	lockTimeout   = 10 * time.Second // wait for another process that still has the log open
)

// openStores opens the files of one group under dir: group-N/log, group-N/log.db with the vote, and group-N/snapshots.
func openStores(dir string, group uint16, logger hclog.Logger) (*Stores, error) {
	return openStoresIn(groupDir(dir, group), logger)
}

func openStoresIn(dir string, logger hclog.Logger) (*Stores, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w", err)
	}
	bolt, err := openBolt(filepath.Join(dir, "log.db"))
	if err != nil {
		return nil, fmt.Errorf("open the log in %s: %w", dir, err)
	}
	log, err := openLog(filepath.Join(dir, "log"), bolt, logger)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the log in %s: %w", dir, err), bolt.Close())
	}
	closeBoth := func() error { return errors.Join(log.Close(), bolt.Close()) }
	snapshots, err := openSnapshots(dir, logger)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the snapshots in %s: %w", dir, err), closeBoth())
	}
	if err := syncNames(dir); err != nil {
		return nil, errors.Join(fmt.Errorf("sync the names of the files in %s: %w", dir, err), closeBoth())
	}
	return &Stores{Log: log, Stable: bolt, Snapshots: snapshots, Close: closeBoth, cached: cachedLogs}, nil
}

// syncNames syncs the names of what the stores may just have made, up to that of the node's own folder: of a file whose content alone is
// synced a loss of power may leave nothing.
func syncNames(dir string) error {
	node := filepath.Dir(dir)
	return errors.Join(syncDir(filepath.Join(dir, "log")), syncDir(dir), syncDir(node), syncDir(filepath.Dir(node)))
}

// join puts between the library and the stores what stands there: the library sees a history, in which the log and the
// snapshots fit; a cache; and a disk that is watched.
func (s *Stores) join(d *disk, off bool) (*Stores, *seam, error) {
	joined := &seam{LogStore: diskLog{s.Log, d}, SnapshotStore: s.Snapshots, off: off}
	if s.cached > 0 {
		cache, err := raft.NewLogCache(s.cached, joined.LogStore)
		if err != nil {
			return nil, nil, fmt.Errorf("cache the log: %w", err)
		}
		joined.LogStore = cache
	}
	return &Stores{Log: joined, Stable: &diskStable{StableStore: s.Stable, disk: d}, Snapshots: joined}, joined, nil
}

// isBlank reports whether the stores hold nothing: no vote, no entry, no snapshot.
func isBlank(stores *Stores) (bool, error) {
	exists, err := raft.HasExistingState(stores.Log, stores.Stable, stores.Snapshots)
	if err != nil {
		return false, fmt.Errorf("look into the stores: %w", err)
	}
	return !exists, nil
}

// bootstrap writes the first configuration into empty stores. Every member that creates the cluster does so with the same
// one, which the library allows.
func bootstrap(stores *Stores, config *raft.Config, transport raft.Transport, members []Member) error {
	var first raft.Configuration
	for _, m := range members {
		first.Servers = append(first.Servers, raft.Server{ID: raft.ServerID(m.ID), Address: raft.ServerAddress(m.Peer)})
	}
	if err := raft.BootstrapCluster(config, stores.Log, stores.Stable, stores.Snapshots, transport, first); err != nil {
		return fmt.Errorf("write the first configuration: %w", err)
	}
	return nil
}

// checkWhole refuses a log whose beginning is in no snapshot that can be read: the library would find out in the middle
// of replaying it, and panic.
func checkWhole(stores *Stores) error {
	first, err := stores.Log.FirstIndex()
	if err != nil {
		return fmt.Errorf("read the beginning of the log: %w", err)
	}
	if first <= 1 {
		return nil // from the beginning, or empty
	}
	covered, err := readableSnapshot(stores.Snapshots)
	if err != nil {
		return err
	}
	if covered+1 < first {
		return fmt.Errorf("the log begins at entry %d, and no readable snapshot reaches further than entry %d: what is between "+
			"them is gone. Put the snapshots back", first, covered)
	}
	return nil
}

// readableSnapshot is the last entry in the newest snapshot that can be opened, which checks it whole; 0 if none can.
func readableSnapshot(snapshots raft.SnapshotStore) (uint64, error) {
	all, err := snapshots.List() // newest first
	if err != nil {
		return 0, fmt.Errorf("list the snapshots: %w", err)
	}
	for _, s := range all {
		meta, content, err := snapshots.Open(s.ID)
		if err != nil {
			continue // the library says so in the log, and takes the one before, too
		}
		return meta.Index, content.Close()
	}
	return 0, nil
}

func (s *Stores) close() error {
	if s.Close == nil {
		return nil
	}
	return s.Close()
}

// closeTransport closes a transport that can be closed.
func closeTransport(t raft.Transport) error {
	if c, ok := t.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
