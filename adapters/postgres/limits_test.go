package postgres_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/lychgate/lychgate/adapters/postgres"
	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/fencestore/memstore"
)

func TestConnectionLimit(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(func(s *settings) { s.server.MaxConnections = 2 })
	first := p.connect(with(w.ticket("a", 1)))
	second := p.connect(with(w.ticket("a", 1)))
	p.refuse("app", "53300", with(w.ticket("a", 1)))
	exec(t, second, "select 1")
	if err := first.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "a slot", func() bool {
		r := dialRaw(t, p.addr, "app", w.name, with(w.ticket("a", 1)))
		m := r.next()
		_, refused := m.(*pgproto3.ErrorResponse)
		return !refused
	})
}

// Clients that say nothing keep nobody out, and are bounded themselves: the oldest goes.
func TestHalfOpenClientsKeepNobodyOut(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(func(s *settings) { s.server.MaxConnections, s.server.HelloTimeout = 2, time.Hour })
	silent := []net.Conn{dial(t, p.addr), dial(t, p.addr), dial(t, p.addr)}
	if got, err := io.ReadAll(silent[0]); err != nil || len(got) > 0 {
		t.Errorf("the oldest got %q, %v, want the end of the stream", got, err)
	}
	exec(t, p.connect(with(w.ticket("a", 1))), "select 1")
	exec(t, p.connect(with(w.ticket("a", 2))), "select 1")
}

func TestHalfOpenClientsAreCut(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(func(s *settings) { s.server.HelloTimeout, s.server.StartupTimeout = 20*time.Millisecond, time.Hour })
	for name, hello := range map[string][]byte{"nothing": nil, "a part": startup("user", "app").Packet()[:9]} {
		conn := dial(t, p.addr)
		if _, err := conn.Write(hello); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); err != nil || len(got) > 0 {
			t.Errorf("after %s: got %q, %v, want the end of the stream", name, got, err)
		}
	}
}

// Clients that do not answer the server's question for a password hold half of the slots at most.
func TestStrangersKeepNoTicketOut(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(func(s *settings) { s.server.MaxConnections = 2 })
	stranger := dialRaw(t, p.addr, "scram", w.name, nil)
	stranger.until("AuthenticationSASL")
	p.refuse("app", "53300", nil)
	exec(t, p.connect(with(w.ticket("a", 1))), "select 1")
	stranger.conn.Close()
	await(t, "the stranger's place", func() bool {
		_, refused := dialRaw(t, p.addr, "app", w.name, nil).next().(*pgproto3.ErrorResponse)
		return !refused
	})
}

func TestLoggedInClientsAreNoStrangers(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(func(s *settings) { s.server.MaxConnections = 2 })
	p.connect(nil)
	p.connect(nil)
}

// Backends that do not go are waited for in bounded number.
func TestUnbindingIsBounded(t *testing.T) {
	s := newFakeServer(t, nil)
	p := newFakeProxy(t, s, func(s *settings) {
		s.gate.Store = memstore.New(memstore.Config{Alive: func(fencestore.Session) bool { return true }})
		s.gate.GoneFor, s.server.DrainTimeout = time.Hour, 50*time.Millisecond
	})
	const over = 3
	for range 128 + over {
		r := dialRaw(t, p.addr, "app", "db", with(p.world.ticket("a", 1)))
		r.login()
		r.conn.Close()
	}
	p.awaitBindings()
	await(t, "those over the bound to be left", func() bool {
		return strings.Count(p.log.String(), "too many sessions wait") == over
	})
}

// tiredListener fails a few times before it accepts.
type tiredListener struct {
	net.Listener
	left *atomic.Int32
}

func (l tiredListener) Accept() (net.Conn, error) {
	if l.left.Add(-1) >= 0 {
		return nil, errors.New("no more file descriptors")
	}
	return l.Listener.Accept()
}

func TestServeTicketSurvivesAcceptErrorsAndIsBounded(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	var tired atomic.Int32
	tired.Store(2)
	addr, _ := serve(t, func(ctx context.Context, l net.Listener) error {
		return postgres.ServeTicket(ctx, tiredListener{l, &tired}, postgres.TicketConfig{
			Proxies: []string{p.addr}, Ticket: func() string { return w.ticket("a", 1) }, MaxConnections: 1,
		})
	})
	first := dialRaw(t, addr, "app", w.name, nil)
	first.login()
	if got := readAll(dial(t, addr)); got != "" {
		t.Errorf("the client over the limit got %q", got)
	}
	first.conn.Close()
	await(t, "the place", func() bool {
		_, err := dialRaw(t, addr, "app", w.name, nil).Receive()
		return err == nil
	})
}
