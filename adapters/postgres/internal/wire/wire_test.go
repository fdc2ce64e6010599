package wire

import (
	"bytes"
	"errors"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

func TestReader(t *testing.T) {
	stream := AppendMessage(nil, 'Q', []byte("select 1\x00"))
	stream = AppendMessage(stream, 'S')
	stream = AppendMessage(stream, 'd', bytes.Repeat([]byte("x"), 1000))
	stream = AppendMessage(stream, 'Z', []byte("I"))
	want := []string{"Q select 1\x00", "S ", "d " + strings.Repeat("x", 1000), "Z I"}
	for name, src := range map[string]io.Reader{
		"at once":      bytes.NewReader(stream),
		"byte by byte": iotest.OneByteReader(bytes.NewReader(stream)),
		"by halves":    iotest.HalfReader(bytes.NewReader(stream)),
		"data and EOF": iotest.DataErrReader(bytes.NewReader(stream)),
	} {
		r := NewReader(src, 64)
		got, err := readMessages(r)
		if !slices.Equal(got, want) || !errors.Is(err, io.EOF) {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
	for cut := range stream {
		_, err := readMessages(NewReader(bytes.NewReader(stream[:cut]), 64))
		boundary := cut == 0 || cut == 14 || cut == 19 || cut == 19+1005
		if boundary != errors.Is(err, io.EOF) || !boundary && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
}

func readMessages(r *Reader) (messages []string, err error) {
	for {
		typ, size, err := r.Next()
		if err != nil {
			return messages, err
		}
		message := string(typ) + " "
		if r.Fits() {
			head, err := r.Peek(3)
			if err != nil {
				return messages, err
			}
			first := string(head)
			body, err := r.Body()
			if err != nil {
				return messages, err
			}
			if len(body) != size || !strings.HasPrefix(string(body), first) {
				return messages, errors.New("body and header differ")
			}
			messages = append(messages, message+string(body))
			continue
		}
		for {
			piece, err := r.Chunk()
			if err != nil {
				return messages, err
			}
			if len(piece) == 0 {
				break
			}
			message += string(piece)
		}
		messages = append(messages, message)
	}
}

// interrupted fails every other read.
type interrupted struct {
	src io.Reader
	n   int
}

func (i *interrupted) Read(p []byte) (int, error) {
	i.n++
	if i.n%2 == 1 {
		return 0, os.ErrDeadlineExceeded
	}
	return i.src.Read(p[:1])
}

func TestReadsCanBeRepeated(t *testing.T) {
	r := NewReader(&interrupted{src: bytes.NewReader(AppendMessage(nil, 'Q', []byte("body")))}, 64)
	again := func(read func() error) {
		for err := read(); err != nil; err = read() {
			if !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
		}
	}
	var body []byte
	again(func() (err error) { _, _, err = r.Next(); return err })
	again(func() (err error) { body, err = r.Body(); return err })
	if string(body) != "body" {
		t.Errorf("got %q", body)
	}
}

func TestLengthsThatLie(t *testing.T) {
	for _, head := range []string{"Q\x00\x00\x00\x00", "Q\x00\x00\x00\x03", "Q\xff\xff\xff\xff", "Q\x80\x00\x00\x00", "Q\x40\x00\x00\x00"} {
		_, _, err := NewReader(strings.NewReader(head), 64).Next()
		var frame *FrameError
		if !errors.As(err, &frame) {
			t.Errorf("% x: %v", head, err)
		}
	}
	r := NewReader(strings.NewReader("Q\x3f\xff\xff\xff"), 64)
	if _, _, err := r.Next(); err != nil || r.Fits() {
		t.Errorf("the longest message: %v", err)
	}
	if _, err := r.Body(); err == nil {
		t.Error("a gigabyte was taken for a body that fits")
	}
}

func TestStartupRoundTrip(t *testing.T) {
	s := Startup{Protocol: 3 << 16, Params: []Param{{"user", "app"}, {"Fence.Ticket", "a"}, {"fence.ticket", "b"}, {"x", ""}}}
	code, body, err := ReadStartup(iotest.OneByteReader(bytes.NewReader(s.Packet())))
	if err != nil {
		t.Fatal(err)
	}
	got, err := ParseStartup(code, body)
	if err != nil || !slices.Equal(got.Params, s.Params) || got.Protocol != s.Protocol {
		t.Fatalf("got %+v, %v", got, err)
	}
	if taken := got.Take("fence.ticket"); !slices.Equal(taken, []string{"a", "b"}) || len(got.Params) != 2 {
		t.Errorf("took %v, left %v", taken, got.Params)
	}
	for cut := range s.Packet() {
		if _, _, err := ReadStartup(bytes.NewReader(s.Packet()[:cut])); err == nil {
			t.Errorf("cut at %d: accepted", cut)
		}
	}
}

func TestTakeOption(t *testing.T) {
	for options, want := range map[string]struct{ rest, values string }{
		"":                                    {"", ""},
		"-c a=b":                              {"-c a=b", ""},
		"-c fence.ticket=x":                   {"", "x"},
		"-cfence.ticket=x -c a=b":             {"-c a=b", "x"},
		"-c a=b --FENCE.Ticket=x  -e":         {"-c a=b -e", "x"},
		`-c a=b\ c\\d -c fence.ticket=x`:      {`-c a=b\ c\\d`, "x"},
		`-c fence.ticket=x\ y`:                {"", "x y"},
		"-c fence.ticket=x -c":                {"-c", "x"},
		"-c fence.ticket":                     {"-c fence.ticket", ""},
		"-c fence.ticket=x -c fence.ticket=y": {"", "x,y"},
	} {
		rest, values := TakeOption(options, "fence.ticket")
		if rest != want.rest || strings.Join(values, ",") != want.values {
			t.Errorf("%q: got %q, %v", options, rest, values)
		}
	}
}

func TestNoticeRoundTrip(t *testing.T) {
	n := Notice{Severity: "FATAL", Code: "LG001", Message: "m", Detail: "d", Hint: "h"}
	if got := ParseNotice(n.Append(nil)); got != n {
		t.Errorf("got %+v", got)
	}
	if got := ParseNotice([]byte("SFEHLER\x00VERROR\x00C22012\x00Mdivis")); got.Severity != "ERROR" || got.Code != "22012" || got.Message != "" {
		t.Errorf("got %+v", got)
	}
}

func FuzzStartup(f *testing.F) {
	f.Add(Startup{Protocol: 3 << 16, Params: []Param{{"user", "app"}, {"options", "-c fence.ticket=x"}}}.Packet())
	f.Add(Request(SSLCode, nil))
	f.Add(Request(CancelCode, make([]byte, 8)))
	f.Add([]byte{0, 0, 0, 0, 0, 3, 0, 0})
	f.Add([]byte{255, 255, 255, 255, 0, 3, 0, 0})
	f.Fuzz(func(t *testing.T, packet []byte) {
		code, body, err := ReadStartup(bytes.NewReader(packet))
		if err != nil {
			return
		}
		if len(body)+8 > len(packet) || len(body)+8 > MaxStartup {
			t.Fatal("more than was sent")
		}
		s, err := ParseStartup(code, body)
		if err != nil {
			return
		}
		if !bytes.Equal(s.Packet(), packet[:len(body)+8]) {
			t.Fatal("what was parsed is not what was sent")
		}
		for _, p := range s.Params {
			rest, values := TakeOption(p.Value, "fence.ticket")
			if again, more := TakeOption(rest, "fence.ticket"); len(values) > 0 && (again != rest || len(more) > 0) {
				t.Fatalf("%q: taken twice", p.Value)
			}
		}
	})
}

func FuzzFrames(f *testing.F) {
	f.Add(AppendMessage(AppendMessage(nil, 'Q', []byte("select 1\x00")), 'X'), 1)
	f.Add([]byte{'d', 0, 0, 0, 3}, 2)
	f.Add([]byte{'d', 255, 255, 255, 255, 1, 2}, 3)
	f.Add(AppendMessage(nil, 'E', Notice{Severity: "ERROR", Code: "LG001"}.Append(nil)), 7)
	f.Fuzz(func(t *testing.T, stream []byte, piece int) {
		piece = 1 + (piece&0xff)%16
		var again []byte
		r := NewReader(&pieces{stream, piece}, 32)
		for {
			typ, size, err := r.Next()
			if err != nil {
				break
			}
			again = AppendHeader(again, typ, size)
			for {
				p, err := r.Chunk()
				again = append(again, p...)
				if err != nil || len(p) == 0 {
					break
				}
			}
			if !r.Boundary() {
				break
			}
		}
		if !bytes.HasPrefix(stream, again) {
			t.Fatalf("read %x of %x", again, stream)
		}
		ParseNotice(stream)
	})
}

type pieces struct {
	rest []byte
	size int
}

func (p *pieces) Read(b []byte) (int, error) {
	if len(p.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(b[:min(len(b), p.size)], p.rest)
	p.rest = p.rest[n:]
	return n, nil
}
