package wire

import (
	"bytes"
	"encoding/binary"
)

// AppendHeader appends a message's header for a body of size bytes.
func AppendHeader(buf []byte, typ byte, size int) []byte {
	return binary.BigEndian.AppendUint32(append(buf, typ), uint32(size+4))
}

// AppendMessage appends a whole message.
func AppendMessage(buf []byte, typ byte, body ...[]byte) []byte {
	size := 0
	for _, b := range body {
		size += len(b)
	}
	buf = AppendHeader(buf, typ, size)
	for _, b := range body {
		buf = append(buf, b...)
	}
	return buf
}

// CString cuts a zero-terminated string off the front of b.
func CString(b []byte) (s, rest []byte, ok bool) { return bytes.Cut(b, []byte{0}) }

// Notice is what an ErrorResponse or NoticeResponse says.
type Notice struct {
	Severity string // never translated: ERROR, FATAL, PANIC, WARNING …
	Code     string // SQLSTATE
	Message  string
	Detail   string
	Hint     string
}

// Append appends the notice's fields, which is the message's body.
func (n Notice) Append(buf []byte) []byte {
	fields := []struct {
		code  byte
		value string
	}{{'S', n.Severity}, {'V', n.Severity}, {'C', n.Code}, {'M', n.Message}, {'D', n.Detail}, {'H', n.Hint}}
	for _, f := range fields {
		if f.value == "" {
			continue
		}
		buf = append(append(append(buf, f.code), f.value...), 0)
	}
	return append(buf, 0)
}

// ErrorResponse is the notice as a whole message.
func (n Notice) ErrorResponse() []byte { return AppendMessage(nil, 'E', n.Append(nil)) }

// ParseNotice reads the fields of a body, or of the first part of one: a field that is cut off is left out.
func ParseNotice(body []byte) Notice {
	var n Notice
	for len(body) > 0 && body[0] != 0 {
		value, rest, ok := CString(body[1:])
		if !ok {
			return n
		}
		switch body[0] {
		case 'S':
			if n.Severity == "" {
				n.Severity = string(value)
			}
		case 'V':
			n.Severity = string(value)
		case 'C':
			n.Code = string(value)
		case 'M':
			n.Message = string(value)
		case 'D':
			n.Detail = string(value)
		case 'H':
			n.Hint = string(value)
		}
		body = rest
	}
	return n
}
