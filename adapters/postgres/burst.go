package postgres

import (
	"encoding/binary"
	"fmt"

	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
)

// bufferSize is the largest message that is looked at whole, with its header; of a larger one the beginning is looked
// at, and the rest streams through.
const bufferSize = 16 << 10

// headerSize is one byte of type and four of length.
const headerSize = 5

// message is one that has arrived: the whole of it, or the beginning of one that is larger than bufferSize.
type message struct {
	typ  byte
	size int    // of its body
	body []byte // what is there of it, valid until the next read
}

func (m message) whole() bool { return len(m.body) == m.size }

// firstMessage finds the message that in begins with; not ok: more has to arrive before it can be looked at.
func firstMessage(in []byte) (m message, ok bool, err error) {
	if len(in) < headerSize {
		return message{}, false, nil
	}
	length := binary.BigEndian.Uint32(in[1:])
	if length < 4 || length > wire.MaxMessage {
		return message{}, false, &wire.FrameError{Reason: fmt.Sprintf("message length %d", length)}
	}
	whole := min(int(length)+1, bufferSize)
	if len(in) < whole {
		return message{}, false, nil
	}
	return message{typ: in[0], size: int(length) - 4, body: in[headerSize:whole]}, true, nil
}

// burst is what has arrived from one side, and what of it goes on to the other. As long as nothing is replaced, left out
// or put in, nothing is copied.
type burst struct {
	in  []byte
	at  int    // in[:at] is dealt with
	run int    // in[run:at] goes on as it is, behind out
	out []byte // copied
}

// left is what is not dealt with yet.
func (b *burst) left() []byte { return b.in[b.at:] }

// pass lets the next n bytes go on as they are.
func (b *burst) pass(n int) { b.at += n }

// skip leaves the next n bytes out.
func (b *burst) skip(n int) {
	b.gather()
	b.at += n
	b.run = b.at
}

// put lets bytes of the proxy's own go on.
func (b *burst) put(bytes ...byte) {
	b.gather()
	b.out = append(b.out, bytes...)
}

// putMessage puts a whole message.
func (b *burst) putMessage(typ byte, body ...[]byte) {
	b.gather()
	b.out = wire.AppendMessage(b.out, typ, body...)
}

func (b *burst) gather() {
	if b.run < b.at {
		b.out = append(b.out, b.in[b.run:b.at]...)
		b.run = b.at
	}
}

// result is what goes on, valid as long as what arrived is.
func (b *burst) result() []byte {
	if len(b.out) == 0 {
		return b.in[b.run:b.at]
	}
	b.gather()
	return b.out
}

// body is what is outstanding of a message that streams.
type body struct {
	rest int
	drop bool // it does not go on
}

// stream lets what has arrived of it go on, or leaves it out.
func (s *body) stream(b *burst) {
	n := min(s.rest, len(b.left()))
	s.rest -= n
	if s.drop {
		b.skip(n)
	} else {
		b.pass(n)
	}
}

// pass lets a message go on as it is.
func (s *body) pass(b *burst, m message) {
	b.pass(headerSize)
	*s = body{rest: m.size}
	s.stream(b)
}

// skip leaves a message out.
func (s *body) skip(b *burst, m message) {
	b.skip(headerSize)
	*s = body{rest: m.size, drop: true}
	s.stream(b)
}
