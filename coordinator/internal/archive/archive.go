// Package archive is the file that a saved cluster is kept in: the state of each Raft group, one after the other, with
// what an operator and a restore need to know about them.
//
// It is written and read as a stream, in memory that does not grow with it. The file is a magic line, then frames. A frame
// is its kind (one byte), the length of its content (four bytes, big endian), the CRC-32C of these five, the content, and
// the CRC-32C of everything from the first byte of the file to here, so that frames can neither change nor move,
// repeat or go missing. The last frame says that it is the last.
package archive

import (
	"errors"
	"fmt"
	"hash/crc32"
	"time"
)

const (
	magic = "lychgate snapshot 1\n"
	// maxContent bounds one frame, and so what a lying length makes the reader allocate.
	maxContent = 1 << 16
	frameHead  = 1 + 4 + 4
	frameTail  = 4
)

// The kinds of frames, in the order in which they stand: a header, then for each group a group, its content and its end,
// then the end of all.
const (
	kindHeader   = 'H'
	kindGroup    = 'G'
	kindContent  = 'C'
	kindGroupEnd = 'E'
	kindEnd      = 'Z'
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Header is about the whole cluster.
type Header struct {
	Cluster     string    `json:"cluster"`
	Groups      int       `json:"groups"` // of the cluster
	Incarnation uint32    `json:"incarnation"`
	Version     uint32    `json:"version"` // of the cluster
	Node        string    `json:"node"`    // that wrote the archive
	SavedAt     time.Time `json:"savedAt"` // by that node's wall clock, for people
}

// Group is about one group, as it was when it was saved.
type Group struct {
	Group     uint16 `json:"group"`
	Index     uint64 `json:"index"` // of the last log entry in it
	Term      uint64 `json:"term"`
	Leases    int    `json:"leases"`
	Waiters   int    `json:"waiters"`
	LastToken uint64 `json:"lastToken"`
}

// ErrCut is the error of an archive that ends before its end.
var ErrCut = errors.New("the snapshot file is cut off")

// ErrDamaged is the error of an archive whose bytes are not those that were written.
var ErrDamaged = errors.New("the snapshot file is damaged")

// ErrForeign is the error of a file that is no archive, or one of a later release.
var ErrForeign = errors.New("not a snapshot file that this release reads")

func cut(at int64) error { return fmt.Errorf("%w after %d bytes", ErrCut, at) }

func damaged(at int64, what string, args ...any) error {
	return fmt.Errorf("%w at byte %d: %s", ErrDamaged, at, fmt.Sprintf(what, args...))
}
