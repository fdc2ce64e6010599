// Package wire writes and reads the messages of a session: the same bytes as protobuf does, but without reflection, which
// calls and answers by the ten thousand a second make worth it. Only what comes in such numbers is done here: acquires, renewals,
// releases. Whatever else there is, and whatever is not quite as it is written here, goes the way of all messages, which
// also knows what is wrong with it.
//
// What is read shares nothing with the bytes that it was read from. All text of one call or answer is one string, so that
// one that is kept does not keep those that came with it.
package wire

import (
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// Numbers of the fields of lock.proto.
const (
	callsField   = 1 // of SessionRequest
	answersField = 1 // of SessionResponse

	idField      = 1 // of Call and of Answer
	acquireField = 2
	renewField   = 3
	releaseField = 4
	timeoutField = 8 // of Call
)

// writer puts a message together. Fields with the zero value are left out, as in protobuf.
type writer struct {
	out   []byte
	fault bool // a text is not UTF-8
}

func (w *writer) text(number protowire.Number, s string) {
	if s == "" {
		return
	}
	w.fault = w.fault || !utf8.ValidString(s)
	w.out = protowire.AppendString(protowire.AppendTag(w.out, number, protowire.BytesType), s)
}

func (w *writer) number(number protowire.Number, n uint64) {
	if n != 0 {
		w.always(number, n)
	}
}

// always writes a number also if it is zero.
func (w *writer) always(number protowire.Number, n uint64) {
	w.out = protowire.AppendVarint(protowire.AppendTag(w.out, number, protowire.VarintType), n)
}

func (w *writer) flag(number protowire.Number, is bool) {
	if is {
		w.always(number, 1)
	}
}

// open begins a message within the message; close ends it.
func (w *writer) open(number protowire.Number) (at int) {
	w.out = append(protowire.AppendTag(w.out, number, protowire.BytesType), 0)
	return len(w.out)
}

// close writes the length of a message, for which open has left one byte.
func (w *writer) close(at int) {
	n := len(w.out) - at
	if more := protowire.SizeVarint(uint64(n)) - 1; more > 0 {
		w.out = append(w.out, make([]byte, more)...)
		copy(w.out[at+more:], w.out[at:at+n])
	}
	protowire.AppendVarint(w.out[:at-1], uint64(n))
}

// reader takes the fields off a message.
type reader struct {
	left  string
	fault bool // it is not as it is written here
}

func (r *reader) more() bool { return !r.fault && r.left != "" }

// field is one field of a message.
type field struct {
	number int
	n      uint64 // of a number
	text   string // of a text or a message
	texts  bool   // it is one of these
}

// next takes the next field. Of any other kind is none that is read here.
func (r *reader) next() field {
	tag := r.varint()
	f := field{number: int(tag >> 3), texts: protowire.Type(tag&7) == protowire.BytesType}
	switch {
	case tag>>3 > uint64(protowire.MaxValidNumber):
		r.fault = true
	case protowire.Type(tag&7) == protowire.VarintType:
		f.n = r.varint()
	case f.texts:
		n := r.varint()
		if n > uint64(len(r.left)) {
			r.fault = true
			return field{}
		}
		f.text, r.left = r.left[:n], r.left[n:]
	default:
		r.fault = true
	}
	return f
}

// varint takes a number.
func (r *reader) varint() (n uint64) {
	for i := 0; i < len(r.left) && i < maxVarint; i++ {
		b := r.left[i]
		n |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			r.left = r.left[i+1:]
			return n
		}
	}
	r.fault = true // it is cut off, or does not fit
	r.left = ""
	return 0
}

// maxVarint is the longest number that is read here: protobuf knows one byte more, which no number of a session needs.
const maxVarint = 9

// name is the text of a field.
func (r *reader) name(f field) string {
	r.fault = r.fault || !f.texts || !utf8.ValidString(f.text)
	return f.text
}

// number is the number of a field.
func (r *reader) number(f field) uint64 {
	r.fault = r.fault || f.texts
	return f.n
}

func (r *reader) flag(f field) bool { return r.number(f) != 0 }
