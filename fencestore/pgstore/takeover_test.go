package pgstore_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/fencestore/pgstore"
	fencesql "github.com/lychgate/lychgate/sql"
	"github.com/lychgate/lychgate/sql/pgserver"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// The old holder is caught in the middle of something, at every isolation level: nothing of it takes effect.
func TestTakeoverFromABusyHolder(t *testing.T) {
	d := newDatabase(t)
	store := d.store(t, nil)
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		for _, busy := range []struct {
			name  string
			start func(*testing.T, *client, string)
		}{
			{"open transaction", openTransaction},
			{"running query", d.runningQuery},
			{"copy in", copyIn},
			{"answer that nobody reads", d.unreadAnswer},
		} {
			t.Run(level+"/"+busy.name, func(t *testing.T) {
				resource := strings.ReplaceAll(t.Name(), " ", "_")
				c := d.mute(t)
				mustBind(t, store, resource, 41, c)
				pgtest.Exec(t, c.conn, fmt.Sprintf("begin isolation level %s; insert into entry values ('%s', 41)", level, resource))
				busy.start(t, c, resource)
				successor := d.client(t)
				if got := mustBind(t, store, resource, 42, successor); got.Ended != 1 {
					t.Errorf("got %+v, want one ended", got)
				}
				if d.alive(t, c.session) {
					t.Error("the old holder's session is still there")
				}
				pgtest.Exec(t, successor.conn, fmt.Sprintf("insert into entry values ('%s', 42)", resource))
				if n := d.count(t, resource); n != 1 {
					t.Errorf("rows: got %d, want the successor's alone", n)
				}
			})
		}
	}
}

func openTransaction(*testing.T, *client, string) {}

func (d *database) runningQuery(t *testing.T, c *client, resource string) {
	send(t, c, &pgproto3.Query{String: "insert into entry select '" + resource + "', 41 from pg_sleep(600)"})
	await(t, func() bool { return d.waits(t, c, "PgSleep") })
}

func copyIn(t *testing.T, c *client, resource string) {
	send(t, c, &pgproto3.Query{String: "copy entry from stdin"}, &pgproto3.CopyData{Data: []byte(resource + "\t41\n")})
}

func (d *database) unreadAnswer(t *testing.T, c *client, _ string) {
	send(t, c, &pgproto3.Query{String: "select repeat('x', 1000000) from generate_series(1, 1000)"})
	await(t, func() bool { return d.waits(t, c, "ClientWrite") })
}

// send writes messages past pgx, which would wait for the answers.
func send(t *testing.T, c *client, messages ...pgproto3.FrontendMessage) {
	t.Helper()
	var buf []byte
	for _, m := range messages {
		var err error
		if buf, err = m.Encode(buf); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := bytes.NewReader(buf).WriteTo(c.conn.PgConn().Conn()); err != nil {
		t.Fatal(err)
	}
}

func (d *database) waits(t testing.TB, c *client, event string) bool {
	t.Helper()
	var waits bool
	err := d.admin.QueryRow(context.Background(), "select exists (select from pg_stat_activity where pid = $1 and wait_event = $2)",
		c.session.PID, event).Scan(&waits)
	if err != nil {
		t.Fatal(err)
	}
	return waits
}

// A session that does not end: LG005 within the bound, the floor unchanged; let in once it is gone.
func TestSessionThatDoesNotEnd(t *testing.T) {
	for _, c := range []struct {
		name         string
		hold, loosen func(*testing.T, *database, *client)
	}{
		{"stopped by the system", signal(syscall.SIGSTOP), signal(syscall.SIGCONT)},
		{
			"made a superuser since",
			func(t *testing.T, d *database, _ *client) { pgtest.Exec(t, d.admin, "alter role app superuser") },
			func(t *testing.T, d *database, _ *client) { pgtest.Exec(t, d.admin, "alter role app nosuperuser") },
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDatabase(t)
			store := d.store(t, func(c *pgstore.Config) { c.TakeoverTimeout = 200 * time.Millisecond })
			old := d.client(t)
			mustBind(t, store, "a", 41, old)
			c.hold(t, d, old)
			t.Cleanup(func() { c.loosen(t, d, old) })
			_, err := store.Raise(t.Context(), claim("a", 42))
			refusal := wantReason(t, err, fencestore.TakeoverTimeout)
			if !strings.Contains(refusal.Detail, strconv.FormatInt(old.session.PID, 10)) {
				t.Errorf("refusal %q does not name the process", refusal.Detail)
			}
			wantFloor(t, store, "a", 41)
			c.loosen(t, d, old)
			if got, err := store.Raise(t.Context(), claim("a", 42)); err != nil || d.alive(t, old.session) {
				t.Errorf("raise afterwards: got %+v, %v", got, err)
			}
		})
	}
}

func signal(sig syscall.Signal) func(*testing.T, *database, *client) {
	return func(t *testing.T, d *database, c *client) {
		err := syscall.Kill(int(c.session.PID), sig)
		if err != nil && !(sig == syscall.SIGCONT && errors.Is(err, syscall.ESRCH)) {
			t.Fatal(err)
		}
	}
}

// The number of a process is used again: the row of the earlier one must not end the later one.
func TestReusedProcessNumberIsSpared(t *testing.T) {
	d := newDatabase(t)
	store := d.store(t, nil)
	later := d.client(t)
	mustBind(t, store, "a", 41, later)
	pgtest.Exec(t, d.admin, "update fence.binding set started = started - 1")
	if got, err := store.Raise(t.Context(), claim("a", 42)); err != nil || got.Ended != 0 {
		t.Errorf("got %+v, %v, want nobody ended", got, err)
	}
	if !d.alive(t, later.session) {
		t.Error("the later session was ended")
	}
	var rows int
	if err := d.admin.QueryRow(t.Context(), "select count(*) from fence.binding").Scan(&rows); err != nil || rows != 0 {
		t.Errorf("rows under the lower token: got %d, %v, want none", rows, err)
	}
}

func TestSessionsThatCanNeverBeBound(t *testing.T) {
	d := newDatabase(t)
	store := d.store(t, nil)
	super := newClient(t, pgtest.Connect(t, d.dsn("root")))
	elsewhere := newClient(t, pgtest.Connect(t, d.server.DSN("app", "postgres")))
	for name, s := range map[string]fencestore.Session{
		"superuser": super.session, "another database": elsewhere.session, "physical replication": d.replication(t, "true"),
	} {
		_, err := store.Bind(t.Context(), claim("a", 41), s)
		if refusal := wantReason(t, err, fencestore.NotAllowed); refusal.Detail == "" || refusal.Hint == "" {
			t.Errorf("%s: refusal without detail or hint: %+v", name, refusal)
		}
	}
	wantFloor(t, store, "a", 0)
}

// A session of logical replication runs SQL too. It is bound, guarded and ended like any other.
func TestSessionOfLogicalReplication(t *testing.T) {
	d := newDatabase(t)
	store := d.store(t, nil)
	sender := d.replication(t, "database")
	mustBind(t, store, "a", 41, &client{session: sender})
	if got, err := store.Raise(t.Context(), claim("a", 42)); err != nil || got.Ended != 1 || d.alive(t, sender) {
		t.Errorf("raise: got %+v, %v, want one session ended", got, err)
	}
}

// replication is a session that replicates: "database" this one, "true" the whole server.
func (d *database) replication(t *testing.T, what string) (s fencestore.Session) {
	t.Helper()
	pgtest.Exec(t, d.admin, "do $$ begin create role sender login replication; exception when duplicate_object then null; end $$")
	conn, err := pgconn.Connect(t.Context(), d.dsn("sender")+"&replication="+what)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // the server may be gone
	s.PID = int64(conn.PID())
	err = d.admin.QueryRow(t.Context(), "select (extract(epoch from backend_start) * 1000000)::bigint from pg_stat_activity "+
		"where pid = $1", s.PID).Scan(&s.Started)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// The stale holder fills every slot of the server: the raise needs none.
func TestStaleHolderFillsEverySlot(t *testing.T) {
	s := pgtest.Start(t, pgserver.Config{Settings: map[string]string{"max_connections": "12", "superuser_reserved_connections": "2"}})
	d := newDatabaseOn(t, s)
	store := d.store(t, func(c *pgstore.Config) { c.Conns = 2 })
	await(t, func() bool { return d.sideConnections(t) == 2 }) // open without having been used
	filled := 0
	for {
		conn, err := pgx.Connect(t.Context(), d.dsn("app"))
		if err != nil {
			var pgErr *pgconn.PgError
			if !errors.As(err, &pgErr) || pgErr.Code != "53300" {
				t.Fatal(err)
			}
			break
		}
		defer func() { _ = conn.Close(context.Background()) }()
		mustBind(t, store, "a", 41, newClient(t, conn))
		filled++
	}
	if got, err := store.Raise(t.Context(), claim("a", 42)); err != nil || got.Ended != filled || filled == 0 {
		t.Fatalf("raise: got %+v, %v, want %d ended", got, err, filled)
	}
	mustBind(t, store, "a", 42, d.client(t))
}

func (d *database) sideConnections(t testing.TB) (n int) {
	t.Helper()
	err := d.admin.QueryRow(context.Background(), "select count(*) from pg_stat_activity where application_name = 'lychgate-fence'").Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSchemaMissing(t *testing.T) {
	d := &database{server: server, name: pgtest.NewDatabase(t, server)}
	d.admin = pgtest.Connect(t, d.dsn("postgres"))
	store := d.store(t, func(c *pgstore.Config) { c.DSN = d.dsn("postgres") })
	_, err := store.Raise(t.Context(), claim("a", 41))
	for _, err := range []error{store.Check(t.Context(), cluster), err} {
		if refusal := wantReason(t, err, fencestore.NotReady); !strings.Contains(refusal.Hint, "lychgate sql install") {
			t.Errorf("hint %q does not say what to do", refusal.Hint)
		}
	}
	if _, err := fencesql.Install(t.Context(), d.admin, fencesql.Options{}); err != nil {
		t.Fatal(err)
	}
	if err := store.Check(t.Context(), cluster); err != nil {
		t.Errorf("check once it is installed: %v", err)
	}
	pgtest.Exec(t, d.admin, "do $$ begin create role app login; exception when duplicate_object then null; end $$")
	stranger := d.store(t, func(c *pgstore.Config) { c.DSN = d.dsn("app") })
	wantReason(t, stranger.Check(t.Context(), cluster), fencestore.NotReady)
	pgtest.Exec(t, d.admin, "delete from fence.version where number > 3")
	if refusal := wantReason(t, store.Check(t.Context(), cluster), fencestore.NotReady); !strings.Contains(refusal.Detail, "version 3") {
		t.Errorf("refusal %q does not name the version", refusal.Detail)
	}
}

func TestServerDownAndBack(t *testing.T) {
	s := pgtest.Start(t, pgserver.Config{})
	d := newDatabaseOn(t, s)
	store := d.store(t, nil)
	if _, err := store.Raise(t.Context(), claim("a", 41)); err != nil {
		t.Fatal(err)
	}
	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { // connections that were open are noticed one by one
		err := store.Check(t.Context(), cluster)
		var refusal *fencestore.Refusal
		return errors.As(err, &refusal) && refusal.Reason == fencestore.NotReady && refusal.Hint != ""
	})
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return store.Check(t.Context(), cluster) == nil })
	wantFloor(t, store, "a", 41)
}

func TestServerInRecovery(t *testing.T) {
	s := pgtest.Start(t, pgserver.Config{})
	d := newDatabaseOn(t, s)
	store := d.store(t, nil)
	if _, err := store.Raise(t.Context(), claim("a", 41)); err != nil {
		t.Fatal(err)
	}
	standby := filepath.Join(s.Dir(), "data", "standby.signal")
	if err := os.WriteFile(standby, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := s.Own(standby); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := store.Raise(t.Context(), claim("a", 42))
	for _, err := range []error{err, store.Check(t.Context(), cluster)} {
		if refusal := wantReason(t, err, fencestore.NotReady); !strings.Contains(refusal.Detail, "recovery") {
			t.Errorf("got %v, want it to name the recovery", refusal)
		}
	}
	d.promote(t)
	// Another timeline: the database may have been brought back to an earlier state.
	for _, err := range []error{store.Check(t.Context(), cluster), second(store.Raise(t.Context(), claim("a", 42)))} {
		if refusal := wantReason(t, err, fencestore.NotReady); !strings.Contains(refusal.Hint, "adopt") {
			t.Errorf("got %+v, want a hint to adopt", refusal)
		}
	}
	if _, err := fencesql.Adopt(t.Context(), d.admin, cluster, time.Second); err != nil {
		t.Fatal(err)
	}
	wantFloor(t, store, "a", 41)
}

func second(_ fencestore.Accepted, err error) error { return err }

func (d *database) promote(t *testing.T) {
	t.Helper()
	d.admin = pgtest.Connect(t, d.dsn("postgres"))
	pgtest.Exec(t, d.admin, "select pg_promote()")
	await(t, func() bool {
		var in bool
		return d.admin.QueryRow(t.Context(), "select pg_is_in_recovery()").Scan(&in) == nil && !in
	})
}

func TestDatabaseThatIsNotTheOneItWas(t *testing.T) {
	for _, change := range []string{"system = system + 1", "timeline = timeline + 1", "database = 1"} {
		t.Run(change, func(t *testing.T) {
			d := newDatabase(t)
			store := d.store(t, nil)
			c := d.client(t)
			mustBind(t, store, "a", 41, c)
			pgtest.Exec(t, d.admin, "update fence.identity set "+change)
			_, bindErr := store.Bind(t.Context(), claim("a", 41), c.session)
			_, floorErr := store.Floor(t.Context(), cluster, "a")
			_, unbindErr := store.Unbind(t.Context(), claim("a", 41), c.session, true)
			_, listErr := store.Bindings(t.Context(), cluster, 1)
			for _, err := range []error{bindErr, floorErr, unbindErr, listErr, store.Check(t.Context(), cluster)} {
				wantReason(t, err, fencestore.NotReady)
			}
			ended, err := fencesql.Adopt(t.Context(), d.admin, cluster, 5*time.Second)
			if err != nil || ended != 1 || d.alive(t, c.session) {
				t.Errorf("adopt: got %d, %v, want the bound session ended", ended, err)
			}
			wantFloor(t, store, "a", 41)
		})
	}
}

func TestBindingsOfDeadSessionsAreSwept(t *testing.T) {
	d := newDatabase(t)
	store := d.store(t, nil)
	gone, alive := d.client(t), d.client(t)
	mustBind(t, store, "a", 41, gone)
	mustBind(t, store, "a", 41, alive)
	if err := gone.conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.awaitGone(t, gone.session)
	var swept, left int
	if err := d.admin.QueryRow(t.Context(), "select fence.sweep()").Scan(&swept); err != nil || swept != 1 {
		t.Errorf("swept: got %d, %v, want 1", swept, err)
	}
	if err := d.admin.QueryRow(t.Context(), "select count(*) from fence.binding").Scan(&left); err != nil || left != 1 {
		t.Errorf("left: got %d, %v, want 1", left, err)
	}
}

// A caller that has less time than a takeover may take gets the store's own answer.
func TestDeadlineOfTheCallerBoundsTheTakeover(t *testing.T) {
	d := newDatabase(t)
	store := d.store(t, nil)
	old := d.client(t)
	mustBind(t, store, "a", 41, old)
	signal(syscall.SIGSTOP)(t, d, old)
	t.Cleanup(func() { signal(syscall.SIGCONT)(t, d, old) })
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	_, err := store.Raise(ctx, claim("a", 42))
	wantReason(t, err, fencestore.TakeoverTimeout)
}
