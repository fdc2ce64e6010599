package postgres_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lychgate/lychgate/adapters/postgres"
	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
)

// behind makes a proxy whose load balancers are the networks; faults counts what it closes.
func (w *world) behind(faults *faults, networks ...string) *proxy {
	return w.proxy(func(s *settings) {
		s.server.ProxyProtocol.Refused = faults.add
		for _, n := range networks {
			s.server.ProxyProtocol.From = append(s.server.ProxyProtocol.From, netip.MustParsePrefix(n))
		}
		config, _ := newCertificate(w.t)
		s.server.TLS = config
		s.server.HelloTimeout = 10 * time.Second
	})
}

type faults struct {
	mu  sync.Mutex
	all []string
}

func (f *faults) add(one string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, one)
}

func (f *faults) are(want ...string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Equal(f.all, want)
}

// balancer begins every connection that it relays with a header.
func balancer(t testing.TB, to, header string) (addr string) {
	t.Helper()
	addr, stop := serve(t, func(ctx context.Context, l net.Listener) error {
		var all sync.WaitGroup
		defer all.Wait()
		defer context.AfterFunc(ctx, func() { l.Close() })()
		for {
			client, err := l.Accept()
			if err != nil {
				return nil
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				return err
			}
			all.Go(func() { relayBehind(ctx, client, server, header) })
		}
	})
	t.Cleanup(stop)
	return addr
}

func relayBehind(ctx context.Context, client, server net.Conn, header string) {
	defer context.AfterFunc(ctx, func() { client.Close(); server.Close() })()
	_, _ = io.WriteString(server, header)
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0])
			_ = way[1].(interface{ CloseWrite() error }).CloseWrite()
		})
	}
	both.Wait()
	client.Close()
	server.Close()
}

const (
	lineOf7   = "PROXY TCP4 192.0.2.7 10.0.0.1 12345 7632\r\n"
	binaryOf7 = "\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x07\x0a\x00\x00\x01\x30\x39\x1d\xd0"
	localOnly = "\r\n\r\n\x00\r\nQUIT\n\x20\x00\x00\x00"
)

func (p *proxy) remotes() (list []string) {
	for _, b := range p.gate.Bindings() {
		list = append(list, b.Remote)
	}
	return list
}

// The address of the header stands in the log and in the table, the session works as any other, on plain and on TLS legs,
// and so do cancel requests.
func TestClientsBehindALoadBalancer(t *testing.T) {
	w := newWorld(t)
	for name, header := range map[string]string{"line": lineOf7, "binary": binaryOf7} {
		for _, mode := range []string{"disable", "require"} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				a := name + mode
				var none faults
				p := w.behind(&none, "127.0.0.0/8")
				addr := balancer(t, p.addr, header)
				dsn := fmt.Sprintf("postgres://app@%s/%s?sslmode=%s&fence.ticket=%s", addr, w.name, mode, w.ticket(a, 1))
				conn, err := pgx.Connect(t.Context(), dsn)
				if err != nil {
					t.Fatal(err)
				}
				if got := p.remotes(); !slices.Equal(got, []string{"192.0.2.7:12345"}) {
					t.Errorf("the table has %v", got)
				}
				exec(t, conn, "insert into entry select n, 'x' from generate_series(1, 20000) n; delete from entry")
				if psql(t, dsn, "select 42"); !strings.Contains(p.log.String(), "client=192.0.2.7:12345 via=127.0.0.1:") {
					t.Error("the log does not name the client")
				}
				r := dialRaw(t, addr, "app", w.name, with(w.ticket(a, 1)))
				r.login()
				r.send(&query{String: "select pg_sleep(600)"})
				w.awaitRunning("pg_sleep")
				cancelVia(t, addr, r.key, &tls.Config{InsecureSkipVerify: true})
				if got := r.until("Ready"); !strings.Contains(got, "Error ERROR 57014 canceling statement due to user request") {
					t.Errorf("the cancelled statement: got %s", got)
				}
				p2 := w.proxy(nil) // a takeover ends them as any other
				exec(t, p2.connect(with(w.ticket(a, 2))), "select 1")
				if got := describe(r.next()); !strings.HasPrefix(got, "Error FATAL LG001") {
					t.Errorf("got %s, want LG001", got)
				}
				if !none.are() {
					t.Errorf("faults: %v", none.all)
				}
			})
		}
	}
}

// Direct TLS comes behind the header too, and so does what a load balancer says for itself.
func TestHeaderBeforeDirectTLS(t *testing.T) {
	w := newWorld(t)
	var none faults
	p := w.behind(&none, "127.0.0.1/32")
	for header, want := range map[string]string{binaryOf7: "192.0.2.7:12345", localOnly: "127.0.0.1:", "PROXY UNKNOWN\r\n": "127.0.0.1:"} {
		conn := dial(t, p.addr)
		if _, err := io.WriteString(conn, header); err != nil {
			t.Fatal(err)
		}
		r := &raw{t: t, conn: tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"postgresql"}})}
		r.begin("app", w.name, with(w.ticket("a", 1)))
		r.login()
		if got := p.remotes(); len(got) != 1 || !strings.HasPrefix(got[0], want) {
			t.Errorf("the table has %v, want %s", got, want)
		}
		r.conn.Close()
		p.awaitBindings()
	}
	if !none.are() {
		t.Errorf("faults: %v", none.all)
	}
}

// A header and the start-up message may be cut anywhere.
func TestHeaderAndStartupInPieces(t *testing.T) {
	w := newWorld(t)
	var none faults
	p := w.behind(&none, "127.0.0.1/32")
	start := startup("user", "app", "database", w.name, "fence.ticket", w.ticket("a", 1))
	for _, header := range []string{lineOf7, binaryOf7} {
		conn := dial(t, p.addr)
		for _, b := range []byte(header + string(start.Packet())) {
			if _, err := conn.Write([]byte{b}); err != nil {
				t.Fatal(err)
			}
		}
		p.awaitBindings("a:1")
		conn.Close()
		p.awaitBindings()
	}
}

// Nobody is believed whose header is not to be believed, nothing is said to whoever sends a bad one, and each is counted.
func TestHeadersThatAreRefused(t *testing.T) {
	w := newWorld(t)
	packet := start(w)
	ssl := string(wire.Request(wire.SSLCode, nil))
	for name, c := range map[string]struct {
		from, sent string
		fault      string
	}{
		"none":                            {"127.0.0.1/32", packet, "missing"},
		"none, TLS":                       {"127.0.0.1/32", ssl, "missing"},
		"malformed":                       {"127.0.0.1/32", "PROXY TCP4 1.2.3.4\r\n" + packet, "malformed"},
		"of a stranger":                   {"10.0.0.0/8", lineOf7 + packet, "unexpected"},
		"of a stranger, binary":           {"10.0.0.0/8", binaryOf7 + packet, "unexpected"},
		"where none are taken":            {"", lineOf7 + packet, "unexpected"},
		"twice":                           {"127.0.0.1/32", lineOf7 + lineOf7 + packet, "unexpected"},
		"twice, binary":                   {"127.0.0.1/32", lineOf7 + binaryOf7 + packet, "unexpected"},
		"behind a request for encryption": {"10.0.0.0/8", string(wire.Request(wire.GSSCode, nil)) + lineOf7 + packet, "unexpected"},
	} {
		t.Run(name, func(t *testing.T) {
			var found faults
			var networks []string
			if c.from != "" {
				networks = []string{c.from}
			}
			p := w.behind(&found, networks...)
			conn := dial(t, p.addr)
			_, _ = io.WriteString(conn, c.sent) // it may be closed already
			if got := readAll(conn); strings.Trim(got, "N") != "" {
				t.Errorf("it was told %q", got)
			}
			await(t, "the fault", func() bool { return found.are(c.fault) })
			if !strings.Contains(p.log.String(), "fault="+c.fault) {
				t.Errorf("the log has %s", p.log.String())
			}
			if strings.Contains(p.log.String(), "client=192.0.2.7:12345") != strings.HasPrefix(name, "twice") {
				t.Errorf("it was believed: %s", p.log.String())
			}
		})
	}
}

// Behind the request for TLS only TLS is taken, and inside of it only the client's own protocol.
func TestHeaderAfterTLS(t *testing.T) {
	w := newWorld(t)
	var found faults
	p := w.behind(&found, "127.0.0.1/32")
	ssl := string(wire.Request(wire.SSLCode, nil))

	between := dial(t, p.addr)
	_, _ = io.WriteString(between, lineOf7+ssl)
	_, _ = io.ReadFull(between, make([]byte, 1))
	_, _ = io.WriteString(between, lineOf7)
	if got := readAll(between); strings.Contains(got, "server_version") {
		t.Errorf("got %q", got)
	}

	inside := dial(t, p.addr)
	_, _ = io.WriteString(inside, lineOf7+ssl)
	_, _ = io.ReadFull(inside, make([]byte, 1))
	secure := tls.Client(inside, &tls.Config{InsecureSkipVerify: true})
	_, _ = io.WriteString(secure, lineOf7+start(w))
	if got := readAll(secure); got != "" {
		t.Errorf("got %q", got)
	}
	await(t, "the fault", func() bool { return found.are("unexpected") })
}

func start(w *world) string {
	s := startup("user", "app", "database", w.name, "fence.ticket", w.ticket("a", 1))
	return string(s.Packet())
}

// A load balancer that does not finish its header is cut, one that only looks whether somebody listens is no fault.
func TestHeaderThatDoesNotCome(t *testing.T) {
	w := newWorld(t)
	for _, sent := range []string{"", lineOf7[:9], binaryOf7[:20]} {
		var found faults
		p := w.proxy(func(s *settings) {
			s.server.ProxyProtocol = postgres.ProxyProtocol{From: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}, Refused: found.add}
			s.server.HelloTimeout = 50 * time.Millisecond
		})
		conn := dial(t, p.addr)
		_, _ = io.WriteString(conn, sent)
		if got := readAll(conn); got != "" {
			t.Errorf("got %q", got)
		}
		await(t, "the fault", func() bool { return found.are("incomplete") })
		dial(t, p.addr).Close()
		conn = dial(t, p.addr)
		_, _ = io.WriteString(conn, lineOf7+start(w))
		p.awaitBindings("a:1")
		if !found.are("incomplete") {
			t.Errorf("faults: %v", found.all)
		}
		conn.Close()
	}
}

// `lychgate run` may have a load balancer between itself and the proxy.
func TestServeTicketBehindALoadBalancer(t *testing.T) {
	w := newWorld(t)
	var none faults
	p := w.behind(&none, "127.0.0.1/32")
	through := balancer(t, p.addr, binaryOf7)
	addr, stop := serve(t, func(ctx context.Context, l net.Listener) error {
		return postgres.ServeTicket(ctx, l, postgres.TicketConfig{
			Proxies: []string{through}, TLS: &tls.Config{InsecureSkipVerify: true}, Ticket: func() string { return w.ticket("a", 1) },
		})
	})
	t.Cleanup(stop)
	psql(t, fmt.Sprintf("postgres://app@%s/%s?sslmode=disable", addr, w.name), "insert into entry values (1, 'x')")
	if !strings.Contains(p.log.String(), "client=192.0.2.7:12345") || !none.are() {
		t.Errorf("faults %v, the log has %s", none.all, p.log.String())
	}
}
