package postgres_test

import (
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/lychgate/lychgate/adapters/postgres"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// verifierLine is what an operator puts into the file for a user, with PostgreSQL's own verifier.
func (w *world) verifierLine(user string) string {
	w.t.Helper()
	var line string
	err := w.admin.QueryRow(w.t.Context(), `select format('"%s" "%s"', rolname, rolpassword) from pg_authid where rolname = $1`, user).Scan(&line)
	if err != nil {
		w.t.Fatal(err)
	}
	return line + "\n"
}

func writeVerifiers(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users.txt")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func openVerifiers(t testing.TB, path string) *postgres.Verifiers {
	t.Helper()
	v, err := postgres.OpenVerifiers(path)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// authWorld has a server with TLS and the role "verified", which has to log in with SCRAM over TLS.
func authWorld(t testing.TB) (*world, *authority, tls.Certificate) {
	w := newWorld(t)
	pgtest.Exec(t, w.admin, `do $$ begin create role verified login password 'secret'; exception when duplicate_object then null; end $$`)
	a := newAuthority(t)
	return w, a, encryptServer(t, w, a)
}

func rootFile(t testing.TB, a *authority) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// The proxy verifies what real clients prove, on each kind of leg, and the server believes the proxy.
func TestScramByTheProxy(t *testing.T) {
	w, a, _ := authWorld(t)
	root := rootFile(t, a)
	users := openVerifiers(t, writeVerifiers(t, w.verifierLine("scram")+w.verifierLine("verified")))
	certificate := a.issue("127.0.0.1")
	offered := &tls.Config{ // as a reload can replace it
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &certificate, nil }, MinVersion: tls.VersionTLS12,
	}
	for leg, change := range map[string]func(*postgres.Config){
		"tcp":  func(*postgres.Config) {},
		"unix": func(c *postgres.Config) { c.Upstream = fmt.Sprintf("%s:%d", server.SocketDir(), server.Port()) },
		"tls": func(c *postgres.Config) {
			c.UpstreamTLS = postgres.UpstreamTLS{Mode: postgres.TLSVerifyFull, CA: a.pool}
		},
	} {
		p := w.proxy(func(s *settings) {
			s.server.TLS, s.server.Verifiers = offered, users
			change(&s.server)
		})
		user := "scram"
		if leg == "tls" {
			user = "verified" // the server refuses it over any other leg
		}
		for _, mode := range []string{"sslmode=disable", "sslmode=verify-full", "sslmode=verify-full&channel_binding=disable", "sslmode=verify-full&channel_binding=require"} {
			t.Run(leg+"/"+mode, func(t *testing.T) {
				dsn := func(password string) string {
					return fmt.Sprintf("postgres://%s:%s@%s/%s?%s&sslrootcert=%s&fence.ticket=%s", user, password, p.addr, w.name, mode, root, w.ticket("a", 1))
				}
				if got := psql(t, dsn("secret"), "select current_user"); strings.TrimSpace(got) != user {
					t.Errorf("psql is %q", got)
				}
				out, err := psqlCommand(dsn("wrong"), "select 1").CombinedOutput()
				if err == nil || !strings.Contains(string(out), "password authentication failed") {
					t.Errorf("psql with a wrong password: %v, %s", err, out)
				}
				conn, err := pgx.Connect(t.Context(), strings.ReplaceAll(dsn("secret"), "&channel_binding=disable", ""))
				if err != nil {
					t.Fatal(err)
				}
				defer conn.Close(t.Context()) //nolint:errcheck // the test is over
				exec(t, conn, "insert into entry values (1, 'x') on conflict do nothing")
			})
		}
	}
}

// Between two TLS connections of different certificates SCRAM cannot be relayed, and the client is told what to do.
func TestScramCannotBeRelayedBetweenTwoTLSLegs(t *testing.T) {
	w, a, certificate := authWorld(t)
	run := func(ours tls.Certificate, mode string) (string, error) {
		p := w.proxy(func(s *settings) {
			s.server.TLS = &tls.Config{Certificates: []tls.Certificate{ours}, MinVersion: tls.VersionTLS12}
			s.server.UpstreamTLS = postgres.UpstreamTLS{Mode: postgres.TLSVerifyFull, CA: a.pool}
		})
		dsn := fmt.Sprintf("postgres://verified:secret@%s/%s?%s&sslrootcert=%s&fence.ticket=%s", p.addr, w.name, mode, rootFile(t, a), w.ticket("a", 1))
		out, err := psqlCommand(dsn, "select current_user").CombinedOutput()
		return string(out), err
	}
	other := a.issue("127.0.0.1")
	if out, err := run(other, "sslmode=verify-full"); err == nil || !strings.Contains(out, "auth scram") {
		t.Errorf("different certificates: %v, %s", err, out)
	}
	for name, c := range map[string]struct {
		ours tls.Certificate
		mode string
	}{
		"the client binds nothing":        {other, "sslmode=verify-full&channel_binding=disable"},
		"the client's leg is plain":       {other, "sslmode=disable"},
		"the same certificate":            {certificate, "sslmode=verify-full"},
		"the same certificate, and bound": {certificate, "sslmode=verify-full&channel_binding=require"},
	} {
		if out, err := run(c.ours, c.mode); err != nil || !strings.Contains(out, "verified") {
			t.Errorf("%s: %v, %s", name, err, out)
		}
	}
}

// An unknown user has the same conversation as a known one, each time the same, whichever proxy is asked.
func TestUnknownUsersAreNotToldApart(t *testing.T) {
	w := newWorld(t)
	path := writeVerifiers(t, w.verifierLine("scram"))
	talk := func(user string) (first, end string) {
		t.Helper()
		p := w.proxy(func(s *settings) { s.server.Verifiers = openVerifiers(t, path) })
		r := dialRaw(t, p.addr, user, w.name, with(w.ticket("a", 1)))
		if m, ok := r.next().(*pgproto3.AuthenticationSASL); !ok || len(m.AuthMechanisms) != 1 {
			t.Fatalf("got %#v", m)
		}
		r.send(&pgproto3.SASLInitialResponse{AuthMechanism: "SCRAM-SHA-256", Data: []byte("n,,n=,r=abc")})
		m, ok := r.next().(*pgproto3.AuthenticationSASLContinue)
		if !ok {
			t.Fatalf("got %#v", m)
		}
		nonce, rest, _ := strings.Cut(string(m.Data), ",")
		r.send(&pgproto3.SASLResponse{Data: []byte("c=biws," + nonce + ",p=" + strings.Repeat("A", 43) + "=")})
		e, ok := r.next().(*pgproto3.ErrorResponse)
		if !ok {
			t.Fatalf("got %#v", e)
		}
		return rest, e.Code + " " + strings.ReplaceAll(e.Message, user, "USER")
	}
	known, knownEnd := talk("scram")
	ghost, ghostEnd := talk("ghost")
	again, _ := talk("ghost")
	other, _ := talk("another")
	switch {
	case knownEnd != ghostEnd || !strings.HasPrefix(ghostEnd, "28P01"):
		t.Errorf("they end with %q and %q", knownEnd, ghostEnd)
	case len(known) != len(ghost) || known == ghost:
		t.Errorf("known %q, unknown %q", known, ghost)
	case ghost != again || ghost == other:
		t.Errorf("one name %q and %q, another %q", ghost, again, other)
	}
}

// A password that has changed is refused with what to do until the file is right, which is taken without a restart.
func TestVerifierThatIsOutOfDate(t *testing.T) {
	w := newWorld(t)
	path := writeVerifiers(t, w.verifierLine("scram"))
	p := w.proxy(func(s *settings) { s.server.Verifiers = openVerifiers(t, path) })
	pgtest.Exec(t, w.admin, "alter role scram password 'secret'") // with another salt
	dsn := strings.Replace(p.dsn("scram", with(w.ticket("a", 1))), "scram@", "scram:secret@", 1)
	_, err := pgx.Connect(t.Context(), dsn)
	if e := wantCode(t, err, "28000"); !strings.Contains(e.Detail, "another verifier") || !strings.Contains(e.Hint, "auth.file") {
		t.Errorf("got %q, %q", e.Detail, e.Hint)
	}
	if err := os.WriteFile(path, []byte("# a comment\n"+w.verifierLine("scram")), 0o600); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close(t.Context())
	if err := os.WriteFile(path, []byte("nonsense, and longer than what was there before it: "+time.Now().String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if conn, err = pgx.Connect(t.Context(), dsn); err != nil {
		t.Fatalf("what the file said before counts: %v", err)
	}
	_ = conn.Close(t.Context())
	if !strings.Contains(p.log.String(), "auth.file has changed and is not taken") {
		t.Error("nobody is told of the broken file")
	}
}

// A server that wants the password itself cannot have it.
func TestServersThatScramCannotAnswer(t *testing.T) {
	w := newWorld(t)
	line := w.verifierLine("scram")
	for user, want := range map[string]string{"pw": "cleartext password", "md": "md5"} {
		p := w.proxy(func(s *settings) {
			s.server.Verifiers = openVerifiers(t, writeVerifiers(t, strings.Replace(line, "scram", user, 1)))
		})
		_, err := pgx.Connect(t.Context(), strings.Replace(p.dsn(user, with(w.ticket("a", 1))), user+"@", user+":secret@", 1))
		if e := wantCode(t, err, "28000"); !strings.Contains(e.Detail, want) {
			t.Errorf("%s: got %q", user, e.Detail)
		}
	}
	p := w.proxy(func(s *settings) { // trust: the proxy's own check is the only one
		s.server.Verifiers = openVerifiers(t, writeVerifiers(t, strings.Replace(line, "scram", "app", 1)))
	})
	right := strings.Replace(p.dsn("app", with(w.ticket("a", 1))), "app@", "app:secret@", 1)
	conn, err := pgx.Connect(t.Context(), right)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close(t.Context())
	_, err = pgx.Connect(t.Context(), strings.Replace(right, ":secret@", ":wrong@", 1))
	wantCode(t, err, "28P01")
}

func TestVerifierFilesThatAreRefused(t *testing.T) {
	w := newWorld(t)
	line := w.verifierLine("scram")
	for want, text := range map[string]string{
		"line 2: the verifier of \"md\" is of md5": line + w.verifierLine("md"),
		"line 1: is not":                       "scram " + line,
		"stands there twice":                   line + line,
		"has no user":                          "; nothing\n",
		"line 1: the verifier of \"a\" is not": `"a" "secret"`,
	} {
		if _, err := postgres.OpenVerifiers(writeVerifiers(t, text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	path := writeVerifiers(t, line)
	if err := os.Chmod(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := postgres.OpenVerifiers(path); err == nil || !strings.Contains(err.Error(), "chmod 600") {
		t.Errorf("got %v", err)
	}
}
