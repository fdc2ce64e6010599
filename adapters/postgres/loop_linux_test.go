package postgres_test

import (
	"errors"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// A session's client gets its last word although the process has no file descriptor left.
func TestLastWordWithoutFileDescriptors(t *testing.T) {
	p := newFakeProxy(t, newFakeServer(t, nil), nil)
	r := dialRaw(t, p.addr, "app", "db", with(p.world.ticket("a", 1)))
	r.login()
	r.send(&query{String: "select 1"})
	r.until("Ready")
	takeAllFiles(t)
	if got := p.gate.EndLease(lease.NewID(1, [14]byte{1}).Hash().String()); got != 1 {
		t.Fatalf("%d bindings ended, want 1", got)
	}
	if got := r.until("Error"); !strings.HasPrefix(got, "Error FATAL LG004") {
		t.Error(got)
	}
}

// takeAllFiles leaves the process without file descriptors until the test is over.
func takeAllFiles(t *testing.T) {
	t.Helper()
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := before
	few.Cur = 256
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
			t.Error(err)
		}
	})
	for {
		f, err := os.Open(os.DevNull)
		if errors.Is(err, syscall.EMFILE) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
	}
}

// cpu is the processor time of this process so far.
func cpu(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// Sessions of which one side has half gone, or that wait for a side that takes nothing, cost no processor time.
func TestHalfDeadSessionsCostNothing(t *testing.T) {
	f := newFlood(8000, 64<<20)
	stop := make(chan struct{})
	p := newFakeProxy(t, newFakeServer(t, func(s *fakeServer) {
		s.answer = func(conn net.Conn, sql string) bool {
			if sql == "hang" {
				<-stop
				return true
			}
			return f.answer(conn, sql)
		}
	}), nil)
	t.Cleanup(func() { close(stop) })
	for i := range 90 {
		r := dialRaw(t, p.addr, "app", "db", with(p.world.ticket("a", 1)))
		r.login()
		switch i % 3 {
		case 0: // nobody reads, and the server writes
			r.send(&query{String: "flood"})
		case 1: // half closed, and the server does nothing
			r.send(&query{String: "hang"})
			_ = r.conn.(*net.TCPConn).CloseWrite()
		case 2: // half closed behind more than the server takes
			r.send(&query{String: "hang"})
			_ = r.conn.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
			for err := error(nil); err == nil; {
				_, err = r.conn.Write(wire.AppendMessage(nil, 'Q', make([]byte, 60000)))
			}
			_ = r.conn.(*net.TCPConn).CloseWrite()
		}
	}
	const span, most = 500 * time.Millisecond, 50 * time.Millisecond
	used, since := cpu(t), time.Now()
	await(t, "the proxy to rest", func() bool {
		if time.Since(since) < span {
			return false
		}
		now := cpu(t)
		rests := now-used <= most
		used, since = now, time.Now()
		return rests
	})
}
