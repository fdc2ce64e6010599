package proxy

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/ticket"
	fencesql "github.com/lychgate/lychgate/sql"
	"github.com/lychgate/lychgate/sql/pgserver"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// patience bounds what a test waits for.
const patience = 30 * time.Second

// issuer stands in for the coordinators: it signs tickets and publishes its key.
type issuer struct {
	signer *ticket.Signer
	server *httptest.Server
}

func newIssuer(t testing.TB) *issuer {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	i := &issuer{}
	if i.signer, err = ticket.NewSigner(private); err != nil {
		t.Fatal(err)
	}
	ring, err := ticket.NewKeyRing("c1", []ticket.Key{i.signer.Key()})
	if err != nil {
		t.Fatal(err)
	}
	document, err := ticket.Document{Ring: ring, Index: 1}.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	i.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(document) }))
	t.Cleanup(i.server.Close)
	return i
}

func (i *issuer) ticket(t testing.TB, resource string, token lease.Token) string {
	t.Helper()
	id := lease.NewID(0, [14]byte{byte(token)})
	raw, err := i.signer.Sign(ticket.Claims{
		Cluster: "c1", Resource: lease.Resource(resource), Token: token, Mode: lease.Exclusive,
		Lease: id.Hash(), Client: ticket.ClientHash("", "tester"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// running is a proxy that runs for a test.
type running struct {
	*Server
	stop context.CancelFunc
	log  *syncBuffer
	err  chan error
}

func start(t testing.TB, c Config) *running {
	t.Helper()
	log := new(syncBuffer)
	server, err := New(c.WithDefaults(), Deps{Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	r := &running{Server: server, stop: stop, log: log, err: make(chan error, 1)}
	go func() { r.err <- server.Run(ctx) }()
	t.Cleanup(func() { r.end(t) })
	select {
	case <-server.Bound():
	case err := <-r.err:
		r.err <- err
		t.Fatalf("run: %v", err)
	}
	return r
}

// end stops the proxy and wants it to end well; once.
func (r *running) end(t testing.TB) {
	t.Helper()
	r.stop()
	select {
	case err, ok := <-r.err:
		if ok {
			close(r.err)
			if err != nil {
				t.Errorf("run: %v", err)
			}
		}
	case <-time.After(patience):
		t.Fatal("the proxy does not end")
	}
}

type syncBuffer struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

func (r *running) admin(t testing.TB, path string) (int, string) {
	t.Helper()
	response, err := http.Get("http://" + r.AdminAddr().String() + path)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(body)
}

// awaitReadyz polls until /readyz answers with code and text.
func (r *running) awaitReadyz(t testing.TB, code int, text string) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		gotCode, body := r.admin(t, "/readyz")
		if gotCode == code && strings.Contains(body, text) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("readyz: %d %q, want %d %q\n%s", gotCode, body, code, text, r.log)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (r *running) connect(t testing.TB, raw string) (*pgx.Conn, error) {
	t.Helper()
	config, err := pgx.ParseConfig(fmt.Sprintf("postgres://app@%s/app?sslmode=disable", r.PostgresAddrs()[0]))
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams["fence.ticket"] = raw
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err == nil {
		t.Cleanup(func() { _ = conn.Close(context.Background()) }) // it may have been ended
	}
	return conn, err
}

func wantCode(t testing.TB, what string, err error, code string) {
	t.Helper()
	if refusal, ok := errors.AsType[*pgconn.PgError](err); !ok || refusal.Code != code {
		t.Errorf("%s: got %v, want SQLSTATE %s", what, err, code)
	}
}

func detailOf(err error) string {
	if refusal, ok := errors.AsType[*pgconn.PgError](err); ok {
		return refusal.Detail
	}
	return ""
}

func appDatabase(t testing.TB) *pgserver.Server {
	t.Helper()
	pg := pgtest.Start(t, pgserver.Config{})
	root := pgtest.Connect(t, pg.DSN("postgres", "postgres"))
	pgtest.Exec(t, root, "create role app login")
	pgtest.Exec(t, root, "create database app")
	conn := pgtest.Connect(t, pg.DSN("postgres", "app"))
	if _, err := fencesql.Install(t.Context(), conn, fencesql.Options{}); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, conn, "create table note (text text); grant all on note to app")
	return pg
}

func configFor(i *issuer, pg *pgserver.Server) Config {
	c := DefaultConfig()
	c.Admin, c.DrainTimeout = "127.0.0.1:0", patience
	c.Coordinators = []string{i.server.URL}
	c.Postgres = []Postgres{{
		Listen: "127.0.0.1:0", Upstream: fmt.Sprintf("%s:%d", pg.Host(), pg.Port()),
		Database: "app", Store: pg.DSN("lychgate_proxy", "app"),
	}}
	return c
}

func TestServesWhileTheStoreComesAndGoes(t *testing.T) {
	i, pg := newIssuer(t), appDatabase(t)
	r := start(t, configFor(i, pg))
	r.awaitReadyz(t, http.StatusOK, "ok")
	conn, err := r.connect(t, i.ticket(t, "r", 41))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "insert into note values ('41')"); err != nil {
		t.Fatal(err)
	}
	if _, body := r.admin(t, "/bindings"); !strings.Contains(body, `"resource":"r","token":"41"`) {
		t.Errorf("bindings: %s", body)
	}
	if _, body := r.admin(t, "/metrics"); !strings.Contains(body, `lychgate_bindings{adapter="postgres"} 1`) {
		t.Error("the metrics do not show the binding")
	}

	if err := pg.Crash(); err != nil {
		t.Fatal(err)
	}
	r.awaitReadyz(t, http.StatusServiceUnavailable, "postgres[0]: store not ready")
	_, err = r.connect(t, i.ticket(t, "r", 42))
	wantCode(t, "with the store down", err, "LG007")

	if err := pg.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.awaitReadyz(t, http.StatusOK, "ok")
	if _, err = r.connect(t, i.ticket(t, "r", 42)); err != nil {
		t.Errorf("after the restart: %v", err)
	}
	_, err = r.connect(t, i.ticket(t, "r", 41))
	wantCode(t, "stale", err, "LG001")
	if _, body := r.admin(t, "/metrics"); !strings.Contains(body, `lychgate_fencing_rejections_total{adapter="postgres",reason="stale_token"} 1`) {
		t.Error("the metrics do not show the rejection")
	}
}

func TestStartsWhileEverythingIsDown(t *testing.T) {
	i, pg := newIssuer(t), appDatabase(t)
	if err := pg.Crash(); err != nil {
		t.Fatal(err)
	}
	c := configFor(i, pg)
	c.Coordinators = []string{"http://127.0.0.1:1"}
	r := start(t, c)
	r.awaitReadyz(t, http.StatusServiceUnavailable, "no keys to verify tickets with")
	r.awaitReadyz(t, http.StatusServiceUnavailable, "postgres[0]: store not ready")
	if code, _ := r.admin(t, "/livez"); code != http.StatusOK {
		t.Errorf("livez: %d", code)
	}
	// Whoever connects is told to come again, not that the ticket is bad.
	_, err := r.connect(t, i.ticket(t, "r", 1))
	wantCode(t, "with everything down", err, "LG007")
	if !strings.Contains(detailOf(err), "no coordinator") {
		t.Errorf("the detail does not say what is missing: %q", detailOf(err))
	}
	// The store back alone is not enough.
	if err := pg.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = r.connect(t, i.ticket(t, "r", 1))
	wantCode(t, "with the coordinators down", err, "LG007")
}

func TestDrainLetsATransactionEnd(t *testing.T) {
	i, pg := newIssuer(t), appDatabase(t)
	r := start(t, configFor(i, pg))
	conn, err := r.connect(t, i.ticket(t, "r", 1))
	if err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "insert into note values ('kept')"); err != nil {
		t.Fatal(err)
	}
	r.stop()
	r.awaitReadyz(t, http.StatusServiceUnavailable, "draining")
	if _, err := tx.Exec(t.Context(), "insert into note values ('kept too')"); err != nil {
		t.Errorf("inside the transaction: %v", err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Errorf("commit: %v", err)
	}
	r.end(t)
	direct := pgtest.Connect(t, pg.DSN("postgres", "app"))
	var n int
	if err := direct.QueryRow(t.Context(), "select count(*) from note").Scan(&n); err != nil || n != 2 {
		t.Errorf("%d rows, %v; want 2", n, err)
	}
}

// offline is a configuration of a proxy whose store and coordinators are nowhere.
func offline() Config {
	c := validConfig()
	c.Admin, c.Postgres[0].Listen, c.Coordinators = "127.0.0.1:0", "127.0.0.1:0", []string{"http://127.0.0.1:1"}
	c.Postgres[0].Upstream, c.Postgres[0].Store = "127.0.0.1:1", "postgres://lychgate_proxy@127.0.0.1:1/app"
	return c
}

func TestSaysAtTheStartWhatItPromises(t *testing.T) {
	c := offline()
	c.Postgres = append(c.Postgres, c.Postgres[0])
	c.Postgres[1].Policy, c.Postgres[1].AllowUnsigned = "read-only", true
	r := start(t, c)
	r.end(t)
	log := r.log.String()
	for _, want := range []string{
		"msg=listening", "guarantee=strict policy=require on_lease_end=keep auth=relay", "policy=read-only",
		`level=WARN msg="unsigned tokens are accepted`, "postgres[1].allow_unsigned", `msg="proxy stopped"`,
	} {
		if !strings.Contains(log, want) {
			t.Errorf("no %q in:\n%s", want, log)
		}
	}
	if strings.Contains(log, "postgres[0].allow_unsigned") {
		t.Errorf("a warning about a listener that wants signatures:\n%s", log)
	}
}

func TestNamesTheAddressThatIsTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for field, change := range map[string]func(*Config){
		"admin":              func(c *Config) { c.Admin = taken.Addr().String() },
		"postgres[0].listen": func(c *Config) { c.Postgres[0].Listen = taken.Addr().String() },
	} {
		c := offline()
		change(&c)
		server, err := New(c, Deps{Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := server.Run(t.Context()); err == nil || !strings.HasPrefix(err.Error(), field+": ") {
			t.Errorf("got %v, want an error about %s", err, field)
		}
	}
}

func TestNewNamesTheField(t *testing.T) {
	c := offline()
	c.Postgres[0].TLS = TLS{Cert: "nowhere.pem", Key: "nowhere.key"}
	if _, err := New(c, Deps{}); err == nil || !strings.HasPrefix(err.Error(), "postgres[0].tls: ") {
		t.Errorf("got %v", err)
	}
	dir := t.TempDir()
	for _, name := range []string{"c.pem", "c.key"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("not PEM"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c.Postgres[0].TLS = TLS{Cert: filepath.Join(dir, "c.pem"), Key: filepath.Join(dir, "c.key")}
	if _, err := New(c, Deps{}); err == nil || !strings.HasPrefix(err.Error(), "postgres[0].tls: ") {
		t.Errorf("got %v", err)
	}
	c.Postgres = nil
	if _, err := New(c, Deps{}); err == nil || !strings.HasPrefix(err.Error(), "postgres: ") {
		t.Errorf("got %v", err)
	}
}

// A proxy that is given no logger writes no log, also not the process's.
func TestWithoutALoggerNothingIsLogged(t *testing.T) {
	var log syncBuffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	server, err := New(offline(), Deps{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := server.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if log.String() != "" {
		t.Errorf("logged:\n%s", &log)
	}
}
