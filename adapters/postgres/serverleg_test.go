package postgres_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lychgate/lychgate/adapters/postgres"
	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// spy relays connections to the server and keeps what the proxy sends, for each connection.
type spy struct {
	addr string
	mu   sync.Mutex
	sent []*bytes.Buffer
}

func newSpy(t *testing.T) *spy {
	t.Helper()
	s := &spy{}
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
			to, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", server.Port()))
			if err != nil {
				return err
			}
			s.mu.Lock()
			kept := &bytes.Buffer{}
			s.sent = append(s.sent, kept)
			s.mu.Unlock()
			all.Go(func() { relayBehind(ctx, &spied{conn, s, kept}, to, "") })
		}
	})
	t.Cleanup(stop)
	return s
}

type spied struct {
	net.Conn
	spy  *spy
	kept *bytes.Buffer
}

func (c *spied) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.spy.mu.Lock()
	defer c.spy.mu.Unlock()
	c.kept.Write(p[:n])
	return n, err
}

func (c *spied) CloseWrite() error { return c.Conn.(*net.TCPConn).CloseWrite() }

// all is what each connection has sent so far.
func (s *spy) all() (sent []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, kept := range s.sent {
		sent = append(sent, kept.String())
	}
	return sent
}

// Whoever listens between the proxy and the server sees no session and no cancel request where the mode demands TLS, and
// would see both where it is plaintext.
func TestNothingIsSentInTheClear(t *testing.T) {
	w := newWorld(t)
	a := newAuthority(t)
	encryptServer(t, w, a)
	for mode, leg := range map[string]postgres.UpstreamTLS{
		"disable":     {},
		"require":     {Mode: postgres.TLSRequire},
		"verify-full": {Mode: postgres.TLSVerifyFull, CA: a.pool},
	} {
		t.Run(mode, func(t *testing.T) {
			s := newSpy(t)
			p := w.proxy(func(c *settings) { c.server.Upstream, c.server.UpstreamTLS = s.addr, leg })
			cancelled(t, w, p)
			cancelCode := string(binary.BigEndian.AppendUint32(nil, wire.CancelCode))
			sent := s.all()
			if len(sent) != 2 {
				t.Fatalf("%d connections, want one for the session and one for the cancel request", len(sent))
			}
			clear := mode == "disable"
			request := string(wire.Request(wire.SSLCode, nil))
			for i, got := range sent {
				if asked := strings.HasPrefix(got, request+"\x16"); asked == clear {
					t.Errorf("connection %d begins with %q", i, got[:min(len(got), 16)])
				}
			}
			if strings.Contains(sent[0], "pg_sleep") != clear || strings.Contains(sent[1], cancelCode) != clear {
				t.Errorf("in the clear: %v, %v; want %v", strings.Contains(sent[0], "pg_sleep"), strings.Contains(sent[1], cancelCode), clear)
			}
		})
	}
}

// cancelled runs a statement and has it cancelled.
func cancelled(t *testing.T, w *world, p *proxy) {
	t.Helper()
	r := p.raw(with(w.ticket("a", 1)))
	r.send(&query{String: "select pg_sleep(600)"})
	w.awaitRunning("pg_sleep")
	cancelVia(t, p.addr, r.key, nil)
	r.expect("Ready", "Columns 1", "Error ERROR 57014 canceling statement due to user request", "Ready I")
}

// A cancel request is not sent to a server without TLS where the mode demands it.
func TestCancelIsNotSentInTheClear(t *testing.T) {
	w := newWorld(t)
	s := newSpy(t) // in front of a server whose TLS is off
	p := w.proxy(func(c *settings) { c.server.Upstream, c.server.UpstreamTLS.Mode = s.addr, postgres.TLSRequire })
	conn := dial(t, p.addr)
	if _, err := conn.Write(wire.Request(wire.CancelCode, []byte("12345678"))); err != nil {
		t.Fatal(err)
	}
	_ = readAll(conn)
	if got := s.all(); len(got) != 1 || got[0] != string(wire.Request(wire.SSLCode, nil)) {
		t.Errorf("the server got %q", got)
	}
	if !strings.Contains(p.log.String(), "cancel request not delivered") {
		t.Error("the log does not say so")
	}
}

// The server's own ways to authenticate are relayed over an encrypted leg as over a plain one.
func TestAuthenticationOverAnEncryptedLeg(t *testing.T) {
	w := newWorld(t)
	a := newAuthority(t)
	encryptServer(t, w, a)
	config, root := newCertificate(t)
	p := w.proxy(func(s *settings) {
		s.server.TLS, s.server.UpstreamTLS = config, postgres.UpstreamTLS{Mode: postgres.TLSVerifyFull, CA: a.pool}
	})
	for _, user := range []string{"app", "pw", "md"} {
		for _, mode := range []string{"disable", "verify-full"} {
			t.Run(user+"/"+mode, func(t *testing.T) {
				params := with(w.ticket("a", 1))
				params["sslmode"], params["sslrootcert"] = mode, root
				dsn := strings.Replace(p.dsn(user, params), user+"@", user+":secret@", 1)
				conn, err := pgx.Connect(t.Context(), dsn)
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close(t.Context())
				var got string
				if err := conn.QueryRow(t.Context(), encrypted).Scan(&got); err != nil || got != "encrypted TLSv1.3" {
					t.Errorf("got %q, %v", got, err)
				}
				psql(t, dsn, "select 1")
				if user == "app" {
					return
				}
				_, err = pgx.Connect(t.Context(), strings.Replace(dsn, ":secret@", ":wrong@", 1))
				wantCode(t, err, "28P01")
			})
		}
	}
}

// The certificate that the server asks for is the proxy's: a client's own does not get there, and one that does not fit is
// refused with what to look at.
func TestCertificatesThatTheServerRefuses(t *testing.T) {
	w := newWorld(t)
	pgtest.Exec(t, w.admin, "do $$ begin create role certified login; exception when duplicate_object then null; end $$")
	a, foreign := newAuthority(t), newAuthority(t)
	encryptServer(t, w, a)
	config, _ := newCertificate(t)
	config.ClientAuth, config.ClientCAs = tls.VerifyClientCertIfGiven, a.pool
	mine := a.issue("certified")
	for name, c := range map[string]struct {
		proxys []tls.Certificate
		code   string
	}{
		"none":              {nil, "28000"},
		"of another name":   {[]tls.Certificate{a.issue("somebody")}, "28000"},
		"of a foreign CA":   {[]tls.Certificate{foreign.issue("certified")}, "57P03"},
		"of the right name": {[]tls.Certificate{a.issue("certified")}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			p := w.proxy(func(s *settings) {
				s.server.TLS = config
				s.server.UpstreamTLS = postgres.UpstreamTLS{Mode: postgres.TLSVerifyFull, CA: a.pool, Certificates: c.proxys}
			})
			clients, err := pgx.ParseConfig(strings.Replace(p.dsn("certified", with(w.ticket("a", 1))), "sslmode=disable", "sslmode=require", 1))
			if err != nil {
				t.Fatal(err)
			}
			clients.TLSConfig.Certificates = []tls.Certificate{mine}
			conn, err := pgx.ConnectConfig(t.Context(), clients)
			if err == nil {
				defer conn.Close(t.Context())
			}
			if c.code == "" {
				if err != nil {
					t.Errorf("got %v", err)
				}
				return
			}
			wantCode(t, err, c.code)
		})
	}
	p := w.proxy(func(s *settings) { s.server.TLS = config })
	stranger := tls.Client(dial(t, p.addr), &tls.Config{
		InsecureSkipVerify: true, NextProtos: []string{"postgresql"}, Certificates: []tls.Certificate{foreign.issue("certified")},
	})
	packet := start(w)
	_, _ = io.WriteString(stranger, packet)
	if got := readAll(stranger); got != "" {
		t.Errorf("a client with a certificate of a foreign CA got %q", got)
	}
}

// TLS from the first byte, sessions and cancel requests alike; a server that is older than that is told apart.
func TestDirectTLSToTheServer(t *testing.T) {
	w := newWorld(t)
	a := newAuthority(t)
	encryptServer(t, w, a)
	s := newSpy(t)
	p := w.proxy(func(c *settings) {
		c.server.Upstream = s.addr
		c.server.UpstreamTLS = postgres.UpstreamTLS{Mode: postgres.TLSVerifyFull, CA: a.pool, Direct: true}
	})
	var version int
	if err := w.admin.QueryRow(t.Context(), "select current_setting('server_version_num')::int").Scan(&version); err != nil {
		t.Fatal(err)
	}
	if version < 170000 {
		if e := p.refuse("app", "57P03", with(w.ticket("a", 1))); !strings.Contains(e.Detail, "leave out upstream_tls.direct") {
			t.Errorf("got detail %q", e.Detail)
		}
		return
	}
	conn := p.connect(with(w.ticket("a", 1)))
	var got string
	if err := conn.QueryRow(t.Context(), encrypted).Scan(&got); err != nil || got != "encrypted TLSv1.3" {
		t.Errorf("got %q, %v", got, err)
	}
	cancelled(t, w, p)
	if sent := s.all(); len(sent) != 3 {
		t.Errorf("%d connections", len(sent))
	}
	for i, sent := range s.all() {
		if !strings.HasPrefix(sent, "\x16\x03") {
			t.Errorf("connection %d begins with %q", i, sent[:min(len(sent), 8)])
		}
	}
}
