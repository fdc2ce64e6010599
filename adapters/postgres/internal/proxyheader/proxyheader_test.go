package proxyheader

import (
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/pires/go-proxyproto"
)

// binaryHeader is one of version 2 with a command, a family and what follows.
func binaryHeader(command, family byte, body string) string {
	return string(proxyproto.SIGV2) + string([]byte{command, family, byte(len(body) >> 8), byte(len(body))}) + body
}

const (
	fourPort = "\xc0\x00\x02\x07\x0a\x00\x00\x01\x30\x39\x1d\xd0" // 192.0.2.7:12345 to 10.0.0.1:7632
	textTLV  = "\x02\x00\x03abc"
)

var sixPort = string(net.ParseIP("2001:db8::7")) + string(net.ParseIP("2001:db8::1")) + "\x30\x39\x1d\xd0"

// goodHeaders are headers and the client that each names; empty: none.
var goodHeaders = map[string]struct{ header, client string }{
	"line, IPv4":            {"PROXY TCP4 192.0.2.7 10.0.0.1 12345 7632\r\n", "192.0.2.7:12345"},
	"line, IPv6":            {"PROXY TCP6 2001:db8::7 2001:db8::1 12345 7632\r\n", "[2001:db8::7]:12345"},
	"line, unknown":         {"PROXY UNKNOWN\r\n", ""},
	"line, unknown, long":   {"PROXY UNKNOWN ffff::1 ffff::2 65535 65535\r\n", ""},
	"binary, IPv4":          {binaryHeader(0x21, 0x11, fourPort), "192.0.2.7:12345"},
	"binary, IPv6":          {binaryHeader(0x21, 0x21, sixPort), "[2001:db8::7]:12345"},
	"binary, TLV":           {binaryHeader(0x21, 0x11, fourPort+textTLV), "192.0.2.7:12345"},
	"binary, TLV that lies": {binaryHeader(0x21, 0x11, fourPort+"\x02\xff\xffa"), "192.0.2.7:12345"},
	"binary, largest":       {binaryHeader(0x21, 0x11, fourPort+"\x04\x0f\xf1"+strings.Repeat("\x00", 4081)), "192.0.2.7:12345"},
	"binary, local":         {binaryHeader(0x20, 0x00, ""), ""},
	"binary, local, IPv4":   {binaryHeader(0x20, 0x11, fourPort), ""},
	"binary, of no family":  {binaryHeader(0x21, 0x00, textTLV), ""},
	"binary, unix":          {binaryHeader(0x21, 0x31, strings.Repeat("a", 216)), ""},
}

// However a header arrives, it is read as a whole and nothing behind it is.
func TestHeaderIsReadToItsLastByte(t *testing.T) {
	const behind = "PROXY TCP4 the client's own"
	for name, c := range goodHeaders {
		for way, reader := range map[string]func(io.Reader) io.Reader{
			"at once": func(r io.Reader) io.Reader { return r }, "byte by byte": iotest.OneByteReader, "in halves": iotest.HalfReader,
		} {
			left := bytes.NewReader([]byte(c.header + behind))
			client, err := Read(reader(left))
			got := ""
			if client != nil {
				got = client.String()
			}
			rest, _ := io.ReadAll(left)
			if err != nil || got != c.client || string(rest) != behind {
				t.Errorf("%s, %s: got %q, %v, left %q, want %q", name, way, got, err, rest, c.client)
			}
		}
		for at := 1; at < len(c.header); at++ {
			if _, err := Read(strings.NewReader(c.header[:at])); !isFault(err, Incomplete) || errors.Is(err, io.EOF) {
				t.Errorf("%s, cut behind byte %d: got %v", name, at, err)
			}
		}
	}
	if _, err := Read(strings.NewReader("")); !errors.Is(err, io.EOF) {
		t.Errorf("nothing at all: got %v", err)
	}
}

func isFault(err error, fault Fault) bool {
	found, ok := errors.AsType[*Error](err)
	return ok && found.Fault == fault
}

func TestHeaderThatCannotBe(t *testing.T) {
	for name, c := range map[string]struct {
		header string
		fault  Fault
	}{
		"a start-up packet":         {"\x00\x00\x00\x08\x04\xd2\x16\x2f", Missing},
		"TLS":                       {"\x16\x03\x01\x02\x00\x01\x00", Missing},
		"half a signature":          {"\r\n\r\n\x00\r\nQUIX\n" + "\x21\x11\x00\x0c" + fourPort, Missing},
		"line, small letters":       {"proxy TCP4 192.0.2.7 10.0.0.1 1 2\r\n", Missing},
		"line, too long":            {"PROXY UNKNOWN " + strings.Repeat("x", 200) + "\r\n", Malformed},
		"line, no return":           {"PROXY TCP4 192.0.2.7 10.0.0.1 12345 7632\n", Malformed},
		"line, early end":           {"PROXY \r\nTCP4 192.0.2.7 10.0.0.1 12345 7632\r\n", Malformed},
		"line, other family":        {"PROXY TCP6 192.0.2.7 10.0.0.1 12345 7632\r\n", Malformed},
		"line, no address":          {"PROXY TCP4 lb1 10.0.0.1 12345 7632\r\n", Malformed},
		"line, port":                {"PROXY TCP4 192.0.2.7 10.0.0.1 65536 7632\r\n", Malformed},
		"line, datagrams":           {"PROXY UDP4 192.0.2.7 10.0.0.1 12345 7632\r\n", Malformed},
		"line, without ports":       {"PROXY TCP4 192.0.2.7 10.0.0.1\r\n", Malformed},
		"binary, version 1":         {binaryHeader(0x11, 0x11, fourPort), Malformed},
		"binary, command":           {binaryHeader(0x22, 0x11, fourPort), Malformed},
		"binary, family":            {binaryHeader(0x21, 0x41, fourPort), Malformed},
		"binary, datagrams":         {binaryHeader(0x21, 0x12, fourPort), Malformed},
		"binary, short of a family": {binaryHeader(0x21, 0x21, fourPort), Malformed},
		"binary, empty":             {binaryHeader(0x21, 0x11, ""), Malformed},
		"binary, too long":          {binaryHeader(0x21, 0x11, fourPort+strings.Repeat("\x00", 4085)), Malformed},
	} {
		if client, err := Read(strings.NewReader(c.header)); !isFault(err, c.fault) || client != nil {
			t.Errorf("%s: got %v, %v, want %s", name, client, err, c.fault)
		}
	}
}

// FuzzHeader: whatever a peer sends, a header is bounded, names a TCP address or nobody, and says the same in pieces.
func FuzzHeader(f *testing.F) {
	for _, c := range goodHeaders {
		f.Add([]byte(c.header + "rest"))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		whole := bytes.NewReader(in)
		client, err := Read(whole)
		if took := len(in) - whole.Len(); took > binaryHead+maxBinary {
			t.Errorf("took %d bytes", took)
		}
		if _, tcp := client.(*net.TCPAddr); client != nil && (!tcp || err != nil) {
			t.Errorf("client %#v, error %v", client, err)
		}
		pieces := bytes.NewReader(in)
		again, err2 := Read(iotest.OneByteReader(pieces))
		if (err == nil) != (err2 == nil) || pieces.Len() != whole.Len() || client != nil && client.String() != again.String() {
			t.Errorf("in pieces %v, %v, at once %v, %v", again, err2, client, err)
		}
	})
}
