package postgres_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
	"github.com/lychgate/lychgate/fencestore"
)

// withBothDrivers runs a test in the event loop, and with two goroutines a session.
func withBothDrivers(t *testing.T, test func(t *testing.T)) {
	for name, loops := range map[string]int{"event loop": 0, "two goroutines": -1} {
		t.Run(name, func(t *testing.T) {
			eventLoops = loops
			t.Cleanup(func() { eventLoops = 0 })
			test(t)
		})
	}
}

// flood is a server that answers with many rows, and counts what it could write.
type flood struct {
	row     []byte
	rows    int
	written atomic.Int64
}

func newFlood(rowSize, total int) *flood {
	row, err := (&pgproto3.DataRow{Values: [][]byte{bytes.Repeat([]byte("r"), rowSize)}}).Encode(nil)
	if err != nil {
		panic(err)
	}
	return &flood{row: row, rows: total / len(row)}
}

func (f *flood) answer(conn net.Conn, sql string) bool {
	if sql != "flood" {
		return false
	}
	for range f.rows {
		n, err := conn.Write(f.row)
		f.written.Add(int64(n))
		if err != nil {
			return true
		}
	}
	end := wire.AppendMessage(wire.AppendMessage(nil, 'C', []byte("SELECT 1\x00")), 'Z', []byte("I"))
	_, _ = conn.Write(end) // a client that is gone needs no answer
	return true
}

// awaitStill waits until a count has not moved for a while, and returns it.
func awaitStill(t *testing.T, what string, count *atomic.Int64) int64 {
	t.Helper()
	last, since := count.Load(), time.Now()
	await(t, what+" to stand still", func() bool {
		if now := count.Load(); now != last || now == 0 {
			last, since = now, time.Now()
		}
		return time.Since(since) > 200*time.Millisecond
	})
	return last
}

// What a client does not read stays with the server, and all of it comes when the client reads on.
func TestClientThatStopsReading(t *testing.T) {
	withBothDrivers(t, func(t *testing.T) {
		f := newFlood(8000, 64<<20)
		p := newFakeProxy(t, newFakeServer(t, func(s *fakeServer) { s.answer = f.answer }), nil)
		r := dialRaw(t, p.addr, "app", "db", with(p.world.ticket("a", 1)))
		r.login()
		before := heap()
		r.send(&query{String: "flood"})
		const sockets = 24 << 20 // what the kernel keeps, in the two connections together
		if got := awaitStill(t, "the server", &f.written); got > sockets {
			t.Errorf("%d bytes went on to a client that reads nothing", got)
		}
		if got := heap() - before; got > 1<<20 {
			t.Errorf("a client that reads nothing takes %d bytes of memory", got)
		}
		var rows int
		for {
			switch r.next().(type) {
			case *pgproto3.DataRow:
				rows++
				continue
			case *pgproto3.ReadyForQuery:
			default:
				continue
			}
			break
		}
		if rows != f.rows {
			t.Errorf("%d rows came, want %d", rows, f.rows)
		}
	})
}

func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Client and server both write and do not read: when the client begins to read, everything comes, in its order.
func TestBothSidesBlockedWriting(t *testing.T) {
	withBothDrivers(t, func(t *testing.T) {
		echo := func(conn net.Conn, sql string) bool {
			end := wire.AppendMessage(wire.AppendMessage(nil, 'D', []byte(sql)), 'C', []byte("SELECT 1\x00"))
			_, _ = conn.Write(wire.AppendMessage(end, 'Z', []byte("I"))) // a client that is gone needs no answer
			return true
		}
		p := newFakeProxy(t, newFakeServer(t, func(s *fakeServer) { s.answer = echo }), nil)
		r := dialRaw(t, p.addr, "app", "db", with(p.world.ticket("a", 1)))
		r.login()
		const queries = 400
		text := func(i int) string { return fmt.Sprintf("%d %s", i, strings.Repeat("q", 100_000-i%7*16_000)) }
		var sent atomic.Int64
		done := make(chan error, 1)
		go func() {
			for i := range queries {
				n, err := r.conn.Write(wire.AppendMessage(nil, 'Q', []byte(text(i)+"\x00")))
				sent.Add(int64(n))
				if err != nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
		awaitStill(t, "the client", &sent)
		in := wire.NewReader(r.conn, 200_000)
		for i := range queries {
			for _, want := range []string{"D" + text(i), "CSELECT 1\x00", "ZI"} {
				typ, _, err := in.Next()
				if err != nil {
					t.Fatal(err)
				}
				if body, err := in.Body(); err != nil || string(typ)+string(body) != want {
					t.Fatalf("answer %d: got %c and %d bytes, %v", i, typ, len(body), err)
				}
			}
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A client that is fenced while a write to it is blocked gets, when it reads on, whole messages and one FATAL; or, where
// the server's own stream ended inside a message that was under way, the end of the stream there.
func TestFencedWhileAWriteIsBlocked(t *testing.T) {
	withBothDrivers(t, func(t *testing.T) {
		for name, rowSize := range map[string]int{"small rows": 8000, "rows that stream": 300_000} {
			t.Run(name, func(t *testing.T) {
				f := newFlood(rowSize, 64<<20)
				p := newFakeProxy(t, newFakeServer(t, func(s *fakeServer) { s.answer = f.answer }), func(s *settings) {
					s.server.EndTimeout = patience
				})
				r := dialRaw(t, p.addr, "app", "db", with(p.world.ticket("a", 1)))
				r.login()
				r.send(&query{String: "flood"})
				awaitStill(t, "the server", &f.written)
				if err := p.gate.Raise(t.Context(), []fencestore.Claim{{Cluster: cluster, Resource: "a", Token: 2}}); err != nil {
					t.Fatal(err)
				}
				rest, err := io.ReadAll(r.conn)
				if err != nil {
					t.Fatal(err)
				}
				fatal, torn := lastMessages(t, rest, f.row)
				if torn == fatal || torn && rowSize < 16_000 {
					t.Errorf("torn %v, FATAL %v", torn, fatal)
				}
			})
		}
	})
}

// lastMessages reads rows up to one FATAL, which has to be the last message, or up to a row that is torn.
func lastMessages(t *testing.T, stream, row []byte) (fatal, torn bool) {
	t.Helper()
	for len(stream) > 0 {
		switch {
		case fatal:
			t.Fatalf("%d bytes come behind the FATAL", len(stream))
		case bytes.HasPrefix(stream, row):
			stream = stream[len(row):]
		case len(stream) < len(row) && bytes.HasPrefix(row, stream):
			return false, true
		case bytes.Contains(stream[:min(len(stream), 100)], []byte("LG00")):
			_, size, err := wire.NewReader(bytes.NewReader(stream), 10).Next()
			if err != nil || size+5 > len(stream) {
				t.Fatalf("the FATAL is cut: %v", err)
			}
			stream, fatal = stream[size+5:], true
		default:
			t.Fatalf("something else comes: %.100q", stream)
		}
	}
	return fatal, false
}

// A client that has no more to send still gets its answers.
func TestHalfClose(t *testing.T) {
	withBothDrivers(t, func(t *testing.T) {
		p := newFakeProxy(t, newFakeServer(t, nil), nil)
		r := dialRaw(t, p.addr, "app", "db", with(p.world.ticket("a", 1)))
		r.login()
		r.send(&query{String: "select 1"}, &query{String: "select 2"})
		if err := r.conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			r.expect("Ready", "Columns 1", "Row some value", "Complete SELECT 1", "Ready I")
		}
		if m, err := r.Receive(); !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
			t.Errorf("got %v, %v, want the end of the stream", m, err)
		}
		p.awaitBindings()
	})
}

// Each client of a proxy that stops has whole answers, and then one FATAL.
func TestDrainUnderLoad(t *testing.T) {
	withBothDrivers(t, func(t *testing.T) {
		p := newFakeProxy(t, newFakeServer(t, nil), nil)
		var clients sync.WaitGroup
		var answers atomic.Int64
		for range 16 {
			r := dialRaw(t, p.addr, "app", "db", with(p.world.ticket("a", 1)))
			r.login()
			clients.Go(func() { r.queryUntilDrained(&answers) })
		}
		await(t, "answers", func() bool { return answers.Load() > 1000 })
		p.stop()
		clients.Wait()
		p.awaitBindings()
	})
}

func (r *raw) queryUntilDrained(answers *atomic.Int64) {
	for {
		r.Send(&query{String: "select 1"})
		_ = r.Flush() // the other side may have closed
		var got []string
		for {
			m, err := r.Receive()
			if err != nil {
				r.t.Errorf("after %q: %v", got, err)
				return
			}
			got = append(got, strings.Fields(describe(m))[0])
			if e, ok := m.(*pgproto3.ErrorResponse); ok && (e.Severity != "FATAL" || e.Code != "57P01" || len(got) > 1) {
				r.t.Errorf("after %q: %s", got, describe(m))
			} else if ok {
				return
			}
			if got[len(got)-1] == "Ready" {
				break
			}
		}
		answers.Add(1)
	}
}

// An idle session costs little, and nothing when it is gone.
func TestIdleSessionsAreCheap(t *testing.T) {
	const sessions, most = 1000, 40_000
	p := newFakeProxy(t, newFakeServer(t, nil), func(s *settings) { s.server.MaxConnections = sessions + 10 })
	opening := startup("user", "app", "database", "db", "fence.ticket", p.world.ticket("a", 1)).Packet()
	opening = wire.AppendMessage(opening, 'Q', []byte("select 1\x00"))
	var buffer [4096]byte
	begin := func() net.Conn {
		conn := dial(t, p.addr)
		if _, err := conn.Write(opening); err != nil {
			t.Fatal(err)
		}
		for got := []byte(nil); bytes.Count(got, []byte("Z\x00\x00\x00\x05I")) < 2; {
			n, err := conn.Read(buffer[:])
			if err != nil {
				t.Fatalf("after %q: %v", got, err)
			}
			got = append(got, buffer[:n]...)
		}
		return conn
	}
	begin()
	files, before := openFiles(t), inUse()
	var clients []net.Conn
	for range sessions {
		clients = append(clients, begin())
	}
	// The server's ends are in this process too, so that this is more than the proxy takes.
	got := (inUse() - before) / sessions
	t.Logf("an idle session takes less than %d bytes", got)
	if got > most {
		t.Errorf("want at most %d", most)
	}
	for _, conn := range clients {
		conn.Close()
	}
	await(t, "the files to be closed", func() bool { return openFiles(t) <= files })
}

// inUse is what the process holds of memory, stacks included.
func inUse() int64 {
	runtime.GC()
	runtime.GC() // what pools let go of
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}

// openFiles counts the process's file descriptors.
func openFiles(t *testing.T) int {
	t.Helper()
	list, err := os.ReadDir("/dev/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
