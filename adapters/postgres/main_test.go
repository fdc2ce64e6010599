package postgres_test

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lychgate/lychgate/adapters/postgres"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/ticket"
	"github.com/lychgate/lychgate/fencestore/pgstore"
	"github.com/lychgate/lychgate/proxy/gate"
	fencesql "github.com/lychgate/lychgate/sql"
	"github.com/lychgate/lychgate/sql/pgserver"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

var (
	server    *pgserver.Server
	serverLog lockedBuffer
)

func TestMain(m *testing.M) {
	os.Exit(pgtest.Main(m, pgserver.Config{
		Settings: map[string]string{"max_connections": "100", "log_statement": "all", "max_prepared_transactions": "5", "wal_level": "logical", "wal_keep_size": "256MB"},
		HBA: []string{
			"host all pw all password", "local all pw password", "host all md all md5", "local all md md5",
			"host all scram all scram-sha-256", "local all scram scram-sha-256",
			"hostssl all certified all cert", "hostssl all verified all scram-sha-256",
		},
		Log: &serverLog,
	}, &server))
}

// eventLoops is what the tests' proxies are told; TestWithTwoGoroutinesASession changes it.
var eventLoops int

// patience bounds everything that a test waits for.
const patience = 30 * time.Second

// lockedBuffer keeps what is written to it.
type lockedBuffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// world is a database with the schema, a table and the coordinator's key.
type world struct {
	t      testing.TB
	name   string
	admin  *pgx.Conn
	signer *ticket.Signer
	ring   *ticket.KeyRing
}

const cluster = "c1"

func newWorld(t testing.TB) *world {
	t.Helper()
	w := &world{t: t, name: pgtest.NewDatabase(t, server)}
	w.signer, w.ring = newKeys(t, cluster)
	w.admin = pgtest.Connect(t, server.DSN("postgres", w.name))
	if _, err := fencesql.Install(t.Context(), w.admin, fencesql.Options{}); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, w.admin, `do $$ begin
			create role app login; create role root login superuser;
			create role pw login password 'secret'; create role scram login password 'secret';
			set password_encryption = md5; create role md login password 'secret';
		exception when duplicate_object then null; end $$;
		create table entry (n bigint primary key, who text); grant all on entry to public; grant all on schema public to public`)
	return w
}

func newKeys(t testing.TB, cluster string) (*ticket.Signer, *ticket.KeyRing) {
	t.Helper()
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := ticket.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	ring, err := ticket.NewKeyRing(cluster, []ticket.Key{signer.Key()})
	if err != nil {
		t.Fatal(err)
	}
	return signer, ring
}

// ticket is a grant of resource under token.
func (w *world) ticket(resource string, token lease.Token) string {
	return sign(w.t, w.signer, cluster, resource, token)
}

// shared is a shared grant; holder tells apart those of one token.
func (w *world) shared(resource string, token lease.Token, holder byte) string {
	w.t.Helper()
	return signClaims(w.t, w.signer, ticket.Claims{
		Cluster: cluster, Resource: lease.Resource(resource), Token: token, Mode: lease.Shared,
		Lease: lease.NewID(1, [14]byte{byte(token), holder}).Hash(), Client: ticket.ClientHash("test", "client"),
	})
}

func sign(t testing.TB, signer *ticket.Signer, cluster, resource string, token lease.Token) string {
	t.Helper()
	return signClaims(t, signer, ticket.Claims{
		Cluster: cluster, Resource: lease.Resource(resource), Token: token, Mode: lease.Exclusive,
		Lease: lease.NewID(1, [14]byte{byte(token)}).Hash(), Client: ticket.ClientHash("test", "client"),
	})
}

func signClaims(t testing.TB, signer *ticket.Signer, claims ticket.Claims) string {
	t.Helper()
	raw, err := signer.Sign(claims)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func (w *world) count(where string) (n int) {
	w.t.Helper()
	if err := w.admin.QueryRow(w.t.Context(), "select count(*) from entry where "+where).Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) store() *pgstore.Store {
	w.t.Helper()
	store, err := pgstore.New(pgstore.Config{DSN: server.DSN(fencesql.DefaultProxyRole, w.name), Conns: 3})
	if err != nil {
		w.t.Fatal(err)
	}
	return store
}

// verifier answers from a key ring.
type verifier struct{ ring *ticket.KeyRing }

func (v verifier) Verify(_ context.Context, raw string) (ticket.Claims, error) {
	return v.ring.Verify(raw)
}

// counter is an Observer.
type counter struct {
	mu       sync.Mutex
	refused  map[gate.Reason]int
	bound    int
	takeover []time.Duration
}

func (c *counter) Refused(_ string, r gate.Reason) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused[r]++
}

func (c *counter) Bound(_ string, delta int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bound += delta
}
func (c *counter) BindTook(string, time.Duration) {}
func (c *counter) TookOver(_ string, took time.Duration, _ int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.takeover = append(c.takeover, took)
}

func (c *counter) of(r gate.Reason) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.refused[r]
}

// proxy is one that runs.
type proxy struct {
	t     testing.TB
	world *world
	addr  string
	gate  *gate.Gate
	seen  *counter
	log   *lockedBuffer
	stop  func() // drains and waits
}

// settings are what a test may change of a proxy.
type settings struct {
	gate   gate.Config
	server postgres.Config
}

func (w *world) proxy(change func(*settings)) *proxy {
	w.t.Helper()
	p := &proxy{t: w.t, world: w, seen: &counter{refused: map[gate.Reason]int{}}, log: &lockedBuffer{}}
	store := w.store()
	log := slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	s := settings{
		gate: gate.Config{
			Listener: "test", Adapter: "postgres", Policy: gate.Require, Verifier: verifier{w.ring}, Store: store,
			Observer: p.seen, Logger: log,
		},
		server: postgres.Config{
			Upstream: fmt.Sprintf("127.0.0.1:%d", server.Port()), Database: w.name, DrainTimeout: patience, Logger: log,
			EventLoops: eventLoops,
		},
	}
	if change != nil {
		change(&s)
	}
	var err error
	if p.gate, err = gate.New(s.gate); err != nil {
		w.t.Fatal(err)
	}
	s.server.Gate = p.gate
	srv, err := postgres.New(s.server)
	if err != nil {
		w.t.Fatal(err)
	}
	p.addr, p.stop = serve(w.t, srv.Serve)
	w.t.Cleanup(func() {
		p.stop()
		store.Close()
	})
	return p
}

// serve runs a server on a free port of the loopback until stop is called.
func serve(t testing.TB, run func(context.Context, net.Listener) error) (addr string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- run(ctx, l) }()
	return l.Addr().String(), sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("serve: %v", err)
			}
		case <-time.After(2 * patience):
			t.Error("serve does not end")
		}
	})
}

// dsn is a connection string for a user through the proxy, with start-up parameters.
func (p *proxy) dsn(user string, params map[string]string) string {
	q := url.Values{"sslmode": {"disable"}}
	for name, value := range params {
		q.Set(name, value)
	}
	return fmt.Sprintf("postgres://%s@%s/%s?%s", user, p.addr, p.world.name, strings.ReplaceAll(q.Encode(), "+", "%20"))
}

// with is the start-up parameters of tickets.
func with(tickets ...string) map[string]string {
	return map[string]string{"fence.ticket": strings.Join(tickets, ",")}
}

// connect logs in as app.
func (p *proxy) connect(params map[string]string) *pgx.Conn {
	p.t.Helper()
	return pgtest.Connect(p.t, p.dsn("app", params))
}

// refuse expects a log-in to be refused with a SQLSTATE.
func (p *proxy) refuse(user, code string, params map[string]string) *pgconn.PgError {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, p.dsn(user, params))
	if err == nil {
		_ = conn.Close(ctx)
	}
	return wantCode(p.t, err, code)
}

func wantCode(t testing.TB, err error, code string) *pgconn.PgError {
	t.Helper()
	var e *pgconn.PgError
	if !errors.As(err, &e) || e.Code != code {
		t.Fatalf("got %v, want SQLSTATE %s", err, code)
	}
	return e
}

// exec runs one statement in the simple protocol.
func exec(t testing.TB, conn *pgx.Conn, sql string) {
	t.Helper()
	if err := try(conn, sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func try(conn *pgx.Conn, sql string) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_, err := conn.PgConn().Exec(ctx, sql).ReadAll()
	return err
}

// await polls until ok.
func await(t testing.TB, what string, ok func() bool) {
	t.Helper()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(patience); !ok(); <-poll.C {
		if time.Now().After(deadline) {
			t.Fatalf("gave up waiting: %s", what)
		}
	}
}

// bindings lists what the proxy has bound, as "resource:token".
func (p *proxy) bindings() []string {
	var list []string
	for _, b := range p.gate.Bindings() {
		list = append(list, fmt.Sprintf("%s:%d", b.Resource, b.Token))
	}
	return list
}

func (p *proxy) awaitBindings(want ...string) {
	p.t.Helper()
	await(p.t, fmt.Sprintf("bindings %v", want), func() bool { return slices.Equal(p.bindings(), want) })
}

// rows counts the bindings that the database itself has of this world's cluster.
func (w *world) rows() (n int) {
	w.t.Helper()
	if err := w.admin.QueryRow(context.Background(), "select count(*) from fence.binding").Scan(&n); err != nil {
		w.t.Fatal(err)
	}
	return n
}

func (w *world) floor(resource string) (token int64) {
	w.t.Helper()
	err := w.admin.QueryRow(context.Background(), "select coalesce(max(token), 0) from fence.floor where resource = $1", resource).Scan(&token)
	if err != nil {
		w.t.Fatal(err)
	}
	return token
}
