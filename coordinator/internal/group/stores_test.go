package group

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// countedLog counts the transactions in which entries are removed.
type countedLog struct {
	*raft.InmemStore
	deletions [][2]uint64
}

func (c *countedLog) DeleteRange(min, max uint64) error {
	c.deletions = append(c.deletions, [2]uint64{min, max})
	return c.InmemStore.DeleteRange(min, max)
}

func filledLog(t *testing.T, entries uint64) *countedLog {
	t.Helper()
	log := &countedLog{InmemStore: raft.NewInmemStore()}
	for i := uint64(1); i <= entries; i++ {
		if err := log.StoreLog(&raft.Log{Index: i, Term: 1}); err != nil {
			t.Fatal(err)
		}
	}
	return log
}

func TestCompactionIsDoneInSmallTransactions(t *testing.T) {
	for _, test := range []struct{ max, transactions uint64 }{
		{1, 1}, {deletedAtOnce, 1}, {deletedAtOnce + 1, 2}, {8192, 16}, {9000, 18},
	} {
		log := filledLog(t, 10_000)
		if err := (&logStore{LogStore: log}).DeleteRange(1, test.max); err != nil {
			t.Fatal(err)
		}
		if got := uint64(len(log.deletions)); got != test.transactions {
			t.Errorf("removing %d entries takes %d transactions, want %d", test.max, got, test.transactions)
		}
		next := uint64(1)
		for _, d := range log.deletions {
			if d[0] != next {
				t.Errorf("a transaction begins at %d, want %d: a crash between two must leave no hole", d[0], next)
			}
			next = d[1] + 1
		}
		if first, err := log.FirstIndex(); err != nil || first != test.max+1 {
			t.Errorf("the log begins at %d after removing %d entries (%v)", first, test.max, err)
		}
	}
}

func TestAConflictingTailIsRemovedInOneTransaction(t *testing.T) {
	log := filledLog(t, 10_000)
	if err := (&logStore{LogStore: log}).DeleteRange(2, 10_000); err != nil {
		t.Fatal(err)
	}
	if len(log.deletions) != 1 {
		t.Errorf("a tail is removed in %d transactions: a crash between two leaves a hole before old entries", len(log.deletions))
	}
}

func TestBootstrapOnlyIntoEmptyStores(t *testing.T) {
	stores, err := openStores(t.TempDir(), 0, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := stores.close(); err != nil {
			t.Error(err)
		}
	}()
	_, transport := raft.NewInmemTransport("a:1")
	config := raft.DefaultConfig()
	config.LocalID, config.Logger = "a", hclog.NewNullLogger()
	members := []Member{{ID: "a", Peer: "a:1"}, {ID: "b", Peer: "b:1"}, {ID: "c", Peer: "c:1"}}
	for i, want := range []bool{true, false, false} {
		empty, err := isBlank(stores)
		if err != nil || empty != want {
			t.Errorf("start %d: empty is %t, %v; want %t", i, empty, err, want)
		}
		if !empty {
			continue
		}
		if err := bootstrap(stores, config, transport, members); err != nil {
			t.Error(err)
		}
	}
	if last, err := stores.Log.LastIndex(); err != nil || last != 1 {
		t.Errorf("three starts leave %d entries, %v; want the one configuration", last, err)
	}
}

// A log that was compacted is nothing without the snapshot before it, and a damaged newest snapshot is none.
func TestLogWithoutItsBeginningIsRefused(t *testing.T) {
	dir := t.TempDir()
	snapshot := func(index uint64) string {
		store, err := raft.NewFileSnapshotStoreWithLogger(dir, keptSnapshots, hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		sink, err := store.Create(1, index, 1, raft.Configuration{}, 1, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sink.Write([]byte("state")); err != nil {
			t.Fatal(err)
		}
		if err := sink.Close(); err != nil {
			t.Fatal(err)
		}
		return filepath.Join(dir, "snapshots", sink.ID(), "state.bin")
	}
	check := func(first, last uint64) error {
		log := raft.NewInmemStore()
		for i := first; i <= last; i++ {
			if err := log.StoreLog(&raft.Log{Index: i, Term: 1}); err != nil {
				t.Fatal(err)
			}
		}
		store, err := raft.NewFileSnapshotStoreWithLogger(dir, keptSnapshots, hclog.NewNullLogger())
		if err != nil {
			t.Fatal(err)
		}
		return checkWhole(&Stores{Log: log, Stable: log, Snapshots: store})
	}
	want := func(what string, err error, refused bool) {
		t.Helper()
		if (err != nil) != refused {
			t.Errorf("%s: got %v", what, err)
		}
	}
	want("empty", check(1, 0), false)
	want("whole log", check(1, 9), false)
	want("no snapshot", check(5, 9), true)
	snapshot(4)
	want("snapshot up to the log", check(5, 9), false)
	want("hole of one entry", check(6, 9), true)
	newest := snapshot(8)
	want("snapshot reaches into the log", check(6, 9), false)
	if err := os.WriteFile(newest, []byte("stare"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("damaged snapshot, the one before is too old", check(6, 9), true)
	want("damaged snapshot, the one before reaches the log", check(5, 9), false)
}
