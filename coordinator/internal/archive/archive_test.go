package archive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"
)

var testHeader = Header{
	Cluster: "lg-test", Groups: 3, Incarnation: 2, Version: 2, Node: "n1", SavedAt: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
}

// written is an archive with these contents, one for each group.
func written(t testing.TB, contents ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w, err := NewWriter(&out, testHeader)
	if err != nil {
		t.Fatal(err)
	}
	for i, content := range contents {
		if err := w.Group(Group{Group: uint16(i), Index: uint64(10 + i), Term: 3, Leases: i, LastToken: 1 << 41}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestWhatWasWrittenIsRead(t *testing.T) {
	contents := []string{"one", "", strings.Repeat("three ", maxContent)}
	r, err := NewReader(bytes.NewReader(written(t, contents...)))
	if err != nil {
		t.Fatal(err)
	}
	if r.Header() != testHeader {
		t.Errorf("got header %+v", r.Header())
	}
	for i, want := range contents {
		g, err := r.Next()
		if err != nil {
			t.Fatal(err)
		}
		if wantGroup := (Group{Group: uint16(i), Index: uint64(10 + i), Term: 3, Leases: i, LastToken: 1 << 41}); g != wantGroup {
			t.Errorf("got group %+v, want %+v", g, wantGroup)
		}
		got, err := io.ReadAll(r)
		if err != nil || string(got) != want {
			t.Errorf("group %d: got %d bytes (%v), want %d", i, len(got), err, len(want))
		}
	}
	if _, err := r.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("got %v at the end, want io.EOF", err)
	}
}

func TestACutArchiveIsRefused(t *testing.T) {
	whole := written(t, "one", "two", "three")
	for n := len(magic); n < len(whole); n++ {
		if _, _, err := check(bytes.NewReader(whole[:n])); !errors.Is(err, ErrCut) {
			t.Fatalf("cut to %d of %d bytes: got %v, want ErrCut", n, len(whole), err)
		}
	}
}

func TestAFlippedBitIsSeen(t *testing.T) {
	whole := written(t, "one", "two", "three")
	for i := range whole {
		for bit := range 8 {
			flipped := bytes.Clone(whole)
			flipped[i] ^= 1 << bit
			want := ErrDamaged
			if i < len(magic) {
				want = ErrForeign
			}
			if _, _, err := check(bytes.NewReader(flipped)); !errors.Is(err, want) {
				t.Fatalf("bit %d of byte %d flipped: got %v, want %v", bit, i, err, want)
			}
		}
	}
}

func TestWhatIsNoArchiveIsRefused(t *testing.T) {
	whole := written(t, "one", "two", "three")
	for name, c := range map[string]struct {
		file []byte
		want error
	}{
		"empty":                 {nil, ErrForeign},
		"something else":        {[]byte(strings.Repeat("log line\n", 100)), ErrForeign},
		"more than one archive": {append(bytes.Clone(whole), whole...), ErrDamaged},
	} {
		if _, _, err := check(bytes.NewReader(c.file)); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

func TestAGroupTwiceOrTooManyIsRefused(t *testing.T) {
	for _, number := range []uint16{0, 3} {
		var out bytes.Buffer
		w, err := NewWriter(&out, testHeader)
		if err != nil {
			t.Fatal(err)
		}
		for _, g := range []uint16{0, number} {
			if err := w.Group(Group{Group: g}); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := check(&out); !errors.Is(err, ErrDamaged) {
			t.Errorf("group %d: got %v, want ErrDamaged", number, err)
		}
	}
}

func TestAWriterThatFailsIsToldOf(t *testing.T) {
	full := errors.New("no space left")
	write := func(to io.Writer) error {
		w, err := NewWriter(to, testHeader)
		if err != nil {
			return err
		}
		if err := w.Group(Group{}); err != nil {
			return err
		}
		if _, err := io.WriteString(w, "one"); err != nil {
			return err
		}
		return w.Close()
	}
	var whole bytes.Buffer
	if err := write(&whole); err != nil {
		t.Fatal(err)
	}
	for left := range whole.Len() {
		if err := write(&failing{left, full}); !errors.Is(err, full) {
			t.Fatalf("with room for %d of %d bytes: got %v", left, whole.Len(), err)
		}
	}
}

// failing takes so many bytes and then fails.
type failing struct {
	left int
	err  error
}

func (f *failing) Write(p []byte) (int, error) {
	if len(p) > f.left {
		return 0, f.err
	}
	f.left -= len(p)
	return len(p), nil
}

func FuzzCheck(f *testing.F) {
	f.Add(written(f, "one", "two"))
	f.Add([]byte(magic))
	f.Fuzz(func(t *testing.T, file []byte) {
		h, groups, err := check(bytes.NewReader(file))
		if err != nil {
			return
		}
		if len(groups) > h.Groups {
			t.Error(fmt.Sprint("more groups than there are: ", len(groups)))
		}
	})
}

// check reads a whole archive and returns what it says.
func check(r io.Reader) (Header, []Group, error) {
	in, err := NewReader(r)
	if err != nil {
		return Header{}, nil, err
	}
	var groups []Group
	for {
		g, err := in.Next()
		if errors.Is(err, io.EOF) {
			return in.header, groups, nil
		}
		if err != nil {
			return Header{}, nil, err
		}
		groups = append(groups, g)
	}
}
