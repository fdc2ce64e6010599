package archive

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// Reader reads an archive: NewReader, then Next until it is io.EOF, with the group's content from Read between. What it
// hands out is checked, but whether the archive is whole is known only at the end. Check reads all of it.
type Reader struct {
	r      *bufio.Reader
	header Header
	sum    uint32
	at     int64
	rest   []byte // content that was not read yet
	inside bool   // a group
	seen   map[uint16]bool
	err    error
}

// NewReader reads the header from r. Errors are ErrForeign, ErrCut, ErrDamaged, or those of r.
func NewReader(r io.Reader) (*Reader, error) {
	in := &Reader{r: bufio.NewReaderSize(r, maxContent), seen: map[uint16]bool{}}
	first := make([]byte, len(magic))
	if n, err := io.ReadFull(in.r, first); err != nil && !short(err) {
		return nil, err
	} else if string(first[:n]) != magic {
		return nil, ErrForeign
	}
	in.took(first)
	kind, content, err := in.frame()
	if err != nil {
		return nil, err
	}
	if kind != kindHeader {
		return nil, damaged(in.at, "no header")
	}
	if err := json.Unmarshal(content, &in.header); err != nil {
		return nil, damaged(in.at, "its header: %v", err)
	}
	return in, nil
}

// Header is what the archive says of the cluster.
func (r *Reader) Header() Header { return r.header }

// Next goes to the next group, over what was not read of this one. It returns io.EOF after the last, when the archive is
// whole.
func (r *Reader) Next() (Group, error) {
	for r.inside {
		if err := r.more(); err != nil {
			return Group{}, err
		}
	}
	kind, content, err := r.frame()
	if err != nil {
		return Group{}, err
	}
	switch kind {
	case kindEnd:
		return Group{}, r.end()
	case kindGroup:
		return r.begin(content)
	default:
		return Group{}, damaged(r.at, "a frame of kind %q between groups", kind)
	}
}

func (r *Reader) begin(content []byte) (Group, error) {
	var g Group
	if err := json.Unmarshal(content, &g); err != nil {
		return Group{}, damaged(r.at, "a group: %v", err)
	}
	if int(g.Group) >= r.header.Groups || r.seen[g.Group] {
		return Group{}, damaged(r.at, "group %d, of %d groups, twice or out of place", g.Group, r.header.Groups)
	}
	r.seen[g.Group], r.inside = true, true
	return g, nil
}

// end is io.EOF unless something follows.
func (r *Reader) end() error {
	switch _, err := r.r.ReadByte(); {
	case err == nil:
		return damaged(r.at, "something follows its end")
	case errors.Is(err, io.EOF):
		return io.EOF
	default:
		return err
	}
}

// Read reads the content of the group that Next went to, and returns io.EOF at its end.
func (r *Reader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if !r.inside {
			return 0, io.EOF
		}
		if err := r.more(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// more takes the next frame of a group.
func (r *Reader) more() error {
	kind, content, err := r.frame()
	if err != nil {
		return err
	}
	switch kind {
	case kindContent:
		r.rest = content
	case kindGroupEnd:
		r.rest, r.inside = nil, false
	default:
		return damaged(r.at, "a frame of kind %q within a group", kind)
	}
	return nil
}

// frame reads one frame. Its first error is its last.
func (r *Reader) frame() (kind byte, content []byte, err error) {
	if r.err == nil {
		kind, content, r.err = r.readFrame()
	}
	return kind, content, r.err
}

func (r *Reader) readFrame() (kind byte, content []byte, err error) {
	head := make([]byte, frameHead)
	if err := r.full(head); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(head[1:])
	if binary.BigEndian.Uint32(head[5:]) != crc32.Checksum(head[:5], castagnoli) || length > maxContent {
		return 0, nil, damaged(r.at-frameHead, "no frame begins there")
	}
	content = make([]byte, length)
	if err := r.full(content); err != nil {
		return 0, nil, err
	}
	want := r.sum
	tail := make([]byte, frameTail)
	if err := r.full(tail); err != nil {
		return 0, nil, err
	}
	if binary.BigEndian.Uint32(tail) != want {
		return 0, nil, damaged(r.at, "the checksum of what stands before it is another")
	}
	return head[0], content, nil
}

func (r *Reader) full(p []byte) error {
	n, err := io.ReadFull(r.r, p)
	if short(err) {
		return cut(r.at + int64(n))
	}
	if err != nil {
		return fmt.Errorf("read snapshot file: %w", err)
	}
	r.took(p)
	return nil
}

func (r *Reader) took(p []byte) {
	r.sum = crc32.Update(r.sum, castagnoli, p)
	r.at += int64(len(p))
}

func short(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) }
