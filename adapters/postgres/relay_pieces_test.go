package postgres

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"testing"

	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
	"github.com/lychgate/lychgate/fencestore/memstore"
	"github.com/lychgate/lychgate/proxy/gate"
)

// relayAlone is one without connections.
func relayAlone(t testing.TB, policy gate.Policy) *relay {
	t.Helper()
	g, err := gate.New(gate.Config{
		Adapter: "postgres", Policy: policy, Store: memstore.New(memstore.Config{}),
		AllowUnsigned: true, Cluster: func() string { return "c1" },
	})
	if err != nil {
		t.Fatal(err)
	}
	return newRelay(&session{
		plan:   gate.Plan{Access: policy.Without(), Without: policy.Without()},
		server: &Server{config: Config{Gate: g}, hard: context.Background()}, log: slog.New(slog.DiscardHandler),
	})
}

// stream is messages in a row.
func stream(parts ...string) (all []byte) {
	for _, p := range parts {
		all = wire.AppendMessage(all, p[0], []byte(p[1:]))
	}
	return all
}

var large = string(bytes.Repeat([]byte("x"), 3*bufferSize))

// The streams have every kind of message that is treated in a way of its own.
var (
	fromClientStream = stream("Qselect 1\x00", "Pname\x00select 2\x00\x00\x00", "B\x00name\x00\x00\x00\x00\x00\x00\x00", "DPname\x00",
		"E\x00\x00\x00\x00\x00", "CSname\x00", "H", "S", "Qselect '"+large+"'\x00", "Plarge\x00select '"+large+"'\x00\x00\x00",
		"B\x00large\x00\x00\x00\x00\x01\x00\x00\x70\x00"+large, "S", "F\x00\x00\x05\x25\x00\x00\x00\x00\x00\x00", "Qcopy entry from stdin\x00")
	fromServerStream = stream("T\x00\x00", "D\x00\x00", "CSELECT 1\x00", "ZI", "1", "2", "n", "D\x00\x00", "CSELECT 1\x00", "3", "ZI",
		"T\x00\x00", "D"+large, "CSELECT 1\x00", "N"+large, "ZI", "1", "2", "ZI", "V\x00\x00\x00\x00", "ZI",
		"ESERROR\x00VERROR\x00C42601\x00\x00", "Sa\x00b\x00", "ZI", "Aabc\x00")
)

// feeder keeps what a direction has not dealt with.
type feeder struct {
	in, out []byte
	deal    func(in []byte) (burst, error)
}

func (f *feeder) feed(t *testing.T, pieces ...[]byte) error {
	t.Helper()
	for _, piece := range pieces {
		f.in = append(f.in, piece...)
		b, err := f.deal(f.in)
		f.out = append(f.out, b.result()...)
		f.in = bytes.Clone(b.left())
		if err != nil {
			return err
		}
		if len(f.in) >= bufferSize {
			t.Fatalf("%d bytes are left over: more than a buffer holds", len(f.in))
		}
	}
	return nil
}

func directions(r *relay) (up, down *feeder) {
	up = &feeder{deal: func(in []byte) (burst, error) {
		b, _, err := r.fromClient(in)
		return b, err
	}}
	return up, &feeder{deal: r.fromServer}
}

// What goes on does not depend on the pieces in which it arrives.
func TestPiecesDoNotMatter(t *testing.T) {
	for _, policy := range []gate.Policy{gate.Allow, gate.Require} {
		whole, wholeDown := directions(relayAlone(t, policy))
		if err := errors.Join(whole.feed(t, fromClientStream), wholeDown.feed(t, fromServerStream)); err != nil {
			t.Fatal(err)
		}
		if policy == gate.Allow && (!bytes.Equal(whole.out, fromClientStream) || !bytes.Equal(wholeDown.out, fromServerStream)) {
			t.Fatal("what nothing is wrong with did not go on as it was")
		}
		if policy == gate.Require && bytes.Contains(whole.out, []byte("select")) {
			t.Fatalf("a statement went on without a ticket: %.300q", whole.out)
		}
		cuts := func(n int) (at []int) {
			for i := 1; i < n; i += 1 + i/300*97 { // every one of the small messages, many of the large ones
				at = append(at, i)
			}
			return at
		}
		for _, cut := range cuts(len(fromClientStream)) {
			up, down := directions(relayAlone(t, policy))
			cutDown := min(cut, len(fromServerStream))
			if err := errors.Join(up.feed(t, fromClientStream[:cut], fromClientStream[cut:]),
				down.feed(t, fromServerStream[:cutDown], fromServerStream[cutDown:])); err != nil {
				t.Fatalf("%v, cut at %d: %v", policy, cut, err)
			}
			if !bytes.Equal(up.out, whole.out) || !bytes.Equal(down.out, wholeDown.out) {
				t.Fatalf("%v, cut at %d: something else went on", policy, cut)
			}
		}
	}
}

func TestByteByByte(t *testing.T) {
	up, down := directions(relayAlone(t, gate.Allow))
	one := func(s []byte) (pieces [][]byte) {
		for i := range s {
			pieces = append(pieces, s[i:i+1])
		}
		return pieces
	}
	if err := errors.Join(up.feed(t, one(fromClientStream)...), down.feed(t, one(fromServerStream)...)); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(up.out, fromClientStream) || !bytes.Equal(down.out, fromServerStream) {
		t.Error("what nothing is wrong with did not go on as it was")
	}
}

// Wherever the server vanishes, a message that fits has come as a whole or not at all.
func TestServersMessagesComeWhole(t *testing.T) {
	small := fromServerStream[:bytes.IndexByte(fromServerStream, 'x')-headerSize]
	for cut := range small {
		up, down := directions(relayAlone(t, gate.Allow))
		if err := errors.Join(up.feed(t, fromClientStream), down.feed(t, small[:cut])); err != nil {
			t.Fatal(err)
		}
		for rest := down.out; len(rest) > 0; {
			m, ok, err := firstMessage(rest)
			if !ok || err != nil {
				t.Fatalf("cut at %d: the client got %q", cut, down.out)
			}
			rest = rest[headerSize+m.size:]
		}
	}
}

// A text that is too large to be looked at whole is cut off before what must not go on, wherever the pieces end.
func TestLargeTextIsCutOff(t *testing.T) {
	secret := "set fence.ticket = 'secret'"
	text := stream("Qselect '" + large + "'; " + secret + "\x00")
	end := len(text) - len(secret) - 1
	for cut := end; cut < len(text); cut++ {
		up, _ := directions(relayAlone(t, gate.Allow))
		err := up.feed(t, text[:cut], text[cut:])
		var refusal *gate.Refusal
		if !errors.As(err, &refusal) || refusal.Reason != gate.NotAllowed {
			t.Fatalf("cut at %d: %v", cut, err)
		}
		if bytes.Contains(up.out, []byte("secret")) || len(up.out) == len(text) {
			t.Fatalf("cut at %d: the server gets %q", cut, up.out[end:])
		}
	}
}

func BenchmarkBursts(b *testing.B) {
	r := relayAlone(b, gate.Allow)
	sent := stream("B\x00p1\x00\x00\x00\x00\x01\x00\x00\x00\x0512345\x00\x00", "DP\x00", "E\x00\x00\x00\x00\x00", "S")
	answer := stream("2", "T\x00\x01abalance\x00abcdefghijklmnopqr", "D\x00\x01\x00\x00\x00\x0512345", "CSELECT 1\x00", "ZI")
	b.ReportAllocs()
	for b.Loop() {
		if up, _, err := r.fromClient(sent); err != nil || len(up.result()) != len(sent) {
			b.Fatal(err)
		}
		if down, err := r.fromServer(answer); err != nil || len(down.result()) != len(answer) {
			b.Fatal(err)
		}
	}
}
