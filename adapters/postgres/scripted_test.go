package postgres_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/lychgate/lychgate/adapters/postgres"
	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/fencestore/memstore"
	"github.com/lychgate/lychgate/proxy/gate"
)

// fakeServer answers as PostgreSQL does, with the faults that a test asks for.
type fakeServer struct {
	t    testing.TB
	addr string

	keyPID  uint32 // in BackendKeyData; 0: none is sent
	key     []byte
	standby string
	cut     int                                  // bytes of its stream after which it vanishes; 0: never
	answer  func(conn net.Conn, sql string) bool // what comes for a query in place of one row; false: as always

	mu       sync.Mutex
	startups []map[string]string
	queries  []string
	cancels  [][]byte
	live     map[int64]net.Conn
}

const fakePID = 4711

func newFakeServer(t testing.TB, change func(*fakeServer)) *fakeServer {
	s := &fakeServer{t: t, keyPID: fakePID, key: []byte{1, 2, 3, 4}, standby: "off", live: map[int64]net.Conn{}}
	if change != nil {
		change(s)
	}
	var stop func()
	s.addr, stop = serve(t, func(ctx context.Context, l net.Listener) error {
		var all sync.WaitGroup
		defer all.Wait()
		defer context.AfterFunc(ctx, func() { l.Close() })()
		for {
			conn, err := l.Accept()
			if err != nil {
				return nil
			}
			all.Go(func() {
				defer conn.Close()
				defer context.AfterFunc(ctx, func() { conn.Close() })()
				s.talk(&cutConn{Conn: conn, left: s.cut})
			})
		}
	})
	t.Cleanup(stop)
	return s
}

// cutConn vanishes after some bytes have been written.
type cutConn struct {
	net.Conn
	left int
}

func (c *cutConn) Write(p []byte) (int, error) {
	if c.left == 0 {
		return c.Conn.Write(p)
	}
	if len(p) < c.left {
		c.left -= len(p)
		return c.Conn.Write(p)
	}
	_, _ = c.Conn.Write(p[:c.left])
	c.Conn.Close()
	return 0, net.ErrClosed
}

func (s *fakeServer) talk(conn net.Conn) {
	b := pgproto3.NewBackend(conn, conn)
	first, err := b.ReceiveStartupMessage()
	if err != nil {
		return
	}
	if cancel, ok := first.(*pgproto3.CancelRequest); ok {
		s.mu.Lock()
		s.cancels = append(s.cancels, append(binary.BigEndian.AppendUint32(nil, cancel.ProcessID), cancel.SecretKey...))
		s.mu.Unlock()
		return
	}
	start, ok := first.(*pgproto3.StartupMessage)
	if !ok {
		return
	}
	s.mu.Lock()
	s.startups = append(s.startups, start.Parameters)
	s.live[fakePID] = conn
	s.mu.Unlock()
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.ParameterStatus{Name: "in_hot_standby", Value: s.standby})
	if s.keyPID != 0 {
		b.Send(&pgproto3.BackendKeyData{ProcessID: s.keyPID, SecretKey: s.key})
	}
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for b.Flush() == nil {
		m, err := b.Receive()
		if err != nil {
			return
		}
		if q, ok := m.(*pgproto3.Query); ok {
			s.query(conn, b, q.String)
		}
	}
}

func (s *fakeServer) query(conn net.Conn, b *pgproto3.Backend, sql string) {
	if strings.Contains(sql, "pg_backend_pid") {
		b.Send(&pgproto3.DataRow{Values: [][]byte{[]byte(strconv.Itoa(fakePID)), []byte("1000000"), []byte("f")}})
	} else {
		s.mu.Lock()
		s.queries = append(s.queries, sql)
		s.mu.Unlock()
		if s.answer != nil && s.answer(conn, sql) {
			return
		}
		b.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("x")}}})
		b.Send(&pgproto3.DataRow{Values: [][]byte{[]byte("some value")}})
	}
	b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
}

// fakeProxy stands in front of a fake server, with a store in memory that ends sessions by closing them.
type fakeProxy struct {
	*proxy
	store *memstore.Store
}

func newFakeProxy(t testing.TB, s *fakeServer, change func(*settings)) *fakeProxy {
	t.Helper()
	w := &world{t: t, name: "db"}
	w.signer, w.ring = newKeys(t, cluster)
	store := memstore.New(memstore.Config{End: func(_ context.Context, one fencestore.Session) error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if conn := s.live[one.PID]; conn != nil {
			conn.Close()
		}
		return nil
	}})
	p := &proxy{t: t, world: w, seen: &counter{refused: map[gate.Reason]int{}}, log: &lockedBuffer{}}
	log := slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c := settings{
		gate: gate.Config{
			Adapter: "postgres", Policy: gate.Require, Verifier: verifier{w.ring}, Store: store, Observer: p.seen, Logger: log,
			GoneFor: 10 * time.Millisecond, ExplainFor: 20 * time.Millisecond,
		},
		server: postgres.Config{Upstream: s.addr, Database: "db", Logger: log, DrainTimeout: patience, EndTimeout: 200 * time.Millisecond, EventLoops: eventLoops},
	}
	if change != nil {
		change(&c)
	}
	var err error
	if p.gate, err = gate.New(c.gate); err != nil {
		t.Fatal(err)
	}
	c.server.Gate = p.gate
	srv, err := postgres.New(c.server)
	if err != nil {
		t.Fatal(err)
	}
	p.addr, p.stop = serve(t, srv.Serve)
	t.Cleanup(p.stop)
	return &fakeProxy{p, store}
}

func TestServersThatCannotBeFenced(t *testing.T) {
	for name, change := range map[string]func(*fakeServer){
		"a pooler in between":  func(s *fakeServer) { s.keyPID = 4712 },
		"no process at log-in": func(s *fakeServer) { s.keyPID = 0 },
		"a standby":            func(s *fakeServer) { s.standby = "on" },
	} {
		t.Run(name, func(t *testing.T) {
			s := newFakeServer(t, change)
			p := newFakeProxy(t, s, nil)
			r := dialRaw(t, p.addr, "app", "db", with(p.world.ticket("a", 1)))
			if got := r.until("Error"); !strings.Contains(got, "LG006") || strings.Contains(got, "Ready") {
				t.Errorf("got %s", got)
			}
			// Without a ticket it may log in, and is refused when it shows one.
			r = dialRaw(t, p.addr, "app", "db", nil)
			r.login()
			r.send(&query{String: "set fence.ticket = '" + p.world.ticket("a", 1) + "'"})
			// The fake server does not know that it has to refuse what stands in for the statement: it answers.
			r.until("Ready")
			s.mu.Lock()
			defer s.mu.Unlock()
			if len(s.queries) != 1 || !strings.Contains(s.queries[0], "refused") {
				t.Errorf("the server got %q", s.queries)
			}
			p.awaitBindings()
		})
	}
}

func TestServerNeverSeesATicket(t *testing.T) {
	s := newFakeServer(t, nil)
	p := newFakeProxy(t, s, nil)
	secret := p.world.ticket("a", 1)
	r := dialRaw(t, p.addr, "app", "db", map[string]string{"fence.ticket": secret, "options": "-c a=b -c fence.ticket=" + secret, "x": "y"})
	r.login()
	r.send(&query{String: "set fence.ticket = '" + secret + "'"})
	r.until("Ready")
	s.mu.Lock()
	defer s.mu.Unlock()
	got := s.startups[0]
	if len(got) != 4 || got["options"] != "-c a=b" || got["x"] != "y" || got["user"] != "app" {
		t.Errorf("start-up parameters %v", got)
	}
	if len(s.queries) != 1 || s.queries[0] != "SET fence.ticket = '(redacted)'" {
		t.Errorf("queries %q", s.queries)
	}
}

func TestStaleTicketIsRefusedBeforeTheServerHearsOfIt(t *testing.T) {
	s := newFakeServer(t, nil)
	p := newFakeProxy(t, s, nil)
	claim := fencestore.Claim{Cluster: cluster, Resource: "a", Token: 9}
	if _, err := p.store.Raise(t.Context(), claim); err != nil {
		t.Fatal(err)
	}
	r := dialRaw(t, p.addr, "app", "db", with(p.world.ticket("a", 8)))
	r.expect("Error", "Error FATAL LG001 fenced: the token is stale (LG001)")
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.startups) != 0 {
		t.Error("the server was contacted")
	}
}

func TestLongCancelKeys(t *testing.T) {
	key := bytes.Repeat([]byte{7}, 256)
	s := newFakeServer(t, func(s *fakeServer) { s.key = key })
	p := newFakeProxy(t, s, nil)
	r := dialRaw(t, p.addr, "app", "db", with(p.world.ticket("a", 1)))
	r.login()
	if !bytes.Equal(r.key.SecretKey, key) {
		t.Errorf("the client got a key of %d bytes", len(r.key.SecretKey))
	}
	cancelVia(t, p.addr, r.key, nil)
	await(t, "the cancel", func() bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return len(s.cancels) == 1 && bytes.Equal(s.cancels[0][4:], key)
	})
}

// The opening of a session, cut after every byte: nothing hangs, nothing stays bound.
func TestClientVanishesAtEveryByte(t *testing.T) {
	s := newFakeServer(t, nil)
	p := newFakeProxy(t, s, nil)
	opening := startup("user", "app", "database", "db", "fence.ticket", p.world.ticket("a", 1)).Packet()
	opening = wire.AppendMessage(opening, 'Q', []byte("select 1\x00"))
	opening = wire.AppendMessage(opening, 'Q', []byte("set fence.ticket = '"+p.world.ticket("b", 1)+"'\x00"))
	opening = wire.AppendMessage(opening, 'X')
	for cut := range opening {
		conn := dial(t, p.addr)
		if _, err := conn.Write(opening[:cut]); err != nil {
			t.Fatal(err)
		}
		conn.Close()
	}
	p.awaitBindings()
	one := dial(t, p.addr) // and the whole of it byte by byte
	for i := range opening {
		if _, err := one.Write(opening[i : i+1]); err != nil {
			t.Fatal(err)
		}
	}
	if got := readAll(one); strings.Count(got, "SELECT 1") != 2 {
		t.Errorf("byte by byte: %q", got)
	}
}

// The server's stream, cut after every byte: the client never gets a part of a message, and its session ends.
func TestServerVanishesAtEveryByte(t *testing.T) {
	for cut := 1; cut < 1000; cut++ {
		s := newFakeServer(t, func(s *fakeServer) { s.cut = cut })
		p := newFakeProxy(t, s, nil)
		conn := dial(t, p.addr)
		hello := startup("user", "app", "database", "db", "fence.ticket", p.world.ticket("a", 1)).Packet()
		if _, err := conn.Write(wire.AppendMessage(hello, 'Q', []byte("select 1\x00"))); err != nil {
			t.Fatal(err)
		}
		got := &partial{}
		answered, err := got.read(conn)
		var timeout net.Error
		if errors.As(err, &timeout) && timeout.Timeout() {
			t.Fatalf("cut at %d: the session hangs", cut)
		}
		if _, err := got.ready(); err != nil {
			t.Fatalf("cut at %d: the client got a part of a message: %v", cut, err)
		}
		if answered {
			return // the server had nothing more to say: all cuts were tried
		}
		p.awaitBindings()
		p.stop()
	}
	t.Error("the query was never answered")
}

// partial is a stream that may end anywhere.
type partial struct{ bytes.Buffer }

// read takes what comes until the log-in and one query are answered, or the stream ends.
func (p *partial) read(conn net.Conn) (answered bool, _ error) {
	var piece [4096]byte
	for {
		n, err := conn.Read(piece[:])
		p.Write(piece[:n])
		if ready, _ := p.ready(); ready == 2 {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
}

// ready counts the times that the server was ready, and fails where a message is cut.
func (p *partial) ready() (count int, _ error) {
	r := wire.NewReader(bytes.NewReader(p.Bytes()), 1<<16)
	for {
		typ, _, err := r.Next()
		if errors.Is(err, io.EOF) {
			return count, nil
		}
		if err == nil {
			_, err = r.Body()
		}
		if err != nil {
			return count, err
		}
		if typ == 'Z' {
			count++
		}
	}
}

func TestPromotionEndsTheSession(t *testing.T) {
	s := newFakeServer(t, func(s *fakeServer) {
		s.answer = func(conn net.Conn, _ string) bool {
			_, _ = conn.Write(wire.AppendMessage(nil, 'S', []byte("in_hot_standby\x00on\x00")))
			return true
		}
	})
	p := newFakeProxy(t, s, nil)
	r := dialRaw(t, p.addr, "app", "db", with(p.world.ticket("a", 1)))
	r.login()
	r.send(&query{String: "select 1"})
	r.expect("Error", "ParameterStatus", "Error FATAL LG006 not allowed in a fenced session (LG006)")
}

func TestLocalTakeoverIsExplainedAfterWhatTheServerHadSaid(t *testing.T) {
	s := newFakeServer(t, nil)
	p := newFakeProxy(t, s, nil)
	r := dialRaw(t, p.addr, "app", "db", with(p.world.ticket("a", 1)))
	r.login()
	if err := p.gate.Raise(t.Context(), []fencestore.Claim{{Cluster: cluster, Resource: "a", Token: 2}}); err != nil {
		t.Fatal(err)
	}
	r.expect("Error", "Error FATAL LG001 fenced: the token is stale (LG001)")
	if _, err := r.Receive(); err == nil {
		t.Error("something comes behind the FATAL")
	}
	p.awaitBindings()
	if got := p.seen.of(gate.StaleToken); got != 1 {
		t.Errorf("%d refusals counted, want 1", got)
	}
}
