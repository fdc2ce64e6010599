package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"path/filepath"
	"slices"

	"github.com/lychgate/lychgate/chaos/seeded"
)

// A write that fills a segment of the write-ahead log ends with an index, which seals the segment, and a commit frame. If it is torn, by
// a power cut or a full disk, raft-wal 0.4.2 drops the entries of that write, as it should, and keeps in mind that it has
// seen an index: from then on it takes no entry, in no start. So what is behind the last whole commit is zeroed before it
// looks, which it does itself as soon as it writes again.

// The layout of a segment: a head, then frames of a kind, three bytes, and a length or sum; all little endian.
const (
	segmentHead = 32
	frameHead   = 8
	frameIndex  = 2
	frameCommit = 3
	framesEnd   = 4 // kinds from here on are none
)

// ErrDamagedLog is the error of a log that had more, acknowledged, than can be read.
var ErrDamagedLog = errors.New("the log is damaged")

// repairTail takes a torn seal out of the newest segment in dir. Nothing that was committed is touched: where that cannot be read, it is
// ErrDamagedLog.
func repairTail(dir string) (err error) {
	segments, err := filepath.Glob(filepath.Join(dir, "*.wal")) // a name begins with the first index, in twenty digits
	if err != nil || len(segments) == 0 {
		return err
	}
	file, err := os.OpenFile(slices.Max(segments), os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	committed, index, err := lookForSeal(file)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := checkNothingWhole(file, committed, info.Size()); err != nil && !seeded.Is(seeded.DamageTakenForEnd) {
		return err
	}
	if index < committed {
		return nil
	}
	// Cut and made longer again, it reads as zeros.
	if err := errors.Join(file.Truncate(committed), file.Truncate(info.Size()), file.Sync()); err != nil {
		return fmt.Errorf("take a torn write out of %s: %w", file.Name(), err)
	}
	return nil
}

// lookForSeal finds where the last whole commit ends, and the last index frame; -1: none.
func lookForSeal(file io.ReaderAt) (committed, index int64, err error) {
	var before int64 // where the commit before the last one ends
	var sum uint32
	index = -1
	head := make([]byte, frameHead)
	for at := int64(segmentHead); ; {
		if _, err := file.ReadAt(head, at); err != nil && !errors.Is(err, io.EOF) {
			return 0, 0, err
		} else if err != nil || head[0] == 0 || head[0] >= framesEnd {
			break
		}
		value := binary.LittleEndian.Uint32(head[4:])
		size := int64(frameHead)
		switch head[0] {
		case frameCommit:
			before, committed, sum = committed, at+frameHead, value
		case frameIndex:
			index = at
			size += (int64(value) + frameHead - 1) / frameHead * frameHead
		default:
			size += (int64(value) + frameHead - 1) / frameHead * frameHead
		}
		at += size
	}
	if committed == 0 {
		return 0, index, nil
	}
	batch := make([]byte, committed-frameHead-before)
	if _, err := file.ReadAt(batch, before); err != nil {
		return 0, 0, err
	}
	if crc32.Checksum(batch, castagnoli) != sum {
		committed = before // its end was written, and not all of it
	}
	return committed, index, nil
}

// checkNothingWhole refuses a segment in which a whole commit stands behind where reading ends. Writes are synced one after the other, so a
// loss of power tears the last one only; what is broken in front of a whole one has changed since, and raft-wal would drop everything from
// there on. A change in the very last commit cannot be told from a torn write.
func checkNothingWhole(file *os.File, from, size int64) error {
	from = max(from, segmentHead)
	rest := make([]byte, max(size-from, 0))
	if _, err := file.ReadAt(rest, from); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	const looked = 4 // what looks like a commit may be in an entry
	var ends []int   // of what looks like commits, the latest ones
	for at := 0; at+frameHead <= len(rest); at += frameHead {
		if [4]byte(rest[at:]) != [4]byte{frameCommit} {
			continue
		}
		sum := binary.LittleEndian.Uint32(rest[at+4:])
		for _, end := range ends[max(0, len(ends)-looked):] {
			if at > end && crc32.Checksum(rest[end:at], castagnoli) == sum {
				return fmt.Errorf("%w: %s is broken behind byte %d, and what was written later is whole. Move everything out of the node's "+
					"folder and start the node again: it catches up from the others. A node alone is restored from a backup",
					ErrDamagedLog, file.Name(), from)
			}
		}
		ends = append(ends, at+frameHead)
	}
	return nil
}
