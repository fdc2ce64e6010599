// Package wire reads and writes the framing of PostgreSQL's protocol version 3: start-up packets, and messages of
// which only the header is understood while the body streams through a buffer of fixed size. It never allocates by
// a length that the peer claims.
//
// Source: PostgreSQL documentation, chapter "Frontend/Backend Protocol", sections "Message Flow" and "Message Formats".
package wire

import (
	"encoding/binary"
	"fmt"
	"io"
)

// MaxMessage is the largest message length that PostgreSQL itself takes or sends (its allocation limit).
const MaxMessage = 1<<30 - 1

// headerSize is one byte of type and four of length; the length counts itself and the body.
const headerSize = 5

// FrameError is a message that no PostgreSQL peer sends; the stream has no known boundary after it.
type FrameError struct{ Reason string }

func (e *FrameError) Error() string { return "protocol violation: " + e.Reason }

// Reader splits a stream into messages. It is not safe for concurrent use.
//
// A call that fails for lack of bytes, a timeout say, consumes nothing: it may be repeated.
type Reader struct {
	src        io.Reader
	buf        []byte
	begin, end int // what is buffered
	typ        byte
	rest       int  // bytes of the current body that are not consumed
	inside     bool // a header has been consumed and its body has not, not wholly
}

// NewReader reads from src through a buffer of size bytes, which is also the largest message that Body returns
// together with its header.
func NewReader(src io.Reader, size int) *Reader { return &Reader{src: src, buf: make([]byte, size)} }

// Next consumes the header of the next message and returns its type and the size of its body. It blocks until the
// header is there. The body of the message before has to be consumed. io.EOF means the end at a message boundary,
// io.ErrUnexpectedEOF inside a header.
func (r *Reader) Next() (typ byte, size int, err error) {
	if r.inside {
		panic("wire: Next before the body was consumed")
	}
	if err := r.fill(headerSize); err != nil {
		return 0, 0, err
	}
	length := binary.BigEndian.Uint32(r.buf[r.begin+1:])
	if length < 4 || length > MaxMessage {
		return 0, 0, &FrameError{fmt.Sprintf("message length %d", length)}
	}
	r.typ, r.rest, r.inside = r.buf[r.begin], int(length)-4, true
	r.begin += headerSize
	if r.rest == 0 {
		r.inside = false
	}
	return r.typ, r.rest, nil
}

// Whole reports whether a next message is in the buffer completely, so that Next and Body would not block.
func (r *Reader) Whole() bool {
	have := r.end - r.begin
	if r.inside || have < headerSize {
		return false
	}
	length := binary.BigEndian.Uint32(r.buf[r.begin+1:])
	return length < 4 || length > MaxMessage || have >= int(length)+1
}

// Fits reports whether the rest of the current body fits into the buffer.
func (r *Reader) Fits() bool { return r.rest <= len(r.buf) }

// Buffered returns what has been read and is not consumed, valid until the next call.
func (r *Reader) Buffered() []byte { return r.buf[r.begin:r.end] }

// Boundary reports whether the reader stands between two messages.
func (r *Reader) Boundary() bool { return !r.inside }

// Peek returns the first n bytes of the rest of the current body, or all of it if it is shorter, without consuming
// them. n is at most the buffer's size. The slice is valid until the next call.
func (r *Reader) Peek(n int) ([]byte, error) {
	n = min(n, r.rest)
	if err := r.fill(n); err != nil {
		return nil, err
	}
	return r.buf[r.begin : r.begin+n], nil
}

// Body consumes and returns the whole rest of the current body, which must fit. The slice is valid until the next call.
func (r *Reader) Body() ([]byte, error) {
	if !r.Fits() {
		return nil, &FrameError{fmt.Sprintf("message of %d bytes where at most %d are taken", r.rest, len(r.buf))}
	}
	body, err := r.Peek(r.rest)
	if err != nil {
		return nil, err
	}
	r.consume(len(body))
	return body, nil
}

// Chunk consumes and returns the next piece of the current body, at least one byte; nothing and no error when the
// body has been consumed. The slice is valid until the next call.
func (r *Reader) Chunk() ([]byte, error) {
	if r.rest == 0 {
		return nil, nil
	}
	if err := r.fill(1); err != nil {
		return nil, err
	}
	n := min(r.rest, r.end-r.begin)
	piece := r.buf[r.begin : r.begin+n]
	r.consume(n)
	return piece, nil
}

// Skip consumes the rest of the current body.
func (r *Reader) Skip() error {
	for r.rest > 0 {
		if _, err := r.Chunk(); err != nil {
			return err
		}
	}
	return nil
}

func (r *Reader) consume(n int) {
	r.begin += n
	r.rest -= n
	if r.rest == 0 {
		r.inside = false
	}
}

// fill blocks until n bytes are buffered.
func (r *Reader) fill(n int) error {
	if r.end-r.begin >= n {
		return nil
	}
	if r.begin == r.end {
		r.begin, r.end = 0, 0
	} else if r.begin+n > len(r.buf) || r.end == len(r.buf) {
		r.end = copy(r.buf, r.buf[r.begin:r.end])
		r.begin = 0
	}
	for r.end-r.begin < n {
		m, err := r.src.Read(r.buf[r.end:])
		r.end += m
		switch {
		case r.end-r.begin >= n:
			return nil
		case err == io.EOF && (r.end > r.begin || r.inside): //nolint:errorlint // io.Reader returns io.EOF itself
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
	}
	return nil
}
