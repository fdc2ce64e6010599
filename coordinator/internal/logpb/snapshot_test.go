package logpb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"testing"
	"testing/iotest"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// fullMachine has every stage of a request, keys, an acknowledgement, and a client that is only remembered.
func fullMachine(t testing.TB) *lock.Machine {
	t.Helper()
	m := lock.New()
	at := lock.LeaseTime(0)
	step := func(commands ...lock.Command) []lock.Result {
		at = at.Add(time.Second)
		results, _ := m.Apply(m.Info().Index+1, lock.Entry{Now: at, Commands: commands})
		return results
	}
	acquire := func(client, request, resource string, number byte) lock.Acquire {
		return lock.Acquire{
			Identity: "team", Client: lease.ClientID(client), Request: lease.RequestID(request),
			Resource: lease.Resource(resource), Mode: lease.Exclusive, Lease: lease.ID{number}, AsOf: at,
		}
	}
	wait := func(c lock.Acquire, call uint64) lock.Acquire {
		c.Wait, c.Call = time.Minute, call
		return c
	}
	step(lock.Init{Cluster: "c0ffee", Version: 1, Config: testConfig()}, lock.NewLeader{Node: "n1", Term: 1})
	step(lock.PutKey{Node: "n2", KeyID: "b", Public: []byte{2}}, lock.PutKey{Node: "n1", KeyID: "a", Public: []byte{1}})
	step(acquire("a", "held", "r1", 1), acquire("a", "free", "r2", 2))
	step(lock.Release{Identity: "team", Lease: lease.ID{2}})
	step(wait(acquire("b", "attached", "r1", 3), 7), wait(acquire("c", "unattached", "r1", 4), 8))
	step(lock.Detach{Identity: "team", Client: "c", Request: "unattached", Call: 8})
	step(lock.Cancel{Identity: "team", Client: "d", Request: "before", AsOf: at})
	step(acquire("e", "x", "r3", 5), wait(acquire("f", "late", "r3", 6), 9))
	step(lock.Release{Identity: "team", Lease: lease.ID{5}})
	numbered := acquire("g", "one", "r4", 7)
	numbered.Sequence = 1
	step(numbered)
	step(lock.Release{Identity: "team", Lease: lease.ID{7}})
	refused := acquire("g", "two", "r1", 8)
	refused.Sequence, refused.Acknowledged = 2, 1
	step(refused)
	if info := m.Info(); info.Leases != 2 || info.Waiters != 2 || info.Clients != 7 || info.Requests != 7 {
		t.Fatalf("the machine is not as full as the test needs: %+v", info)
	}
	return m
}

func write(t *testing.T, m *lock.Machine) []byte {
	t.Helper()
	b, err := snapshotBytes(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestSnapshotRoundTrip(t *testing.T) {
	for name, m := range map[string]*lock.Machine{"empty": lock.New(), "full": fullMachine(t), "fuller": fullerMachine(t)} {
		t.Run(name, func(t *testing.T) {
			b := write(t, m)
			restored, err := ReadSnapshot(iotest.OneByteReader(bytes.NewReader(b)))
			if err != nil {
				t.Fatal(err)
			}
			if got, want := restored.Digest(), m.Digest(); got != want {
				t.Errorf("digest is %x after restore, want %x", got, want)
			}
			if got, want := fmt.Sprintf("%+v", restored.Info()), fmt.Sprintf("%+v", m.Info()); got != want {
				t.Errorf("info is %s\nwant %s", got, want)
			}
			if again := write(t, restored); !bytes.Equal(again, b) {
				t.Error("the restored machine writes other bytes")
			}
		})
	}
}

func TestSnapshotDamage(t *testing.T) {
	b := write(t, fullMachine(t))
	for cut := range b {
		if _, err := ReadSnapshot(bytes.NewReader(b[:cut])); !errors.Is(err, ErrCorrupt) {
			t.Errorf("cut to %d of %d bytes: got %v, want ErrCorrupt", cut, len(b), err)
		}
	}
	for bit := range 8 * len(b) {
		b[bit/8] ^= 1 << (bit % 8)
		want := ErrCorrupt
		if bit/8 == len(snapshotMagic) {
			want = ErrUnknown
		}
		if _, err := ReadSnapshot(bytes.NewReader(b)); !errors.Is(err, want) {
			t.Errorf("bit %d flipped: got %v, want %v", bit, err, want)
		}
		b[bit/8] ^= 1 << (bit % 8)
	}
	if _, err := ReadSnapshot(bytes.NewReader(append(b, 0))); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a byte after the end: got %v, want ErrCorrupt", err)
	}
}

func TestSnapshotReadError(t *testing.T) {
	b := write(t, fullMachine(t))
	broken := errors.New("the disk is gone")
	for _, at := range []int{0, 5, len(b) / 2, len(b)} {
		r := iotest.ErrReader(broken)
		if _, err := ReadSnapshot(io.MultiReader(bytes.NewReader(b[:at]), r)); !errors.Is(err, broken) || errors.Is(err, ErrCorrupt) {
			t.Errorf("the reader fails at %d: got %v, want its own error", at, err)
		}
	}
}

// TestLyingLengths checks that a length claimed is not a length allocated.
func TestLyingLengths(t *testing.T) {
	for _, size := range []uint64{maxFrame, maxFrame + 1, 1 << 31, 1 << 40, 1<<64 - 1} {
		b := append([]byte(snapshotMagic), 1)
		b = append(binary.AppendUvarint(b, size), "little"...)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := ReadSnapshot(bytes.NewReader(b))
		runtime.ReadMemStats(&after)
		allocated := after.TotalAlloc - before.TotalAlloc
		if !errors.Is(err, ErrCorrupt) || allocated > 2*maxFrame {
			t.Errorf("length %d: got %v and %d bytes allocated", size, err, allocated)
		}
	}
}
