package group

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

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
