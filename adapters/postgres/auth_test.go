package postgres_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
)

// newCertificate makes one for 127.0.0.1 and the path of a file with it, for clients that check.
func newCertificate(t testing.TB) (*tls.Config, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "proxy"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "root.crt")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, MinVersion: tls.VersionTLS12}, path
}

func TestAuthentication(t *testing.T) {
	w := newWorld(t)
	config, root := newCertificate(t)
	for leg, upstream := range map[string]string{
		"tcp":  fmt.Sprintf("127.0.0.1:%d", server.Port()),
		"unix": fmt.Sprintf("%s:%d", server.SocketDir(), server.Port()),
	} {
		p := w.proxy(func(s *settings) { s.server.TLS, s.server.Upstream = config, upstream })
		for _, user := range []string{"app", "pw", "md", "scram"} {
			for _, mode := range []string{"disable", "prefer", "require", "verify-full"} {
				t.Run(leg+"/"+user+"/"+mode, func(t *testing.T) {
					params := with(w.ticket("a", 1))
					params["sslmode"], params["sslrootcert"] = mode, root
					dsn := strings.Replace(p.dsn(user, params), user+"@", user+":secret@", 1)
					conn, err := pgx.Connect(t.Context(), dsn)
					if err != nil {
						t.Fatal(err)
					}
					defer conn.Close(t.Context()) //nolint:errcheck // the test is over
					exec(t, conn, "insert into entry values (1, 'x') on conflict do nothing")
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
}

// psql runs the real one.
func psql(t testing.TB, dsn string, commands ...string) string {
	t.Helper()
	out, err := psqlCommand(dsn, commands...).CombinedOutput()
	if err != nil {
		t.Fatalf("psql: %v\n%s", err, out)
	}
	return string(out)
}

func psqlCommand(dsn string, commands ...string) *osexec.Cmd {
	// libpq takes no unknown parameters in a URL: the ticket travels in options.
	ticket := ""
	base, query, _ := strings.Cut(dsn, "?")
	var kept []string
	for _, pair := range strings.Split(query, "&") {
		if v, ok := strings.CutPrefix(pair, "fence.ticket="); ok {
			ticket = "-c fence.ticket=" + v
			continue
		}
		kept = append(kept, pair)
	}
	args := []string{"-X", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", base + "?" + strings.Join(kept, "&")}
	for _, c := range commands {
		args = append(args, "-c", c)
	}
	cmd := osexec.Command("psql", args...)
	cmd.Env = append(os.Environ(), "PGOPTIONS="+ticket)
	return cmd
}

func TestRequestsForEncryption(t *testing.T) {
	w := newWorld(t)
	config, _ := newCertificate(t)
	plain, secure := w.proxy(nil), w.proxy(func(s *settings) { s.server.TLS = config })
	ask := func(addr string, code uint32) (net.Conn, byte) {
		t.Helper()
		conn := dial(t, addr)
		answer := make([]byte, 1)
		if _, err := conn.Write(wire.Request(code, nil)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(answer); err != nil {
			t.Fatal(err)
		}
		return conn, answer[0]
	}
	for _, c := range []struct {
		addr string
		code uint32
		want byte
	}{{plain.addr, wire.SSLCode, 'N'}, {plain.addr, wire.GSSCode, 'N'}, {secure.addr, wire.GSSCode, 'N'}, {secure.addr, wire.SSLCode, 'S'}} {
		conn, got := ask(c.addr, c.code)
		if got != c.want {
			t.Errorf("request %d: answer %c, want %c", c.code&0xffff, got, c.want)
		}
		if got == 'N' { // the same connection goes on in plaintext
			r := &raw{t: t, conn: conn, Frontend: pgproto3.NewFrontend(conn, conn)}
			r.send(&pgproto3.StartupMessage{ProtocolVersion: 3 << 16, Parameters: map[string]string{"user": "app", "database": w.name}})
			r.login()
		}
	}

	conn := dial(t, secure.addr) // bytes smuggled in before TLS must not count as encrypted
	smuggled := wire.Startup{Protocol: 3 << 16, Params: []wire.Param{{Name: "user", Value: "app"}, {Name: "database", Value: w.name}}}
	if _, err := conn.Write(append(wire.Request(wire.SSLCode, nil), smuggled.Packet()...)); err != nil {
		t.Fatal(err)
	}
	if got := readAll(conn); len(got) == 0 || got[0] != 'S' || strings.Contains(got, "server_version") {
		t.Errorf("smuggled start-up message: %q", got)
	}

	direct := config.Clone() // TLS from the first byte
	direct.InsecureSkipVerify, direct.NextProtos = true, []string{"postgresql"}
	tlsConn := tls.Client(dial(t, secure.addr), direct)
	r := &raw{t: t, conn: tlsConn, Frontend: pgproto3.NewFrontend(tlsConn, tlsConn)}
	r.send(&pgproto3.StartupMessage{ProtocolVersion: 3 << 16, Parameters: map[string]string{"user": "app", "database": w.name}})
	r.login()
	direct.NextProtos = nil
	if text := readAll(tls.Client(dial(t, secure.addr), direct)); strings.Contains(text, "server_version") || !strings.Contains(text, "08P01") {
		t.Errorf("direct TLS without ALPN: %q", text)
	}
}

func dial(t testing.TB, addr string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return conn
}

func TestProtocol32IsNegotiated(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	r := dialRaw(t, p.addr, "app", w.name, with(w.ticket("a", 1)))
	r.login()
	conn := dial(t, p.addr)
	newer := &raw{t: t, conn: conn, Frontend: pgproto3.NewFrontend(conn, conn)}
	newer.send(&pgproto3.StartupMessage{ProtocolVersion: 3<<16 | 2, Parameters: map[string]string{"user": "app", "database": w.name, "fence.ticket": w.ticket("a", 1), "_pq_.future": "1"}})
	if got := newer.until("Ready"); !strings.Contains(got, "NegotiateProtocolVersion") {
		t.Errorf("got %s", got)
	}
	newer.send(&query{String: "select 1"})
	newer.until("Ready")
}
