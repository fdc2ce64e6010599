package group

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"runtime/debug"

	raftboltdb "github.com/hashicorp/raft-boltdb/v2"
	"go.etcd.io/bbolt"
	bbolterrors "go.etcd.io/bbolt/errors"
)

// openBolt opens a bbolt file. bbolt walks through all pages when it opens one, in a goroutine of its own, and panics at what it
// cannot read, which ends the process. So they are walked here first, and what is damaged is an error.
func openBolt(path string) (store *raftboltdb.BoltStore, err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true)) // the file is mapped, and may be shorter than it says
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%s is damaged: %v", path, p)
		}
	}()
	if err := checkBolt(path); err != nil {
		return nil, err
	}
	store, err = raftboltdb.New(raftboltdb.Options{
		Path:        path,
		BoltOptions: &bbolt.Options{Timeout: lockTimeout, NoFreelistSync: true, FreelistType: bbolt.FreelistMapType},
	})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return nil, errors.New("another process has it open")
	}
	return store, err
}

// checkBolt walks through the pages of a bbolt file that is in use: magic, ids, kinds, and that elements lie within their page. A file
// that is not there, or empty, is a new one.
func checkBolt(path string) error {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && info.Size() == 0 {
		return nil
	}
	if err != nil {
		return err
	}
	// Opened for reading, bbolt looks at the two heads alone. It keeps writers away meanwhile.
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: lockTimeout, ReadOnly: true})
	if errors.Is(err, bbolterrors.ErrTimeout) {
		return errors.New("another process has it open")
	}
	if err != nil {
		return fmt.Errorf("%s is damaged: %w", path, err)
	}
	defer func() { _ = db.Close() }() // it was only read
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }()
	w := &pageWalk{file: file, size: int64(db.Info().PageSize), end: info.Size(), seen: make(map[uint64]bool)}
	if err := w.heads(); err != nil {
		return fmt.Errorf("%s is damaged: %w", path, err)
	}
	return nil
}

// The layout of bbolt's file, version 2.
const (
	boltMagic = 0xED0CDAED

	pageBranch = 0x01
	pageLeaf   = 0x02
	pageMeta   = 0x04

	pageHead    = 16 // id uint64, flags uint16, count uint16, overflow uint32
	pageElement = 16
	leafBucket  = 0x01 // the value is a bucket: its root uint64, a sequence uint64, and where there is no root a page
)

// pageWalk walks through the pages of a file.
type pageWalk struct {
	file io.ReaderAt
	size int64
	end  int64
	seen map[uint64]bool
}

// heads walks from the newer of the two heads; bbolt has compared their check sums.
func (w *pageWalk) heads() error {
	var root, newest uint64
	found := false
	for id := range int64(2) {
		b := make([]byte, pageHead+64)
		if _, err := w.file.ReadAt(b, id*w.size); err != nil {
			return fmt.Errorf("head %d: %w", id, err)
		}
		meta := b[pageHead:]
		if binary.NativeEndian.Uint16(b[8:]) != pageMeta || binary.NativeEndian.Uint32(meta) != boltMagic {
			continue
		}
		if txid := binary.NativeEndian.Uint64(meta[48:]); !found || txid > newest {
			root, newest, found = binary.NativeEndian.Uint64(meta[16:]), txid, true
		}
	}
	if !found {
		return errors.New("it has no head")
	}
	return w.page(root)
}

// page checks a page and those below it.
func (w *pageWalk) page(id uint64) error {
	if id < 2 || id > uint64(w.end)/uint64(w.size) || w.seen[id] {
		return fmt.Errorf("page %d is not in it, or in it twice", id)
	}
	w.seen[id] = true
	head := make([]byte, pageHead)
	if _, err := w.file.ReadAt(head, int64(id)*w.size); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	if got := binary.NativeEndian.Uint64(head); got != id {
		return fmt.Errorf("page %d says that it is page %d", id, got)
	}
	length := (int64(binary.NativeEndian.Uint32(head[12:])) + 1) * w.size
	if int64(id)*w.size+length > w.end {
		return fmt.Errorf("page %d is cut", id)
	}
	b := make([]byte, length)
	if _, err := w.file.ReadAt(b, int64(id)*w.size); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return w.elements(id, b)
}

// elements checks what is in a page, or in one that lies in another's value.
func (w *pageWalk) elements(id uint64, b []byte) error {
	if len(b) < pageHead {
		return fmt.Errorf("page %d is cut", id)
	}
	kind, count := binary.NativeEndian.Uint16(b[8:]), int(binary.NativeEndian.Uint16(b[10:]))
	if kind != pageBranch && kind != pageLeaf || pageHead+count*pageElement > len(b) {
		return fmt.Errorf("page %d is none of the log: kind %d with %d elements", id, kind, count)
	}
	for i := range count {
		at := pageHead + i*pageElement
		e := b[at : at+pageElement]
		var err error
		if kind == pageBranch {
			if err = within(b, at, binary.NativeEndian.Uint32(e), binary.NativeEndian.Uint32(e[4:]), 0); err == nil {
				err = w.page(binary.NativeEndian.Uint64(e[8:]))
			}
		} else {
			err = w.leaf(id, b, at)
		}
		if err != nil {
			return fmt.Errorf("element %d of page %d: %w", i, id, err)
		}
	}
	return nil
}

// leaf checks one key with its value, and the bucket that it may be.
func (w *pageWalk) leaf(id uint64, b []byte, at int) error {
	flags, pos := binary.NativeEndian.Uint32(b[at:]), binary.NativeEndian.Uint32(b[at+4:])
	keySize, size := binary.NativeEndian.Uint32(b[at+8:]), binary.NativeEndian.Uint32(b[at+12:])
	if err := within(b, at, pos, keySize, size); err != nil {
		return err
	}
	if flags&leafBucket == 0 {
		return nil
	}
	value := b[at+int(pos)+int(keySize):][:size]
	if len(value) < 16 {
		return errors.New("a bucket is cut")
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return w.page(root)
	}
	return w.elements(id, value[16:])
}

func within(b []byte, at int, pos, key, value uint32) error {
	if uint64(at)+uint64(pos)+uint64(key)+uint64(value) > uint64(len(b)) {
		return errors.New("it reaches out of its page")
	}
	return nil
}
