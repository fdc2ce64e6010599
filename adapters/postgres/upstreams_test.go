package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/lychgate/lychgate/adapters/postgres"
	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

func TestParseUpstreams(t *testing.T) {
	for text, want := range map[string]string{
		"a:1": "a:1", "a:1, b:2": "a:1 b:2", "[::1]:1,/run/pg:5432": "[::1]:1 /run/pg:5432",
		"a:1,": "not host:port", "a:1,b": "not host:port", "a:1,a:1": "named twice", strings.Repeat("a:1,", 17): "named twice",
	} {
		hosts, err := postgres.ParseUpstreams(text)
		if got := fmt.Sprint(strings.Join(hosts, " "), err); !strings.Contains(got, want) {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}

func TestSeveralUpstreamsNeedSomebodyToChoose(t *testing.T) {
	w := newWorld(t)
	_, err := postgres.New(postgres.Config{Upstream: "a:1,b:2", Gate: w.proxy(nil).gate})
	if err == nil || !strings.Contains(err.Error(), "which is the server") {
		t.Errorf("got %v", err)
	}
}

// chosen is Upstreams of which the test says where the server is.
type chosen struct {
	mu    sync.Mutex
	host  string
	ctx   context.Context
	end   context.CancelCauseFunc
	err   error
	doubt func() // what a look finds out; nil: nothing
}

func (c *chosen) move(host string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.end != nil {
		c.end(errors.New("the database server is " + host + " now"))
	}
	c.host = host
	c.ctx, c.end = context.WithCancelCause(context.Background())
}

func (c *chosen) Current(context.Context) (string, context.Context, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.host, c.ctx, c.err
}

func (c *chosen) Doubt() <-chan struct{} {
	if c.doubt != nil {
		c.doubt()
	}
	done := make(chan struct{})
	close(done)
	return done
}

// twoHosts are two names of the test's server.
func twoHosts() (tcp, unix string) {
	return fmt.Sprintf("127.0.0.1:%d", server.Port()), fmt.Sprintf("%s:%d", server.SocketDir(), server.Port())
}

// When the server is elsewhere its sessions end, and are told so; where a commit may have been in flight that is said too.
func TestSessionsEndWithTheTenureOfTheirServer(t *testing.T) {
	w := newWorld(t)
	tcp, unix := twoHosts()
	at := &chosen{}
	at.move(tcp)
	p := w.proxy(func(s *settings) { s.server.Upstream, s.server.Upstreams = tcp+","+unix, at })
	idle, open, busy := p.connect(with(w.ticket("a", 1))), p.connect(with(w.ticket("b", 1))), p.connect(with(w.ticket("c", 1)))
	exec(t, open, "BEGIN")
	exec(t, open, "INSERT INTO entry VALUES (1, 'open')")
	running := make(chan error, 1)
	go func() { running <- try(busy, "SELECT pg_sleep(60)") }()
	await(t, "the statement runs", func() bool {
		var n int
		err := w.admin.QueryRow(t.Context(), "select count(*) from pg_stat_activity where query like 'SELECT pg_sleep%' and datname = current_database() and state = 'active'").Scan(&n)
		return err == nil && n == 1
	})
	at.move(unix)
	if e := wantCode(t, <-running, postgres.CodeOutcomeUnknown); !strings.Contains(e.Detail, unix) {
		t.Errorf("detail %q does not name the server", e.Detail)
	}
	p.awaitBindings() // what a client sends before its session has ended counts as in flight
	if e := wantCode(t, try(idle, "SELECT 1"), postgres.CodeNotReady); e.Severity != "FATAL" || e.Hint != "Connect again." {
		t.Errorf("got %s, hint %q", e.Severity, e.Hint)
	}
	wantCode(t, try(open, "COMMIT"), postgres.CodeNotReady)
	await(t, "the statement is cancelled where it runs", func() bool {
		var n int
		err := w.admin.QueryRow(t.Context(), "select count(*) from pg_stat_activity where query like 'SELECT pg_sleep%' and datname = current_database() and state = 'active'").Scan(&n)
		return err == nil && n == 0
	})
	exec(t, p.connect(with(w.ticket("a", 1))), "INSERT INTO entry VALUES (2, 'after')")
	if n := w.count("true"); n != 1 {
		t.Errorf("%d rows, want that of the session on the server that decides", n)
	}
}

// Who comes while the server moves is not kept on the old one.
func TestConnectIsTriedWhereTheServerHasMoved(t *testing.T) {
	w := newWorld(t)
	tcp, _ := twoHosts()
	const nobody = "127.0.0.1:1"
	at := &chosen{}
	at.move(nobody)
	at.doubt = func() { at.move(tcp) }
	p := w.proxy(func(s *settings) { s.server.Upstream, s.server.Upstreams = nobody+","+tcp, at })
	exec(t, p.connect(with(w.ticket("a", 1))), "INSERT INTO entry VALUES (1, 'a')")
}

func TestNoneOfTheHostsIsTheServer(t *testing.T) {
	w := newWorld(t)
	tcp, unix := twoHosts()
	at := &chosen{err: errors.New("a:1: is a standby; b:2: is down")}
	p := w.proxy(func(s *settings) { s.server.Upstream, s.server.Upstreams = tcp+","+unix, at })
	if e := p.refuse("app", postgres.CodeNotReady, with(w.ticket("a", 1))); !strings.Contains(e.Detail, "a:1: is a standby; b:2: is down") {
		t.Errorf("detail %q", e.Detail)
	}
}

// disturbed is a store to which something happens before each bind.
type disturbed struct {
	fencestore.Store
	before func(fencestore.Session)
}

func (s *disturbed) Bind(ctx context.Context, claim fencestore.Claim, session fencestore.Session) (fencestore.Accepted, error) {
	s.before(session)
	return s.Store.Bind(ctx, claim, session)
}

// A backend that dies between the probe and the bind is not one behind a pooler: the client is told what the server said.
func TestBackendDiesBeforeItIsBound(t *testing.T) {
	w := newWorld(t)
	admin := pgtest.Connect(t, server.DSN("postgres", w.name))
	p := w.proxy(func(s *settings) {
		s.gate.Store = &disturbed{s.gate.Store, func(session fencestore.Session) {
			_, _ = admin.Exec(t.Context(), "select pg_terminate_backend($1, 10000)", session.PID)
		}}
	})
	if e := p.refuse("app", "57P01", with(w.ticket("a", 1))); !strings.Contains(e.Message, "administrator") {
		t.Errorf("got %s", e.Message)
	}
}

// A session whose server is no longer the store's is told so, not that a pooler stands in between.
func TestServerMovesBeforeTheBind(t *testing.T) {
	w := newWorld(t)
	tcp, unix := twoHosts()
	at := &chosen{}
	at.move(tcp)
	p := w.proxy(func(s *settings) {
		s.server.Upstream, s.server.Upstreams = tcp+","+unix, at
		s.gate.Store = &disturbed{s.gate.Store, func(fencestore.Session) { at.move(unix) }}
	})
	if e := p.refuse("app", postgres.CodeNotReady, with(w.ticket("a", 1))); !strings.Contains(e.Detail, unix) {
		t.Errorf("detail %q", e.Detail)
	}
}
