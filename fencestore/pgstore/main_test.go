package pgstore_test

import (
	"context"
	"errors"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/fencestore/fencestoretest"
	"github.com/lychgate/lychgate/fencestore/pgstore"
	fencesql "github.com/lychgate/lychgate/sql"
	"github.com/lychgate/lychgate/sql/pgserver"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

var server *pgserver.Server

func TestMain(m *testing.M) {
	os.Exit(pgtest.Main(m, pgserver.Config{Settings: map[string]string{"max_connections": "200"}}, &server))
}

// cluster is the one that the tests' claims are of.
const cluster = fencestoretest.Cluster

// database is one with the schema installed, a table "entry", and roles "app" and "root" (a superuser).
type database struct {
	server *pgserver.Server
	name   string
	admin  *pgx.Conn
}

func newDatabase(t testing.TB) *database { return newDatabaseOn(t, server) }

func newDatabaseOn(t testing.TB, s *pgserver.Server) *database {
	t.Helper()
	d := &database{server: s, name: pgtest.NewDatabase(t, s)}
	d.admin = pgtest.Connect(t, d.dsn("postgres"))
	if _, err := fencesql.Install(t.Context(), d.admin, fencesql.Options{}); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, d.admin, `do $$ begin create role app login; exception when duplicate_object then null; end $$;
		do $$ begin create role root login superuser; exception when duplicate_object then null; end $$;
		create table entry (resource text, n bigint); grant all on entry to app`)
	return d
}

func (d *database) dsn(user string) string { return d.server.DSN(user, d.name) }

func (d *database) store(t testing.TB, change func(*pgstore.Config)) *pgstore.Store {
	t.Helper()
	cfg := pgstore.Config{DSN: d.dsn(fencesql.DefaultProxyRole)}
	if change != nil {
		change(&cfg)
	}
	store, err := pgstore.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(store.Close)
	return store
}

// client is a session of the application.
type client struct {
	conn    *pgx.Conn
	session fencestore.Session
}

func (d *database) client(t testing.TB) *client {
	t.Helper()
	return newClient(t, pgtest.Connect(t, d.dsn("app")))
}

func newClient(t testing.TB, conn *pgx.Conn) *client {
	t.Helper()
	c := &client{conn: conn}
	err := conn.QueryRow(context.Background(), "select pid, (extract(epoch from backend_start) * 1000000)::bigint "+
		"from pg_stat_activity where pid = pg_backend_pid()").Scan(&c.session.PID, &c.session.Started)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// alive asks the server itself, not the client's end of the connection.
func (d *database) alive(t testing.TB, s fencestore.Session) bool {
	t.Helper()
	var alive bool
	err := d.admin.QueryRow(context.Background(), "select exists (select from pg_stat_activity where pid = $1 "+
		"and (extract(epoch from backend_start) * 1000000)::bigint = $2)", s.PID, s.Started).Scan(&alive)
	if err != nil {
		t.Fatal(err)
	}
	return alive
}

func (d *database) awaitGone(t testing.TB, s fencestore.Session) {
	t.Helper()
	await(t, func() bool { return !d.alive(t, s) })
}

// await polls until ok, or fails the test after a while that is long enough for any machine.
func await(t testing.TB, ok func() bool) {
	t.Helper()
	poll := time.NewTicker(2 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(30 * time.Second); !ok(); <-poll.C {
		if time.Now().After(deadline) {
			t.Fatal("waited too long")
		}
	}
}

func claim(resource string, token fencestore.Token) fencestore.Claim {
	return fencestore.Claim{Cluster: cluster, Resource: resource, Token: token, LeaseHash: "hash"}
}

func mustBind(t testing.TB, s fencestore.Store, resource string, token fencestore.Token, c *client) fencestore.Accepted {
	t.Helper()
	accepted, err := s.Bind(t.Context(), claim(resource, token), c.session)
	if err != nil {
		t.Fatalf("bind %s under %d: %v", resource, token, err)
	}
	return accepted
}

func wantReason(t testing.TB, err error, want fencestore.Reason) *fencestore.Refusal {
	t.Helper()
	var refusal *fencestore.Refusal
	if !errors.As(err, &refusal) || refusal.Reason != want {
		t.Fatalf("got %v, want a refusal: %v", err, want)
	}
	return refusal
}

func wantFloor(t testing.TB, s fencestore.Store, resource string, want fencestore.Token) {
	t.Helper()
	floor, err := s.Floor(t.Context(), cluster, resource)
	if err != nil || floor.Token != want {
		t.Errorf("floor of %s: got %d, %v, want %d", resource, floor.Token, err, want)
	}
}

func TestConformance(t *testing.T) {
	fencestoretest.Run(t, func(t *testing.T) fencestoretest.Fixture {
		d := newDatabase(t)
		var mu sync.Mutex
		clients := map[fencestore.Session]*client{}
		// One store decides on a resource once at a time; the races are between stores, as between proxies.
		stores := make([]fencestore.Store, 17)
		for i := range stores {
			stores[i] = d.store(t, func(c *pgstore.Config) { c.Conns = 1 })
		}
		return fencestoretest.Fixture{
			Stores: stores,
			Open: func(t testing.TB) fencestore.Session {
				c := d.client(t)
				mu.Lock()
				defer mu.Unlock()
				clients[c.session] = c
				return c.session
			},
			End: func(t testing.TB, s fencestore.Session) {
				mu.Lock()
				defer mu.Unlock()
				_ = clients[s].conn.Close(context.Background()) // it may be gone already
				d.awaitGone(t, s)
			},
			Alive: d.alive,
		}
	})
}
