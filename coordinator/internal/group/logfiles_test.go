package group

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

func openTestStores(t *testing.T, dir string) *Stores {
	t.Helper()
	stores, err := openStores(dir, 0, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	return stores
}

func closeStores(t *testing.T, stores *Stores) {
	t.Helper()
	if err := stores.close(); err != nil {
		t.Fatal(err)
	}
}

func storeEntries(t *testing.T, log raft.LogStore, from, to, term uint64) {
	t.Helper()
	for i := from; i <= to; i++ {
		if err := log.StoreLog(&raft.Log{Index: i, Term: term, Data: bytes.Repeat([]byte{byte(i)}, 1000)}); err != nil {
			t.Fatal(err)
		}
	}
}

// wantEntries checks that the log is exactly those entries of that term.
func wantEntries(t *testing.T, log raft.LogStore, from, to, term uint64) {
	t.Helper()
	first, err := log.FirstIndex()
	last, err2 := log.LastIndex()
	if err != nil || err2 != nil || first != from || last != to {
		t.Fatalf("the log goes from %d to %d (%v, %v), want %d to %d", first, last, err, err2, from, to)
	}
	for i := from; i <= to; i++ {
		var entry raft.Log
		if err := log.GetLog(i, &entry); err != nil || entry.Index != i || entry.Term != term || len(entry.Data) != 1000 || entry.Data[0] != byte(i) {
			t.Fatalf("entry %d is %v of term %d, %v", i, entry.Index, entry.Term, err)
		}
	}
}

func TestLogOutlivesARestart(t *testing.T) {
	dir := t.TempDir()
	stores := openTestStores(t, dir)
	storeEntries(t, stores.Log, 1, 100, 1)
	if err := stores.Log.DeleteRange(1, 40); err != nil {
		t.Fatal(err)
	}
	if err := stores.Log.DeleteRange(91, 100); err != nil {
		t.Fatal(err)
	}
	closeStores(t, stores)
	stores = openTestStores(t, dir)
	defer closeStores(t, stores)
	wantEntries(t, stores.Log, 41, 90, 1)
	storeEntries(t, stores.Log, 91, 95, 1)
	wantEntries(t, stores.Log, 41, 95, 1)
}

// After a snapshot of a leader the log goes on behind it, far from where it was.
func TestALogThatWasEmptiedBeginsAnywhere(t *testing.T) {
	stores := openTestStores(t, t.TempDir())
	defer closeStores(t, stores)
	storeEntries(t, stores.Log, 1, 10, 1)
	if err := stores.Log.DeleteRange(1, 10); err != nil {
		t.Fatal(err)
	}
	storeEntries(t, stores.Log, 501, 510, 2)
	wantEntries(t, stores.Log, 501, 510, 2)
}

func TestALogOfAnEarlierReleaseIsMoved(t *testing.T) {
	dir := t.TempDir()
	stores := openTestStores(t, dir)
	former, ok := stores.Stable.(raft.LogStore)
	if !ok {
		t.Fatal("the store of votes holds no log")
	}
	storeEntries(t, former, 7, 300, 3)
	storeEntries(t, stores.Log, 7, 20, 2) // a copy that was not finished
	closeStores(t, stores)
	for range 2 {
		stores = openTestStores(t, dir)
		wantEntries(t, stores.Log, 7, 300, 3)
		closeStores(t, stores)
	}
}

// An append that a crash cut was never acknowledged; all before it is there.
func TestATornEndIsCutOff(t *testing.T) {
	dir := t.TempDir()
	stores := openTestStores(t, dir)
	storeEntries(t, stores.Log, 1, 9, 1)
	closeStores(t, stores)
	damage(t, dir, byte(9), func(content []byte, at int) { clear(content[at+500 : at+1000]) })
	stores = openTestStores(t, dir)
	defer closeStores(t, stores)
	wantEntries(t, stores.Log, 1, 8, 1)
}

// What changed in front of whole commits is no torn write: the log is refused, and as it was.
func TestALogThatIsDamagedInTheMiddleIsRefused(t *testing.T) {
	for name, change := range map[string]func(content []byte, at int){
		"the kind of a frame": func(content []byte, at int) { content[frameOf(content, at)] ^= 0x10 },
		"its length":          func(content []byte, at int) { content[frameOf(content, at)+5] ^= 0x40 },
		"a page":              func(content []byte, at int) { clear(content[at-100 : at+900]) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			stores := openTestStores(t, dir)
			storeEntries(t, stores.Log, 1, 9, 1)
			closeStores(t, stores)
			damage(t, dir, byte(5), change)
			for range 2 {
				if _, err := openStores(dir, 0, hclog.NewNullLogger()); !errors.Is(err, ErrDamagedLog) {
					t.Fatalf("the log is opened: %v", err)
				}
			}
		})
	}
}

// frameOf is where the frame begins that a place in its entry is in.
func frameOf(content []byte, at int) int {
	for at -= at % frameHead; ; at -= frameHead {
		if [4]byte(content[at:]) == [4]byte{1} && binary.LittleEndian.Uint32(content[at+4:]) > 1000 {
			return at
		}
	}
}

// damage changes a log's only file where an entry filled with that byte begins.
func damage(t *testing.T, dir string, fill byte, change func(content []byte, at int)) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(groupDir(dir, 0), "log", "*.wal"))
	if err != nil || len(files) != 1 {
		t.Fatalf("the log has the files %q, %v", files, err)
	}
	content, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(content, slices.Repeat([]byte{fill}, 1000))
	if at < 0 {
		t.Fatal("the entry is not in the file")
	}
	change(content, at)
	if err := os.WriteFile(files[0], content, 0o600); err != nil {
		t.Fatal(err)
	}
}
