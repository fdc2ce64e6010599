package group

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// A segment's last write is torn at every place. What was committed before is there after the next start, and entries are
// taken again.
func TestATornSealIsRepaired(t *testing.T) {
	const size = 16 << 10
	dir := t.TempDir()
	log, err := wal.Open(dir, wal.WithSegmentSize(size))
	if err != nil {
		t.Fatal(err)
	}
	segment := filepath.Join(dir, "00000000000000000001-0000000000000000.wal")
	var before, after, meta []byte
	last := uint64(0)
	for after == nil {
		if before, err = os.ReadFile(segment); err != nil {
			t.Fatal(err)
		}
		if meta, err = os.ReadFile(filepath.Join(dir, "wal-meta.db")); err != nil {
			t.Fatal(err)
		}
		if err := log.StoreLog(&raft.Log{Index: last + 1, Term: 1, Data: bytes.Repeat([]byte{7}, 500)}); err != nil {
			t.Fatal(err)
		}
		now, err := os.ReadFile(segment)
		if err != nil {
			t.Fatal(err)
		}
		if _, index, err := lookForSeal(bytes.NewReader(now)); err != nil {
			t.Fatal(err)
		} else if index >= 0 {
			after = now
		} else {
			last++
		}
	}
	if err := log.Close(); err != nil {
		t.Fatal(err)
	}
	from := 0
	for before[from] == after[from] {
		from++
	}
	to := len(after)
	for after[to-1] == 0 {
		to--
	}
	for cut := from; cut <= to; cut += 5 {
		wantTakesEntries(t, meta, append(bytes.Clone(after[:cut]), make([]byte, len(after)-cut)...), last, cut)
		if cut > from { // the other way round: the end of the write is there, and not its beginning
			torn := bytes.Clone(after)
			clear(torn[from:min(from+8, cut)])
			wantTakesEntries(t, meta, torn, last, cut)
		}
	}
}

func wantTakesEntries(t *testing.T, meta, segment []byte, last uint64, cut int) {
	t.Helper()
	dir := t.TempDir()
	for name, content := range map[string][]byte{"wal-meta.db": meta, "00000000000000000001-0000000000000000.wal": segment} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log, err := openSegments(dir, hclog.NewNullLogger())
	if err != nil {
		t.Fatalf("torn at %d: %v", cut, err)
	}
	defer func() { _ = log.Close() }()
	got, err := log.LastIndex()
	if err != nil || got < last {
		t.Fatalf("torn at %d: the log ends at %d, %v, and %d were committed", cut, got, err, last)
	}
	if err := log.StoreLog(&raft.Log{Index: got + 1, Term: 2}); err != nil {
		t.Fatalf("torn at %d: the next entry: %v", cut, err)
	}
}
