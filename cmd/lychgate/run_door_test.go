package main

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// fakeProxy lets everybody in, or nobody, and notes the tickets that it was shown.
type fakeProxy struct {
	listener net.Listener
	wg       sync.WaitGroup

	mu      sync.Mutex
	tickets []string
	refuse  *pgproto3.ErrorResponse
}

func startProxy(t *testing.T) *fakeProxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &fakeProxy{listener: l}
	p.wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			p.wg.Go(func() { p.talk(conn) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.wg.Wait()
	})
	return p
}

func (p *fakeProxy) talk(conn net.Conn) {
	defer conn.Close()
	b := pgproto3.NewBackend(conn, conn)
	startup, err := b.ReceiveStartupMessage()
	if err != nil {
		return
	}
	p.mu.Lock()
	refuse := p.refuse
	if m, ok := startup.(*pgproto3.StartupMessage); ok {
		p.tickets = append(p.tickets, m.Parameters["fence.ticket"])
	}
	p.mu.Unlock()
	if refuse != nil {
		b.Send(refuse)
		_ = b.Flush()
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	for b.Flush() == nil {
		if _, err := b.Receive(); err != nil {
			return
		}
	}
}

func (p *fakeProxy) shown() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.tickets)
}

// The command's listener shows the ticket, was tried before the command started, and dies with the run.
func TestRunOpensADoorToTheProxy(t *testing.T) {
	_, addr := coordinatorFor(t)
	proxy := startProxy(t)
	t.Setenv("PGHOSTADDR", "192.0.2.1") // must not lead the command past the listener
	p := startRun(t, addr, "--proxy", "127.0.0.1:1,"+proxy.listener.Addr().String(), "--user", "app", "--database", "shop",
		"--", "sh", "-c", `echo "url=$DATABASE_URL"; echo "at=$PGHOST:$PGPORT/$PGDATABASE as $PGUSER $PGHOSTADDR"; exec sleep 1000`)
	url := strings.TrimPrefix(p.line("url="), "url=")
	if got := proxy.shown(); len(got) != 1 || got[0] != "clienttest:ledger/eu:1:0" {
		t.Errorf("before the command started the proxy was shown %q, want the ticket once", got)
	}
	cfg, err := pgconn.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.line("at="), fmt.Sprintf("at=127.0.0.1:%d/shop as app ", cfg.Port); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if cfg.User != "app" || cfg.Database != "shop" {
		t.Errorf("got user %q, database %q, want app, shop", cfg.User, cfg.Database)
	}
	ctx, cancel := context.WithTimeout(t.Context(), runTimeout)
	defer cancel()
	conn, err := pgconn.ConnectConfig(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	if got := proxy.shown(); len(got) != 2 || !strings.HasPrefix(got[1], "clienttest:ledger/eu:1:") {
		t.Errorf("the proxy was shown %q, want the ticket twice", got)
	}
	p.signal(syscall.SIGKILL)
	if _, err := conn.ReceiveMessage(ctx); err == nil || ctx.Err() != nil {
		t.Errorf("after the run was killed its connections live on: %v", err)
	}
	if err := conn.Close(ctx); err != nil {
		t.Log(err) // it is broken
	}
}

func TestRunWhoseTicketIsRefused(t *testing.T) {
	s, addr := coordinatorFor(t)
	proxy := startProxy(t)
	for _, tt := range []struct {
		code, message string
		starts        bool
	}{
		{"LG001", "stale token", false},
		{"LG005", "takeover timed out", false},
		{"LG007", "not ready (LG007)", false},
		{"3D000", "no such database", false},
		{"28P01", "password authentication failed", true}, // after the floor was raised
	} {
		proxy.mu.Lock()
		proxy.refuse = &pgproto3.ErrorResponse{Severity: "FATAL", Code: tt.code, Message: tt.message}
		proxy.mu.Unlock()
		p := startRun(t, addr, "--proxy", proxy.listener.Addr().String(), "--", "echo", "ran")
		if tt.starts {
			p.line("ran")
			if code := p.code(); code != 0 {
				t.Errorf("%s: got %d, want 0", tt.code, code)
			}
		} else {
			if line := p.line("lychgate"); !strings.Contains(line, tt.message) || strings.Count(line, tt.code) != 1 {
				t.Errorf("%s: said %q", tt.code, line)
			}
			if code := p.code(); code != exitFailure {
				t.Errorf("%s: got %d, want 1", tt.code, code)
			}
		}
		if _, _, held := s.Holder("ledger/eu"); held {
			t.Errorf("%s: the lock was not given back", tt.code)
		}
	}
}
