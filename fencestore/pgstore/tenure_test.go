package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/fencestore/pgstore"
	"github.com/lychgate/lychgate/sql/pgserver"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// Were there side connections to two servers, each would decide for its own sessions only.
func TestSeveralHostsInTheDSNAreRefused(t *testing.T) {
	for _, dsn := range []string{
		"postgres://p@a:5432,b:5432/app", "host=a,b dbname=app", "postgres://p@a:5432,a:5433/app?sslmode=disable",
	} {
		if _, err := pgstore.New(pgstore.Config{DSN: dsn}); err == nil || !strings.Contains(err.Error(), "one server") {
			t.Errorf("%s: got %v", dsn, err)
		}
	}
	if err := pgstore.OneServer("postgres://p@a:5432/app"); err != nil { // sslmode prefer tries one host twice
		t.Error(err)
	}
	t.Setenv("PGHOST", "a,b")
	if err := pgstore.OneServer("dbname=app"); err == nil {
		t.Error("several hosts in the environment were not refused")
	}
}

func TestDSNOf(t *testing.T) {
	for server, want := range map[string]string{"b:5433": "b", "[::1]:5433": "::1", "/run/it's here:5433": "/run/it's here"} {
		for _, dsn := range []string{"postgres://p:se%20cret@a:1/app?sslmode=disable&host=c", "host=a port=1 user=p password='se cret' dbname=app sslmode=disable"} {
			moved, err := pgstore.DSNOf(dsn, server)
			if err != nil {
				t.Fatal(err)
			}
			config, err := pgconn.ParseConfig(moved)
			if err != nil {
				t.Fatalf("%s: %v", moved, err)
			}
			if config.Host != want || config.Port != 5433 || config.User != "p" || config.Password != "se cret" || config.Database != "app" {
				t.Errorf("%s: got %s %d %s %s", moved, config.Host, config.Port, config.User, config.Database)
			}
		}
	}
}

func address(s *pgserver.Server) string { return fmt.Sprintf("%s:%d", s.Host(), s.Port()) }

// A store that is moved to another server has no connection to the one before, and asks what was being asked there anew.
func TestStoreFollows(t *testing.T) {
	before := newDatabase(t)
	other := pgtest.Start(t, pgserver.Config{})
	after := newDatabaseOn(t, other)
	_ = after.admin.Close(t.Context())
	pgtest.Exec(t, pgtest.Connect(t, other.DSN("postgres", "postgres")), "alter database "+after.name+" rename to "+before.name)
	store := before.store(t, func(c *pgstore.Config) { c.Follows, c.Conns = true, 3 })
	_, err := store.Raise(t.Context(), claim("a", 41))
	wantReason(t, err, fencestore.NotReady)
	if err := store.Follow(address(server)); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Raise(t.Context(), claim("a", 41)); err != nil {
		t.Fatal(err)
	}
	await(t, func() bool { return before.sideConnections(t) == 3 })
	pgtest.Exec(t, before.admin, "begin; select from fence.floor for update")
	raised := make(chan error, 1)
	go func() {
		_, err := store.Raise(t.Context(), claim("a", 42))
		raised <- err
	}()
	await(t, func() bool { return before.waiting(t, "lychgate-fence", "Lock") })
	if err := store.Follow(address(other)); err != nil {
		t.Fatal(err)
	}
	if err := <-raised; err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, before.admin, "commit")
	await(t, func() bool { return before.sideConnections(t) == 0 })
	wantFloor(t, store, "a", 42)
}

// A server that has stopped answering does not hold the move up.
func TestStoreLeavesAServerThatHangs(t *testing.T) {
	d := newDatabase(t)
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	store := d.store(t, func(c *pgstore.Config) { c.Follows = true })
	if err := store.Follow(l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	raised := make(chan error, 1)
	go func() {
		_, err := store.Raise(t.Context(), claim("a", 41))
		raised <- err
	}()
	begun := time.Now()
	if err := store.Follow(address(server)); err != nil {
		t.Fatal(err)
	}
	if err := <-raised; err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 4*time.Second {
		t.Errorf("the move took %s", took)
	}
}

// Where every side connection is busy the wait is bounded by the caller, and nothing was asked.
func TestSideConnectionsAreExhausted(t *testing.T) {
	d := newDatabase(t)
	store := d.store(t, func(c *pgstore.Config) { c.Conns, c.TakeoverTimeout = 1, 20*time.Second })
	if _, err := store.Raise(t.Context(), claim("a", 41)); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, d.admin, "begin; select from fence.floor for update")
	first := make(chan error, 1)
	go func() {
		_, err := store.Raise(t.Context(), claim("a", 42))
		first <- err
	}()
	await(t, func() bool { return d.waiting(t, "lychgate-fence", "Lock") })
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := store.Raise(ctx, claim("b", 1))
	if refused := wantReason(t, err, fencestore.NotReady); !strings.Contains(refused.Detail, "All 1 side connections") || !strings.Contains(refused.Hint, "store_conns") {
		t.Errorf("got %q, hint %q", refused.Detail, refused.Hint)
	}
	pgtest.Exec(t, d.admin, "commit")
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	wantFloor(t, store, "b", 0)
}

// Whoever ends side connections, under load too, has decided nothing: each question is asked again, and each floor is as the
// answers say.
func TestSideConnectionsAreEndedUnderLoad(t *testing.T) {
	d := newDatabase(t)
	store := d.store(t, func(c *pgstore.Config) { c.Conns = 4 })
	const workers, tokens = 4, 20
	done := make(chan error, workers)
	for w := range workers {
		go func() {
			done <- func() error {
				resource := fmt.Sprintf("r%d", w)
				for token := fencestore.Token(1); token <= tokens; {
					if _, err := store.Raise(t.Context(), claim(resource, token)); err != nil {
						var refused *fencestore.Refusal
						if errors.As(err, &refused) && refused.Reason != fencestore.NotReady {
							return err
						}
						continue // undecided, or unknown: it is asked again, as a client would
					}
					if floor, err := store.Floor(t.Context(), cluster, resource); err == nil && floor.Token != token {
						return fmt.Errorf("floor of %s: %d after %d was accepted", resource, floor.Token, token)
					}
					token++
				}
				return nil
			}()
		}()
	}
	ended, left := 0, workers
	poll := time.NewTicker(30 * time.Millisecond)
	defer poll.Stop()
	for left > 0 {
		select {
		case err := <-done:
			left--
			if err != nil {
				t.Error(err)
			}
		case <-poll.C:
			var n int
			err := d.admin.QueryRow(context.Background(), `select count(pg_terminate_backend(pid)) from (select pid from pg_stat_activity
				where application_name = 'lychgate-fence' and datname = $1 order by random() limit 1) one`, d.name).Scan(&n)
			if err != nil {
				t.Fatal(err)
			}
			ended += n
		}
	}
	if ended == 0 {
		t.Error("no side connection was ended")
	}
	await(t, func() bool { return d.sideConnections(t) == 4 })
}

// The side connection is lost in the middle of a bind: whether that decided is not guessed but asked, so the answer and the
// database agree.
func TestSideConnectionLostInTheMiddleOfABind(t *testing.T) {
	d := newDatabase(t)
	store := d.store(t, func(c *pgstore.Config) { c.Conns = 2 })
	if _, err := store.Raise(t.Context(), claim("a", 41)); err != nil {
		t.Fatal(err)
	}
	holder := d.client(t)
	pgtest.Exec(t, d.admin, "begin; select from fence.floor for update")
	bound := make(chan error, 1)
	go func() {
		_, err := store.Bind(t.Context(), claim("a", 42), holder.session)
		bound <- err
	}()
	await(t, func() bool { return d.waiting(t, "lychgate-fence", "Lock") })
	pgtest.Exec(t, d.admin, `select pg_terminate_backend(pid) from pg_stat_activity
		where application_name = 'lychgate-fence' and wait_event_type = 'Lock' and datname = current_database()`)
	pgtest.Exec(t, d.admin, "commit")
	if err := <-bound; err != nil {
		t.Fatal(err)
	}
	wantFloor(t, store, "a", 42)
	bindings, err := store.Bindings(t.Context(), cluster, 10)
	if err != nil || len(bindings) != 1 || bindings[0].Token != 42 || bindings[0].Session != holder.session {
		t.Errorf("got %v, %v, want one binding, of the session under 42", bindings, err)
	}
}
