package wire

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
)

// Codes that stand where a start-up packet has its protocol version.
const (
	CancelCode = 1234<<16 | 5678
	SSLCode    = 1234<<16 | 5679
	GSSCode    = 1234<<16 | 5680
)

// Bounds of a start-up packet, its length included. The upper one is PostgreSQL's own.
const (
	minStartup = 8
	MaxStartup = 4 + 10_000 // its limit does not count the length itself
)

// ErrProxyHeader is a header of the PROXY protocol where a start-up packet belongs.
var ErrProxyHeader = &FrameError{"a header of the PROXY protocol in place of a start-up packet"}

// Beginnings of such a header, in its two versions.
const (
	proxyLine   = "PROXY "
	proxyBinary = "\r\n\r\n\x00\r\nQ"
)

// ReadStartup reads one start-up packet and returns its code and what follows it. It reads not one byte more: what
// the client sends behind a request for TLS must not be taken for part of the encrypted stream. io.EOF means that
// the client closed before the first byte.
func ReadStartup(src io.Reader) (code uint32, body []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(src, head[:]); err != nil {
		return 0, nil, err
	}
	length := binary.BigEndian.Uint32(head[:])
	if string(head[:len(proxyLine)]) == proxyLine || string(head[:]) == proxyBinary {
		return 0, nil, ErrProxyHeader
	}
	if length < minStartup || length > MaxStartup {
		return 0, nil, &FrameError{fmt.Sprintf("start-up packet of length %d; allowed are %d to %d", length, minStartup, MaxStartup)}
	}
	body = make([]byte, length-minStartup)
	if _, err := io.ReadFull(src, body); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return binary.BigEndian.Uint32(head[4:]), body, nil
}

// Request is a packet that is a code and a body: what ReadStartup reads.
func Request(code uint32, body []byte) []byte {
	packet := binary.BigEndian.AppendUint32(nil, uint32(len(body)+minStartup))
	packet = binary.BigEndian.AppendUint32(packet, code)
	return append(packet, body...)
}

// Param is one start-up parameter.
type Param struct{ Name, Value string }

// Startup is a start-up message: the protocol version and the parameters in the client's order.
type Startup struct {
	Protocol uint32 // major << 16 | minor
	Params   []Param
}

// ParseStartup reads the body of a start-up message.
func ParseStartup(protocol uint32, body []byte) (Startup, error) {
	s := Startup{Protocol: protocol}
	for {
		name, rest, ok := bytes.Cut(body, []byte{0})
		switch {
		case !ok:
			return Startup{}, &FrameError{"start-up packet without its terminator"}
		case len(name) == 0 && len(rest) > 0:
			return Startup{}, &FrameError{"start-up packet goes on behind its terminator"}
		case len(name) == 0:
			return s, nil
		}
		value, rest, ok := bytes.Cut(rest, []byte{0})
		if !ok {
			return Startup{}, &FrameError{"start-up packet with a parameter that has no value"}
		}
		s.Params = append(s.Params, Param{string(name), string(value)})
		body = rest
	}
}

// Value is the last value of a parameter, as PostgreSQL takes it; empty if there is none.
func (s Startup) Value(name string) string {
	value := ""
	for _, p := range s.Params {
		if p.Name == name {
			value = p.Value
		}
	}
	return value
}

// Take removes every parameter of a name, in whatever case, and returns the values.
func (s *Startup) Take(name string) []string {
	var values []string
	kept := s.Params[:0]
	for _, p := range s.Params {
		if strings.EqualFold(p.Name, name) {
			values = append(values, p.Value)
			continue
		}
		kept = append(kept, p)
	}
	s.Params = kept
	return values
}

// Set puts a parameter in the place of all of that name.
func (s *Startup) Set(name, value string) {
	s.Take(name)
	s.Params = append(s.Params, Param{name, value})
}

// Packet is the message as it goes over the wire.
func (s Startup) Packet() []byte {
	var body []byte
	for _, p := range s.Params {
		body = append(append(body, p.Name...), 0)
		body = append(append(body, p.Value...), 0)
	}
	return Request(s.Protocol, append(body, 0))
}
