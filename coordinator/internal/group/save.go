package group

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/internal/logpb"
)

// A save is the magic, a version byte, the length (uvarint) and the JSON of a Saved, the CRC-32C of all that, and a snapshot of
// the state, which has check sums of its own and knows its end. There is no key in it, and nothing that signs: DESIGN.md.
const (
	saveMagic   = "lychsave"
	saveVersion = 1
	maxSaved    = 1 << 20 // bytes of a Saved
)

// ErrDamaged is the error of a save that is cut, changed, or none.
var ErrDamaged = errors.New("the backup is damaged")

// Saved describes a save.
type Saved struct {
	Cluster     string   `json:"cluster"`
	Group       uint16   `json:"group"`
	Incarnation uint32   `json:"incarnation"`
	Version     uint32   `json:"version"` // of the cluster
	Index       uint64   `json:"index"`   // of the last entry in it
	Term        uint64   `json:"term"`
	Node        string   `json:"node"` // which saved it
	Members     []string `json:"members"`
}

// WriteSave writes a save of a frozen state to w (Group.Freeze). An error, which is w's, leaves w with a beginning that
// Restore refuses. That nothing is missing that was acknowledged before is the caller's to see to: freeze after a Read.
func WriteSave(w io.Writer, saved Saved, state *lock.Snapshot) error {
	if err := writeSaved(w, saved); err != nil {
		return fmt.Errorf("save: %w", err)
	}
	if err := logpb.WriteSnapshot(w, state); err != nil {
		return fmt.Errorf("save: %w", err)
	}
	return nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func writeSaved(w io.Writer, saved Saved) error {
	text, err := json.Marshal(saved)
	if err != nil {
		return err
	}
	b := append([]byte(saveMagic), saveVersion)
	b = binary.AppendUvarint(b, uint64(len(text)))
	b = append(b, text...)
	_, err = w.Write(binary.BigEndian.AppendUint32(b, crc32.Checksum(b, castagnoli)))
	return err
}

// ReadSaved reads what a save says of itself. What comes next in r is the state.
func ReadSaved(r *bufio.Reader) (Saved, error) {
	sum := crc32.New(castagnoli)
	head := make([]byte, len(saveMagic)+1)
	if err := readFull(r, sum, head); err != nil {
		return Saved{}, err
	}
	if string(head[:len(saveMagic)]) != saveMagic {
		return Saved{}, fmt.Errorf("%w: it does not begin as one", ErrDamaged)
	}
	if head[len(saveMagic)] != saveVersion {
		return Saved{}, fmt.Errorf("the backup is of format %d, and this program knows %d", head[len(saveMagic)], saveVersion)
	}
	size, err := binary.ReadUvarint(&summed{r, sum})
	if err != nil || size > maxSaved {
		return Saved{}, fmt.Errorf("%w: its head has no length", ErrDamaged)
	}
	text := make([]byte, size)
	if err := readFull(r, sum, text); err != nil {
		return Saved{}, err
	}
	want := sum.Sum32()
	got := make([]byte, 4)
	if err := readFull(r, sum, got); err != nil {
		return Saved{}, err
	}
	if binary.BigEndian.Uint32(got) != want {
		return Saved{}, fmt.Errorf("%w: its head was changed", ErrDamaged)
	}
	var saved Saved
	if err := json.Unmarshal(text, &saved); err != nil {
		return Saved{}, fmt.Errorf("%w: its head: %w", ErrDamaged, err)
	}
	return saved, nil
}

func readFull(r io.Reader, sum io.Writer, b []byte) error {
	if _, err := io.ReadFull(r, b); err != nil {
		return fmt.Errorf("%w: it is cut: %w", ErrDamaged, err)
	}
	_, _ = sum.Write(b) // a hash, which never fails
	return nil
}

// summed adds what is read to a sum.
type summed struct {
	r   io.ByteReader
	sum io.Writer
}

func (s *summed) ReadByte() (byte, error) {
	b, err := s.r.ReadByte()
	if err == nil {
		_, _ = s.sum.Write([]byte{b})
	}
	return b, err
}
