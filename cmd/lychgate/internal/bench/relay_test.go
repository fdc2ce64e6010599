package bench

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

// echo answers with what it gets until the test ends.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				io.Copy(c, c)
				c.Close()
			}()
		}
	}()
	return l.Addr().String()
}

func relayTo(t *testing.T, to string, least, most time.Duration) (*relay, net.Conn) {
	t.Helper()
	r, err := newRelay(to, least, most)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.close)
	c, err := net.Dial("tcp", r.addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return r, c
}

func TestRelayKeepsBytesInOrderAndCountsThem(t *testing.T) {
	r, c := relayTo(t, echo(t), 0, time.Millisecond)
	sent := make([]byte, 3<<20)
	for i := range sent {
		sent[i] = byte(rand.Uint32())
	}
	go func() {
		for rest := sent; len(rest) > 0; {
			n := min(len(rest), 1+rand.IntN(20000))
			if _, err := c.Write(rest[:n]); err != nil {
				return
			}
			rest = rest[n:]
		}
		c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.ReadAll(c) // ends because the end is passed on too
	if err != nil || !bytes.Equal(got, sent) {
		t.Fatalf("got %d bytes, %v, want the %d that were sent", len(got), err, len(sent))
	}
	if n := r.passed.Load(); n != 2*int64(len(sent)) {
		t.Errorf("counted %d bytes, want %d in both directions", n, 2*len(sent))
	}
}

func TestRelayDelaysBothDirections(t *testing.T) {
	const least = 20 * time.Millisecond
	_, c := relayTo(t, echo(t), least, least+5*time.Millisecond)
	began := time.Now()
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 2*least {
		t.Errorf("there and back in %v, want %v at least", took, 2*least)
	}
}

func TestRelayToNobodyCloses(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	_, c := relayTo(t, l.Addr().String(), 0, 0)
	c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a connection to nobody stands")
	}
}

func TestRelayEndsItsConnections(t *testing.T) {
	r, c := relayTo(t, echo(t), time.Hour, time.Hour)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); r.close() }()
	c.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := c.Read(make([]byte, 1)); err == nil {
		t.Error("a connection outlives its relay")
	}
	select {
	case <-done:
	case <-time.After(time.Minute):
		t.Error("the relay does not end while something is on its way")
	}
}
