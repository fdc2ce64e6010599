package audit

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// flushAt is how many bytes are gathered at most before they are written.
const flushAt = 64 << 10

// file is the audit file: appended to, cut back to whole entries, renamed when it has become too long.
type file struct {
	config  Config
	f       *os.File
	size    int64  // of what is in the file for certain
	last    uint64 // index of the last entry in the file for certain
	pending bytes.Buffer
	next    uint64 // index of the last entry in pending
	failing bool
}

func openFile(config Config) (*file, error) {
	o := &file{config: config}
	if err := o.open(); err != nil {
		return nil, fmt.Errorf("audit log: %w", err)
	}
	if o.last == 0 { // a new file: the one before may know
		for _, old := range o.older() {
			o.last = max(o.last, old.index)
		}
	}
	return o, nil
}

// open opens the file and cuts off what a crash left half written.
func (o *file) open() error {
	f, err := os.OpenFile(o.config.Path, os.O_RDWR|os.O_CREATE, 0o640)
	if err != nil {
		return err
	}
	size, last, err := wholeEntries(f)
	if err == nil {
		err = f.Truncate(size)
	}
	if err != nil {
		return errors.Join(err, f.Close())
	}
	o.f, o.size, o.last = f, size, last
	return nil
}

// tail is how much of the end of a file is looked at. One entry's lines are far shorter than it.
const tail = 4 << 20

// wholeEntries finds where the last whole entry of the file ends, and its index.
func wholeEntries(f *os.File) (size int64, last uint64, err error) {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, 0, err
	}
	start := max(0, end-tail)
	text := make([]byte, end-start)
	if _, err := f.ReadAt(text, start); err != nil && !errors.Is(err, io.EOF) {
		return 0, 0, err
	}
	for {
		newline := bytes.LastIndexByte(text, '\n')
		if newline < 0 {
			return start, 0, nil
		}
		text = text[:newline+1]
		begin := bytes.LastIndexByte(text[:newline], '\n') + 1
		var l line
		if err := json.Unmarshal(text[begin:newline], &l); err == nil && !l.More {
			return start + int64(len(text)), l.Index, nil
		}
		text = text[:begin]
	}
}

// add gathers the lines of one entry. False means that something gathered before could not be written.
func (o *file) add(index uint64, lines []line) bool {
	var stamp [len(time.RFC3339Nano) + 2]byte
	var at []byte // the time of the line before in text, mostly that of all
	for i := range lines {
		l := &lines[i]
		l.Group = o.config.Group
		if l.Time.IsZero() {
			l.Time, l.Node = time.Now().UTC(), o.config.Node
		}
		if i == 0 || !l.Time.Equal(lines[i-1].Time) {
			at = l.Time.AppendFormat(stamp[:0], time.RFC3339Nano)
		}
		o.pending.Write(append(l.append(o.pending.AvailableBuffer(), at), '\n'))
	}
	o.next = index
	return o.pending.Len() < flushAt || o.flush()
}

// flush writes what was gathered, or forgets it and returns false.
func (o *file) flush() bool {
	if o.pending.Len() == 0 {
		return true
	}
	if o.size+int64(o.pending.Len()) > o.config.MaxBytes && o.size > 0 {
		if err := o.rotate(); err != nil {
			return o.fail(err)
		}
	}
	n, err := o.f.WriteAt(o.pending.Bytes(), o.size)
	if err != nil {
		_ = o.f.Truncate(o.size)
		return o.fail(fmt.Errorf("wrote %d bytes: %w", n, err))
	}
	o.size += int64(n)
	o.last = o.next
	o.pending.Reset()
	if o.failing {
		o.failing = false
		o.config.Logger.Warn("audit log is written again", "index", o.last)
	}
	return true
}

func (o *file) fail(err error) bool {
	o.pending.Reset()
	if !o.failing {
		o.failing = true
		o.config.Logger.Error("audit log cannot be written, decisions are dropped from it", "path", o.config.Path, "error", err)
	}
	return false
}

// rotate renames the file after the last index in it and begins a new one.
func (o *file) rotate() error {
	if err := o.f.Sync(); err != nil {
		return err
	}
	last := o.last
	if err := os.Rename(o.config.Path, o.config.Path+"."+strconv.FormatUint(last, 10)); err != nil {
		return err
	}
	full := o.f
	if err := o.open(); err != nil {
		o.f, o.last = full, last // go on with the renamed one
		return err
	}
	_ = full.Close()
	o.last = last
	old := o.older()
	for _, gone := range old[:max(0, len(old)-o.config.Keep)] {
		if err := os.Remove(gone.path); err != nil {
			o.config.Logger.Warn("old audit file not removed", "path", gone.path, "error", err)
		}
	}
	return nil
}

type olderFile struct {
	path  string
	index uint64
}

// older lists the renamed files, oldest first.
func (o *file) older() []olderFile {
	names, _ := filepath.Glob(escape(o.config.Path) + ".*")
	var files []olderFile
	for _, name := range names {
		if index, err := strconv.ParseUint(strings.TrimPrefix(name, o.config.Path+"."), 10, 64); err == nil {
			files = append(files, olderFile{name, index})
		}
	}
	slices.SortFunc(files, func(a, b olderFile) int {
		switch {
		case a.index < b.index:
			return -1
		case a.index > b.index:
			return 1
		}
		return 0
	})
	return files
}

// escape keeps the characters of a path from being read as a pattern.
func escape(path string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(path)
}

func (o *file) close() {
	if err := errors.Join(o.f.Sync(), o.f.Close()); err != nil {
		o.config.Logger.Error("audit log not closed", "path", o.config.Path, "error", err)
	}
}
