package pgxlease_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/client/clienttest"
	"github.com/lychgate/lychgate/coordinator/client/pgxlease"
)

// held is a lease in the test's hands.
type held struct {
	mu     sync.Mutex
	ticket string
	err    error
}

func (h *held) Ticket() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.ticket
}

func (h *held) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

func (h *held) set(ticket string, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ticket, h.err = ticket, err
}

// server accepts every connection and statement, and notes the tickets that it was shown.
type server struct {
	listener net.Listener
	wg       sync.WaitGroup
	refuse   bool // connections, as a proxy does with a stale ticket

	mu      sync.Mutex
	tickets []string
}

func serve(t *testing.T) *server { return start(t, &server{}) }

func start(t *testing.T, s *server) *server {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.listener = l
	s.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			s.wg.Go(func() { s.talk(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		s.wg.Wait()
	})
	return s
}

func (s *server) talk(conn net.Conn) {
	defer conn.Close()
	b := pgproto3.NewBackend(conn, conn)
	startup, err := b.ReceiveStartupMessage()
	if err != nil {
		return
	}
	if m, ok := startup.(*pgproto3.StartupMessage); ok {
		s.mu.Lock()
		s.tickets = append(s.tickets, m.Parameters[pgxlease.Parameter])
		s.mu.Unlock()
	}
	if s.refuse {
		b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "LG001", Message: "stale token"})
		_ = b.Flush() // the client may be gone
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for b.Flush() == nil {
		m, err := b.Receive()
		if err != nil {
			return
		}
		if _, ok := m.(*pgproto3.Query); ok {
			b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 0")})
			b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
		}
	}
}

func (s *server) shown() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.tickets...)
}

func (s *server) url() string {
	return fmt.Sprintf("postgres://app@%s/app?sslmode=disable&default_query_exec_mode=simple_protocol", s.listener.Addr())
}

func TestPoolShowsTheFreshTicket(t *testing.T) {
	s, l := serve(t), &held{ticket: "one"}
	cfg, err := pgxpool.ParseConfig(s.url())
	if err != nil {
		t.Fatal(err)
	}
	var connects, prepares int
	cfg.BeforeConnect = func(context.Context, *pgx.ConnConfig) error { connects++; return nil }
	cfg.PrepareConn = func(context.Context, *pgx.Conn) (bool, error) { prepares++; return true, nil }
	cfg.MaxConns = 1
	pgxlease.ConfigurePool(l, cfg)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), "select"); err != nil {
		t.Fatal(err)
	}
	l.set("two", nil)
	pool.Reset()
	if _, err := pool.Exec(t.Context(), "select"); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.shown()); got != "[one two]" {
		t.Errorf("shown %s, want [one two]", got)
	}
	if connects != 2 || prepares != 2 {
		t.Errorf("the pool's own hooks ran %d and %d times, want 2 and 2", connects, prepares)
	}
	// An idle connection is not handed out any more, and no other is opened.
	l.set("", client.ErrLost)
	if _, err := pool.Exec(t.Context(), "select"); !errors.Is(err, client.ErrLost) {
		t.Errorf("after the loss: got %v, want ErrLost", err)
	}
	if n := len(s.shown()); n != 2 {
		t.Errorf("%d connections were opened, want 2", n)
	}
}

func TestPoolKeepsAnOldHook(t *testing.T) {
	s, l := serve(t), &held{ticket: "one"}
	cfg, err := pgxpool.ParseConfig(s.url())
	if err != nil {
		t.Fatal(err)
	}
	called := false
	cfg.BeforeAcquire = func(context.Context, *pgx.Conn) bool { called = true; return true } //nolint:staticcheck // the subject
	pgxlease.ConfigurePool(l, cfg)
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pool.Exec(t.Context(), "select"); err != nil || !called {
		t.Errorf("got %v, hook called: %v", err, called)
	}
}

func TestDatabaseSQL(t *testing.T) {
	s, l := serve(t), &held{ticket: "one"}
	cfg, err := pgx.ParseConfig(s.url())
	if err != nil {
		t.Fatal(err)
	}
	db := pgxlease.OpenDB(l, cfg)
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), "select"); err != nil {
		t.Fatal(err)
	}
	l.set("", client.ErrLost)
	if _, err := db.ExecContext(t.Context(), "select"); !errors.Is(err, client.ErrLost) {
		t.Errorf("after the loss: got %v, want ErrLost", err)
	}
	if got := fmt.Sprint(s.shown()); got != "[one]" {
		t.Errorf("shown %s, want [one]", got)
	}
}

func TestBind(t *testing.T) {
	s, l := serve(t), &held{ticket: "one"}
	cfg, err := pgx.ParseConfig(s.url())
	if err != nil {
		t.Fatal(err)
	}
	if err := pgxlease.Bind(t.Context(), l, cfg); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(s.shown()); got != "[one]" {
		t.Errorf("shown %s, want [one]", got)
	}
	if _, ok := cfg.RuntimeParams[pgxlease.Parameter]; ok {
		t.Error("the caller's configuration was changed")
	}
	s.listener.Close()
	if err := pgxlease.Bind(t.Context(), l, cfg); err == nil {
		t.Error("bound without a proxy")
	}
}

// Do with BindFirst has shown the ticket to the proxy when the work starts; refused, the work never starts and
// the lock is free again.
func TestBindFirst(t *testing.T) {
	coordinator := clienttest.New()
	defer coordinator.Close()
	c, err := coordinator.Dial(client.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, refuse := range []bool{false, true} {
		s := start(t, &server{refuse: refuse})
		cfg, err := pgx.ParseConfig(s.url())
		if err != nil {
			t.Fatal(err)
		}
		started := false
		err = c.Do(t.Context(), "ledger/eu", func(_ context.Context, l *client.Lease) error {
			started = true
			if got := s.shown(); len(got) != 1 || got[0] != l.Ticket() {
				t.Errorf("shown when the work starts: %q, want the ticket %q", got, l.Ticket())
			}
			return nil
		}, pgxlease.BindFirst(cfg))
		refusal, refused := errors.AsType[*pgconn.PgError](err)
		if refused != refuse || refused && refusal.Code != "LG001" || !refused && err != nil || started == refuse {
			t.Errorf("refused %v: got %v, started %v", refuse, err, started)
		}
		if _, _, held := coordinator.Holder("ledger/eu"); held || len(s.shown()) != 1 {
			t.Errorf("refused %v: held %v after %d connections, want free after 1", refuse, held, len(s.shown()))
		}
	}
}

func TestConfigureOfALostLease(t *testing.T) {
	cfg, err := pgx.ParseConfig("postgres://app@127.0.0.1:1/app")
	if err != nil {
		t.Fatal(err)
	}
	if err := pgxlease.Configure(&held{err: client.ErrReleased}, cfg); !errors.Is(err, client.ErrReleased) {
		t.Errorf("got %v, want ErrReleased", err)
	}
	if _, ok := cfg.RuntimeParams[pgxlease.Parameter]; ok {
		t.Error("a ticket was set")
	}
}

// Work through the proxy under a lock, with a pool whose connections all show the lock's ticket.
func ExampleConfigurePool() {
	work := func(ctx context.Context, l *client.Lease) error {
		cfg, err := pgxpool.ParseConfig("postgres://app@127.0.0.1:7632/app") // the proxy
		if err != nil {
			return err
		}
		pgxlease.ConfigurePool(l, cfg)
		pool, err := pgxpool.NewWithConfig(ctx, cfg)
		if err != nil {
			return err
		}
		defer pool.Close()
		_, err = pool.Exec(ctx, "update account set balance = balance - 1 where id = 7")
		return err // LG001 if somebody newer has come
	}
	c, err := client.Dial(client.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if err := c.Do(context.Background(), "ledger/eu", work); err != nil {
		log.Print(err)
	}
}

// Fence every earlier holder before work starts whose first step does not go through the proxy.
func ExampleBindFirst() {
	cfg, err := pgx.ParseConfig("postgres://app@127.0.0.1:7632/app") // the proxy
	if err != nil {
		log.Fatal(err)
	}
	c, err := client.Dial(client.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	work := func(context.Context, *client.Lease) error {
		return nil // nobody with an older ticket can write to app any more
	}
	if err := c.Do(context.Background(), "ledger/eu", work, pgxlease.BindFirst(cfg)); err != nil {
		log.Print(err) // LG001 if somebody newer has come: then work has not started
	}
}
