package logpb

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"reflect"
	"testing"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
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

// TestGoldenEntry writes and reads the entries of each version. Those of version 1 are what the first release wrote; a
// cluster that is being upgraded has both in one log.
func TestGoldenEntry(t *testing.T) {
	for file, want := range map[string]lock.Entry{
		"testdata/entry_v1.golden": everyCommand(), "testdata/entry_v2.golden": everyLaterCommand(),
	} {
		b, err := EncodeEntry(want)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeEntry(golden(t, file, b))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v\nwant %+v", file, got, want)
		}
	}
}

// TestGoldenSnapshot writes and reads the snapshots of each version, and compares the digests that they have had from the
// beginning: replicas of two releases compare them.
func TestGoldenSnapshot(t *testing.T) {
	for file, test := range map[string]struct {
		m      *lock.Machine
		digest string
	}{
		"testdata/snapshot_v1.golden": {fullMachine(t), "c3f849864bbd98cbe8c2448edc939e4ff36036ba71e3e93d4c8441406744b316"},
		"testdata/snapshot_v2.golden": {fullerMachine(t), "332fcbaa119950cebaa2f185e19c84d651837c987cdd089f23d217a400b49890"},
	} {
		restored, err := ReadSnapshot(bytes.NewReader(golden(t, file, write(t, test.m))))
		if err != nil {
			t.Fatal(err)
		}
		if digest := restored.Digest(); digest != test.m.Digest() || hex.EncodeToString(digest[:]) != test.digest {
			t.Errorf("%s: the restored machine has the digest %x, the one that was written %x, want %s", file, digest, test.m.Digest(), test.digest)
		}
	}
}

// TestVersionsDoNotMix checks that the version byte says what is in it, so that an older release stops at the first byte.
func TestVersionsDoNotMix(t *testing.T) {
	for name, e := range map[string]lock.Entry{"version 1": everyCommand(), "version 2": everyLaterCommand()} {
		b, err := EncodeEntry(e)
		if err != nil {
			t.Fatal(err)
		}
		b[0] ^= 3 // the other version; the checksum does not cover it
		if _, err := DecodeEntry(b); !errors.Is(err, ErrCorrupt) {
			t.Errorf("an entry of %s that claims the other: got %v, want ErrCorrupt", name, err)
		}
	}
	for name, m := range map[string]*lock.Machine{"version 1": fullMachine(t), "version 2": fullerMachine(t)} {
		b := write(t, m)
		version := b[len(snapshotMagic)] ^ 3
		if _, err := ReadSnapshot(bytes.NewReader(sealSnapshotAs(version, unsealSnapshot(b)))); !errors.Is(err, ErrCorrupt) {
			t.Errorf("a snapshot of %s that claims the other: got %v, want ErrCorrupt", name, err)
		}
	}
}

// TestUpgrade lets a machine of version 1 go on as one of version 2, restored before and after: all agree.
func TestUpgrade(t *testing.T) {
	live, twin := fullMachine(t), fullMachine(t)
	entries := []lock.Entry{
		{Commands: []lock.Command{lock.SetVersion{Version: 2}, lock.Acquire{
			Identity: "team", Client: "s", Request: "1", Resource: "s", Mode: lease.Shared, Lease: lease.ID{99}, AsOf: live.Info().Now,
		}}},
		everyLaterCommand(),
	}
	for i, e := range entries {
		b, err := EncodeEntry(e)
		if err != nil {
			t.Fatal(err)
		}
		decoded, err := DecodeEntry(b)
		if err != nil {
			t.Fatal(err)
		}
		twin, err = ReadSnapshot(bytes.NewReader(write(t, twin)))
		if err != nil {
			t.Fatal(err)
		}
		if err := twin.Accepts(decoded); err != nil {
			t.Fatalf("entry %d: %v", i+1, err)
		}
		index := live.Info().Index + 1
		live.Apply(index, e)
		twin.Apply(index, decoded)
		if live.Digest() != twin.Digest() {
			t.Errorf("after entry %d the restored replica has another digest", i+1)
		}
	}
	if info := live.Info(); info.Version != 2 || info.Leases == 0 {
		t.Errorf("the upgraded machine is %+v", info)
	}
}
