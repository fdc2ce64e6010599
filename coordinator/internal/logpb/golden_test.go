package logpb

import (
	"bytes"
	"flag"
	"os"
	"reflect"
	"testing"
)

var update = flag.Bool("update", false, "write the golden files; a change of old bytes breaks every cluster that exists")

// golden compares bytes with those that this or an earlier release wrote.
func golden(t *testing.T, file string, got []byte) []byte {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s: what is written has changed:\n%x\nwant\n%x", file, got, want)
	}
	return want
}

func TestGoldenEntry(t *testing.T) {
	b, err := EncodeEntry(everyCommand())
	if err != nil {
		t.Fatal(err)
	}
	got, err := DecodeEntry(golden(t, "testdata/entry.golden", b))
	if err != nil {
		t.Fatal(err)
	}
	if want := everyCommand(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
}

func TestGoldenSnapshot(t *testing.T) {
	m := fullMachine(t)
	restored, err := ReadSnapshot(bytes.NewReader(golden(t, "testdata/snapshot.golden", write(t, m))))
	if err != nil {
		t.Fatal(err)
	}
	if restored.Digest() != m.Digest() {
		t.Error("the restored machine has another digest")
	}
}
