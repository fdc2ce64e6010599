// Package proxyheader reads the header with which a load balancer begins a connection to name the client that it speaks for.
// Source: haproxy.org, "The PROXY protocol, versions 1 and 2".
package proxyheader

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/pires/go-proxyproto"
)

// Fault is why a header is refused.
type Fault string

// The faults.
const (
	Missing    Fault = "missing"    // a load balancer began with something else
	Malformed  Fault = "malformed"  // or with a header that cannot be, or that has no end
	Incomplete Fault = "incomplete" // the rest of it did not come, or not in time
	Unexpected Fault = "unexpected" // somebody else sent one, or a load balancer a second one
)

// Error is a header that is refused.
type Error struct {
	Fault Fault
	Err   error
}

func (e *Error) Error() string {
	return "PROXY protocol header " + string(e.Fault) + ": " + e.Err.Error()
}
func (e *Error) Unwrap() error { return e.Err }

// Sizes of headers. A version 1 header is a line; a version 2 header has a length, behind which the connection's own bytes begin.
const (
	maxLine    = 107 // its end included
	minLine    = len("PROXY UNKNOWN\r\n")
	lineBegin  = "PROXY "
	binaryHead = 16
	maxBinary  = 4096 // behind the head: a client's certificate may be in it
)

// Read blocks until it has read one header, and reads not one byte more: what follows is the client's. The address is nil where the header says
// that there is none to be told: the load balancer speaks for itself, or for a client that came in another way than by TCP. io.EOF means that nothing came at all; other errors are *Error.
func Read(src io.Reader) (client net.Addr, err error) {
	raw := make([]byte, len(lineBegin), binaryHead)
	if _, err := io.ReadFull(src, raw); err != nil {
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		return nil, incomplete(err)
	}
	switch {
	case string(raw) == lineBegin:
		raw, err = readLine(src, raw)
	case bytes.HasPrefix(proxyproto.SIGV2, raw):
		raw, err = readBinary(src, raw)
	default:
		err = &Error{Missing, fmt.Errorf("the connection begins with %q", raw)}
	}
	if err != nil {
		return nil, err
	}
	return parse(raw)
}

// incomplete is not io.EOF: something came.
func incomplete(err error) *Error {
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return &Error{Incomplete, err}
}

func readLine(src io.Reader, raw []byte) ([]byte, error) {
	for want := minLine - len(raw); ; want = 1 {
		if len(raw)+want > maxLine {
			return nil, &Error{Malformed, fmt.Errorf("a line of more than %d bytes", maxLine)}
		}
		raw = append(raw, make([]byte, want)...)
		if _, err := io.ReadFull(src, raw[len(raw)-want:]); err != nil {
			return nil, incomplete(err)
		}
		if bytes.IndexByte(raw, '\n') >= 0 {
			return raw, nil
		}
	}
}

func readBinary(src io.Reader, raw []byte) ([]byte, error) {
	raw = raw[:binaryHead]
	if _, err := io.ReadFull(src, raw[len(lineBegin):]); err != nil {
		return nil, incomplete(err)
	}
	if !bytes.HasPrefix(raw, proxyproto.SIGV2) {
		return nil, &Error{Missing, fmt.Errorf("the connection begins with %q", raw)}
	}
	size := int(binary.BigEndian.Uint16(raw[binaryHead-2:]))
	if size > maxBinary {
		return nil, &Error{Malformed, fmt.Errorf("a header of %d bytes; at most %d are taken", size, maxBinary)}
	}
	raw = append(raw, make([]byte, size)...)
	if _, err := io.ReadFull(src, raw[binaryHead:]); err != nil {
		return nil, incomplete(err)
	}
	return raw, nil
}

// parse takes a whole header apart. What else it has to say (TLV) is not looked at.
func parse(raw []byte) (net.Addr, error) {
	const otherwise = "\x21\x00" // version 2, a client that came in another way
	if raw[0] == '\r' && string(raw[12:14]) == otherwise {
		return nil, nil
	}
	in := bufio.NewReader(bytes.NewReader(raw))
	header, err := proxyproto.Read(in)
	switch {
	case err != nil:
		return nil, &Error{Malformed, err}
	case in.Buffered() > 0:
		return nil, &Error{Malformed, fmt.Errorf("%d bytes too many", in.Buffered())}
	case header.Command.IsLocal(), header.TransportProtocol.IsUnspec(), header.TransportProtocol.IsUnix():
		return nil, nil
	}
	source, _, ok := header.TCPAddrs()
	if !ok {
		return nil, &Error{Malformed, errors.New("not of a TCP connection")}
	}
	return source, nil
}
