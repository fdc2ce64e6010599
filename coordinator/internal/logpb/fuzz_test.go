package logpb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"reflect"
	"testing"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// FuzzDecodeEntry feeds the decoder bytes as they are and behind a good checksum. What it accepts must survive another
// round, and must not upset a machine.
func FuzzDecodeEntry(f *testing.F) {
	b, err := EncodeEntry(everyCommand())
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(b[entryPrefix:])
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		e, err := decodeEntryBody(data)
		if want, wantErr := decodeByMessages(data); !reflect.DeepEqual(e, want) || (err == nil) != (wantErr == nil) {
			t.Fatalf("got %+v, %v; by protobuf %+v, %v", e, err, want, wantErr)
		}
		for _, b := range [][]byte{data, sealEntry(data), sealEntryAs(2, data)} {
			e, err := DecodeEntry(b)
			if err != nil {
				judged(t, err)
				continue
			}
			again, err := EncodeEntry(e)
			if err != nil {
				t.Fatalf("encode what was decoded: %v", err)
			}
			if e2, err := DecodeEntry(again); err != nil || !reflect.DeepEqual(e, e2) {
				t.Fatalf("another round gives %+v, %v, want %+v", e2, err, e)
			}
			m := lock.New()
			m.Apply(1, lock.Entry{Commands: []lock.Command{lock.Init{Cluster: "c", Config: testConfig()}}})
			m.Apply(2, e)
			m.Apply(3, lock.Entry{Now: e.Now, Commands: []lock.Command{lock.Tick{}}})
		}
	})
}

// FuzzReadSnapshot feeds the reader bytes as they are and with good checksums. What it accepts must be written and
// read again to the same digest, and must not upset the machine.
func FuzzReadSnapshot(f *testing.F) {
	b, err := snapshotBytes(fullMachine(f))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add(unsealSnapshot(b))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, b := range [][]byte{data, sealSnapshot(data), sealSnapshotAs(2, data)} {
			m, err := ReadSnapshot(bytes.NewReader(b))
			if err != nil {
				judged(t, err)
				continue
			}
			again, err := snapshotBytes(m)
			if err != nil {
				t.Fatalf("write what was read: %v", err)
			}
			if m2, err := ReadSnapshot(bytes.NewReader(again)); err != nil || m2.Digest() != m.Digest() {
				t.Fatalf("another round gives another machine, or %v", err)
			}
			m.Apply(m.Info().Index+1, lock.Entry{Now: m.Info().Now.Add(1 << 40), Commands: everyCommand().Commands})
		}
	})
}

func judged(t *testing.T, err error) {
	if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrUnknown) {
		t.Fatalf("the error is of no kind: %v", err)
	}
}

func sealEntry(body []byte) []byte { return sealEntryAs(1, body) }

func sealEntryAs(version byte, body []byte) []byte {
	b := append([]byte{version}, binary.BigEndian.AppendUint32(nil, crc32.Checksum(body, castagnoli))...)
	return append(b, body...)
}

func snapshotBytes(m *lock.Machine) ([]byte, error) {
	var b bytes.Buffer
	err := WriteSnapshot(&b, m.Snapshot())
	return b.Bytes(), err
}

// unsealSnapshot leaves the frames without magic and checksums, which is what sealSnapshot begins with.
func unsealSnapshot(b []byte) []byte {
	var out []byte
	for b = b[len(snapshotMagic)+1:]; len(b) > 0; {
		size, n := binary.Uvarint(b)
		end := n + int(size)
		out = append(out, b[:end]...)
		b = b[end+crc32.Size:]
	}
	return out
}

func sealSnapshot(frames []byte) []byte {
	return sealSnapshotAs(1, frames)
}

func sealSnapshotAs(version byte, frames []byte) []byte {
	out := append([]byte(snapshotMagic), version)
	sum := crc32.Checksum(out, castagnoli)
	for len(frames) > 0 {
		size, n := binary.Uvarint(frames)
		if n <= 0 || size > uint64(len(frames)-n) {
			break
		}
		end := n + int(size)
		sum = crc32.Update(sum, castagnoli, frames[:end])
		out = binary.BigEndian.AppendUint32(append(out, frames[:end]...), sum)
		frames = frames[end:]
	}
	return append(out, frames...)
}
