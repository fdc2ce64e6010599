package postgres_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/proxy/gate"
)

// wantFatal expects the session to be found ended with LG001.
func wantFatal(t testing.TB, conn *pgx.Conn) *pgconn.PgError {
	t.Helper()
	err := wantCode(t, try(conn, "insert into entry values (99, 'stale')"), "LG001")
	if err.Severity != "FATAL" {
		t.Errorf("severity %s, want FATAL", err.Severity)
	}
	if !conn.IsClosed() {
		t.Error("the connection is still open")
	}
	return err
}

func TestTakeoverFromAnOpenTransaction(t *testing.T) {
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		for _, proxies := range []string{"one proxy", "two proxies"} {
			t.Run(level+"/"+proxies, func(t *testing.T) {
				w := newWorld(t)
				p1 := w.proxy(nil)
				p2 := p1
				if proxies == "two proxies" {
					p2 = w.proxy(nil)
				}
				old := p1.connect(with(w.ticket("ledger", 41)))
				exec(t, old, "begin isolation level "+level)
				exec(t, old, "insert into entry values (1, 'old')")
				successor := p2.connect(with(w.ticket("ledger", 42)))
				exec(t, successor, "insert into entry values (1, 'new')")
				wantFatal(t, old)
				p1.refuse("app", "LG001", with(w.ticket("ledger", 41)))
				p2.refuse("app", "LG001", with(w.ticket("ledger", 41)))
				if got := w.count("who = 'new'"); got != 1 || w.count("true") != 1 {
					t.Errorf("the table is not what the rightful holder wrote")
				}
			})
		}
	}
}

func TestTakeoverWhileAStatementRuns(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	old := p.connect(with(w.ticket("ledger", 41)))
	exec(t, old, "begin")
	exec(t, old, "insert into entry values (1, 'old')")
	answer := make(chan error, 1)
	go func() { answer <- try(old, "select pg_sleep(600)") }()
	w.awaitRunning("pg_sleep")
	exec(t, p.connect(with(w.ticket("ledger", 42))), "insert into entry values (1, 'new')")
	wantCode(t, <-answer, "LG001")

	// Outside of a transaction a commit may have been in flight.
	old = p.connect(with(w.ticket("ledger", 42)))
	go func() { answer <- try(old, "select pg_sleep(600)") }()
	w.awaitRunning("pg_sleep")
	exec(t, p.connect(with(w.ticket("ledger", 43))), "insert into entry values (2, 'new')")
	wantCode(t, <-answer, "LG008")
}

func (w *world) awaitRunning(part string) {
	w.t.Helper()
	await(w.t, part+" to run", func() bool {
		var n int
		err := w.admin.QueryRow(context.Background(), `select count(*) from pg_stat_activity
			where state = 'active' and datname = $1 and usename = 'app' and query like '%' || $2 || '%'`, w.name, part).Scan(&n)
		return err == nil && n > 0
	})
}

func TestTakeoverFromCopyIn(t *testing.T) {
	for name, c := range map[string]struct {
		before []message
		want   string
	}{
		"in a transaction": {all(&query{String: "begin"}, &query{String: "copy entry from stdin"}), "LG001"},
		"on its own":       {all(&query{String: "copy entry from stdin"}), "LG001"}, // nothing is committed before its end
		"extended":         {all(run("copy entry from stdin"), &sync_{}), "LG001"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.proxy(nil)
			old := p.raw(with(w.ticket("ledger", 41)))
			old.send(c.before...)
			old.until("CopyInResponse")
			old.send(copyRows(10)...)
			exec(t, p.connect(with(w.ticket("ledger", 42))), "insert into entry values (1, 'new')")
			for _, m := range copyRows(1000) { // the client notices nothing and goes on
				old.Send(m)
			}
			_ = old.Flush() // the other side may have closed
			old.expect("Error", "Error FATAL "+c.want+" fenced: the token is stale ("+c.want+")")
			if _, err := old.Receive(); err == nil {
				t.Error("something comes behind the FATAL")
			}
			if got := w.count("true"); got != 1 {
				t.Errorf("%d rows, want 1", got)
			}
		})
	}
}

func TestTakeoverFromAClientThatDoesNotRead(t *testing.T) {
	for _, proxies := range []string{"one proxy", "two proxies"} {
		t.Run(proxies, func(t *testing.T) {
			w := newWorld(t)
			quick := func(s *settings) {
				s.server.EndTimeout, s.server.StuckCheck = 200*time.Millisecond, 50*time.Millisecond
			}
			p1 := w.proxy(quick)
			p2 := p1
			if proxies == "two proxies" {
				p2 = w.proxy(quick)
			}
			old := p1.raw(with(w.ticket("ledger", 41)))
			old.send(&query{String: "begin"}, &query{String: "insert into entry values (1, 'old')"},
				&query{String: "select repeat('x', 1000) from generate_series(1, 10000000)"})
			await(t, "the server to be blocked writing", func() bool {
				var event string
				err := w.admin.QueryRow(context.Background(), `select coalesce(max(wait_event), '') from pg_stat_activity
					where datname = $1 and usename = 'app' and state = 'active'`, w.name).Scan(&event)
				return err == nil && event == "ClientWrite"
			})
			// A takeover that waited for the client would never end, and be refused.
			exec(t, p2.connect(with(w.ticket("ledger", 42))), "insert into entry values (1, 'new')")
			// The old session goes from the proxy although its client does nothing.
			await(t, "the old session to go", func() bool { return !slices.Contains(p1.bindings(), "ledger:41") })
		})
	}
}

func TestAllSlotsHeldByTheStaleHolder(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	exec(t, p.connect(with(w.ticket("other", 1))), "select 1") // the side connections are open from the start
	var stale []*pgx.Conn
	for {
		conn, err := pgx.Connect(t.Context(), p.dsn("app", with(w.ticket("ledger", 41))))
		if err != nil {
			wantCode(t, err, "53300")
			break
		}
		exec(t, conn, "begin")
		stale = append(stale, conn)
	}
	if len(stale) < 20 {
		t.Fatalf("only %d sessions filled the server", len(stale))
	}
	successor := p.connect(with(w.ticket("ledger", 42)))
	exec(t, successor, "insert into entry values (1, 'new')")
	for _, conn := range stale {
		wantFatal(t, conn)
	}
}

func TestReconnectStormOfStaleClients(t *testing.T) {
	w := newWorld(t)
	p1, p2 := w.proxy(nil), w.proxy(nil)
	var storm sync.WaitGroup
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var tries atomic.Int64
	for i := range 8 {
		dsn := []*proxy{p1, p2}[i%2].dsn("app", with(w.ticket("ledger", 41)))
		storm.Go(func() {
			for ctx.Err() == nil {
				tries.Add(1)
				conn, err := pgx.Connect(ctx, dsn)
				if err != nil {
					continue
				}
				for err == nil && ctx.Err() == nil {
					_, err = conn.Exec(ctx, "insert into entry select coalesce(max(n), 0) + 1, 'old' from entry on conflict do nothing")
				}
				_ = conn.Close(context.Background()) // it was ended
			}
		})
	}
	await(t, "the storm to write", func() bool { return w.count("who = 'old'") > 20 })
	successor := p1.connect(with(w.ticket("ledger", 42)))
	var before, after int
	exec(t, successor, "select 1")
	before = w.count("who = 'old'")
	seen := tries.Load()
	await(t, "the storm to go on", func() bool { return tries.Load() > seen+50 })
	after = w.count("who = 'old'")
	stop()
	storm.Wait()
	if before != after {
		t.Errorf("%d stale writes after the takeover", after-before)
	}
}

func TestServerEndedForAnotherReason(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(func(s *settings) { s.gate.ExplainFor = 100 * time.Millisecond })
	conn := p.connect(with(w.ticket("ledger", 41)))
	exec(t, w.admin, fmt.Sprintf("select pg_terminate_backend(%d)", conn.PgConn().PID()))
	wantCode(t, try(conn, "select 1"), "57P01")
	exec(t, p.connect(with(w.ticket("ledger", 41))), "select 1")
}

func TestEndLease(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	idle := p.connect(with(w.ticket("ledger", 41)))
	other := p.connect(with(w.ticket("other", 42)))
	busy := p.connect(with(w.ticket("ledger", 41)))
	answer := make(chan error, 1)
	go func() { answer <- try(busy, "select pg_sleep(600)") }()
	w.awaitRunning("pg_sleep")
	hash := lease.NewID(1, [14]byte{41}).Hash().String()
	if got := p.gate.EndLease(hash); got != 2 {
		t.Errorf("%d bindings ended, want 2", got)
	}
	wantCode(t, try(idle, "select 1"), "LG004")
	wantCode(t, <-answer, "LG008")
	exec(t, other, "select 1")
	p.awaitBindings("other:42")
	await(t, "the database's rows to go, and so the statement", func() bool { return w.rows() == 1 })
}

// A cancel request that overtakes its statement finds an idle backend, and is forgotten there.
func TestEndLeaseStopsWhatIsOnItsWay(t *testing.T) {
	w := newWorld(t)
	var held <-chan struct{}
	p := w.proxy(func(s *settings) { s.server.Upstream, held = overtaken(t, s.server.Upstream, "pg_sleep") })
	r := p.raw(with(w.ticket("ledger", 41)))
	r.send(&query{String: "select pg_sleep(600)"})
	<-held
	if got := p.gate.EndLease(lease.NewID(1, [14]byte{41}).Hash().String()); got != 1 {
		t.Errorf("%d bindings ended, want 1", got)
	}
	await(t, "the database's row to go, and so the statement", func() bool { return w.rows() == 0 })
}

// overtaken stands between the proxy and the server, and keeps what mentions part back, which it signals, until a later
// connection is over.
func overtaken(t testing.TB, to, part string) (addr string, held <-chan struct{}) {
	keeps, later := make(chan struct{}), make(chan struct{})
	var once, over sync.Once
	addr, stop := serve(t, func(ctx context.Context, l net.Listener) error {
		return relayEach(ctx, l, to, func(server io.Writer, conn io.Reader) {
			buffer := make([]byte, 4096)
			for {
				n, err := conn.Read(buffer)
				if err != nil {
					break
				}
				if strings.Contains(string(buffer[:n]), part) {
					once.Do(func() { close(keeps) })
					<-later
				}
				if _, err := server.Write(buffer[:n]); err != nil {
					break
				}
			}
			select {
			case <-keeps:
				over.Do(func() { close(later) })
			default:
			}
		})
	})
	t.Cleanup(stop)
	return addr, keeps
}

// forwarder stands between the proxy and the server, and signals each time that the proxy has no more to send.
func forwarder(t testing.TB, to string) (addr string, silent <-chan struct{}) {
	ends := make(chan struct{}, 16)
	addr, stop := serve(t, func(ctx context.Context, l net.Listener) error {
		return relayEach(ctx, l, to, func(server io.Writer, conn io.Reader) {
			_, _ = io.Copy(server, conn)
			ends <- struct{}{}
		})
	})
	t.Cleanup(stop)
	return addr, ends
}

// relayEach joins each connection that l accepts to one of its own; pass carries what the proxy sends until that is all.
func relayEach(ctx context.Context, l net.Listener, to string, pass func(server io.Writer, conn io.Reader)) error {
	var all sync.WaitGroup
	defer all.Wait()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		conn, err := l.Accept()
		if err != nil {
			return nil
		}
		server, err := net.Dial("tcp", to)
		if err != nil {
			conn.Close()
			return err
		}
		context.AfterFunc(ctx, func() { conn.Close(); server.Close() })
		all.Go(func() {
			pass(server, conn)
			_ = server.(*net.TCPConn).CloseWrite()
		})
		all.Go(func() {
			_, _ = io.Copy(conn, server)
			conn.Close()
		})
	}
}

// A statement of a client that was killed may still write: its binding stays until the backend is gone.
func TestUnbindWaitsForAKilledClientsStatement(t *testing.T) {
	w := newWorld(t)
	var silent <-chan struct{}
	p := w.proxy(func(s *settings) { s.server.Upstream, silent = forwarder(t, s.server.Upstream) })
	old := p.raw(with(w.ticket("ledger", 41)))
	old.send(&query{String: "insert into entry select 1, 'old' from pg_sleep(600)"})
	w.awaitRunning("pg_sleep")
	old.conn.Close()
	<-silent // the proxy has seen it go
	if got := w.rows(); got != 1 {
		t.Fatalf("%d rows of bindings while the statement runs, want 1", got)
	}
	exec(t, p.connect(with(w.ticket("ledger", 42))), "insert into entry values (1, 'new')")
	await(t, "the old row to go", func() bool { return w.rows() == 1 })
	if got := w.count("who = 'new'"); got != 1 {
		t.Error("the new holder's row is missing")
	}
}

func TestPreparedTransactionOfTheOldHolder(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(func(s *settings) { s.gate.Policy = gate.Allow })
	old := p.connect(with(w.ticket("ledger", 41)))
	exec(t, old, "begin")
	exec(t, old, "insert into entry values (1, 'old')")
	wantCode(t, try(old, "prepare transaction 'left'"), "LG006")
	unfenced := p.connect(nil)
	exec(t, unfenced, "begin")
	exec(t, unfenced, "insert into entry values (2, 'unfenced')")
	exec(t, unfenced, "prepare transaction 'left'")
	t.Cleanup(func() { _ = try(w.admin, "rollback prepared 'left'") }) // it may be gone
	p.refuse("app", "LG005", with(w.ticket("ledger", 42)))
	exec(t, w.admin, "rollback prepared 'left'")
	exec(t, p.connect(with(w.ticket("ledger", 42))), "insert into entry values (1, 'new')")
}
