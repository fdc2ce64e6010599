package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/fencestore/pgstore"
	fencesql "github.com/lychgate/lychgate/sql"
	"github.com/lychgate/lychgate/sql/pgserver"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// The holes that were found on real servers; each test fails when its line is taken out of the scripts.

// The list of sessions is cached by the transaction. Whoever connects and joins while a raise waits for the
// lock is missing from what the raise has read before.
func TestSessionThatConnectedWhileARaiseWaited(t *testing.T) {
	d := newDatabase(t)
	store := d.store(t, nil)
	if _, err := store.Raise(t.Context(), claim("a", 41)); err != nil {
		t.Fatal(err)
	}
	successor := d.client(t)

	joining := pgtest.Connect(t, d.dsn("postgres"))
	pgtest.Exec(t, joining, "begin; select from fence.floor for no key update")
	raised := make(chan error, 1)
	go func() {
		_, err := store.Bind(t.Context(), claim("a", 42), successor.session)
		raised <- err
	}()
	await(t, func() bool { return d.waiting(t, "lychgate-fence", "Lock") })
	late := d.client(t)
	if _, err := joining.Exec(t.Context(), "select fence.bind($1, 'a', 41, 'hash', $2, $3, 1000)",
		cluster, late.session.PID, late.session.Started); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, joining, "commit")
	if err := <-raised; err != nil {
		t.Fatal(err)
	}
	if d.alive(t, late.session) {
		t.Error("a session under the lower token survived the raise")
	}
}

// waiting reports whether a session of that application name waits for something of that type.
func (d *database) waiting(t testing.TB, application, event string) bool {
	t.Helper()
	var waiting bool
	err := d.admin.QueryRow(context.Background(), "select exists (select from pg_stat_activity "+
		"where application_name = $1 and wait_event_type = $2 and datname = current_database())", application, event).Scan(&waiting)
	if err != nil {
		t.Fatal(err)
	}
	return waiting
}

// Eight stale clients reconnect, join and write as fast as they can while the floor is raised. The resource is
// one that is just being seen for the first time: then the raise and the joins wait for that transaction
// without a queue, and any of them may come next.
func TestReconnectStormDuringTakeovers(t *testing.T) {
	const storms, stale = 20, 8
	d := newDatabase(t)
	raiser, joiner := d.store(t, nil), make([]*pgstore.Store, stale)
	for i := range joiner {
		joiner[i] = d.store(t, func(c *pgstore.Config) { c.Conns = 1 })
		if err := joiner[i].Check(t.Context(), cluster); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := raiser.Raise(t.Context(), claim("pin", 1)); err != nil {
		t.Fatal(err)
	}
	first := pgtest.Connect(t, d.dsn("postgres"))
	survivors := 0
	for n := range storms {
		s := &storm{database: d, resource: fmt.Sprintf("storm/%d", n)}
		successor := d.client(t)
		pgtest.Exec(t, first, "begin; insert into fence.floor values ('"+cluster+"', '"+s.resource+"', 41, now())")
		raised := make(chan error, 1)
		go func() {
			_, err := raiser.Bind(t.Context(), claim(s.resource, 42), successor.session)
			raised <- err
		}()
		await(t, func() bool { return d.waitingForLock(t) == 1 })
		s.begin(t.Context(), joiner)
		await(t, func() bool { return d.waitingForLock(t) == 1+stale })
		pgtest.Exec(t, first, "commit")
		if err := <-raised; err != nil {
			t.Fatalf("%s: raise: %v", s.resource, err)
		}
		survivors += s.survivors(t)
		written := d.count(t, s.resource)
		s.end()
		if again := d.count(t, s.resource); again != written {
			t.Errorf("%s: %d writes of stale clients after the raise", s.resource, again-written)
		}
	}
	if survivors > 0 {
		t.Errorf("%d sessions under a lower token survived %d raises", survivors, storms)
	}
}

func (d *database) waitingForLock(t testing.TB) (n int) {
	t.Helper()
	err := d.admin.QueryRow(context.Background(), "select count(*) from pg_stat_activity "+
		"where application_name = 'lychgate-fence' and wait_event_type = 'Lock' and datname = current_database()").Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// storm is the stale clients of one resource.
type storm struct {
	*database
	resource string
	stop     context.CancelFunc
	clients  sync.WaitGroup
	mu       sync.Mutex
	accepted []fencestore.Session
}

func (s *storm) begin(ctx context.Context, joiner []*pgstore.Store) {
	ctx, s.stop = context.WithCancel(ctx)
	for _, store := range joiner {
		s.clients.Go(func() {
			for ctx.Err() == nil {
				s.visit(ctx, store)
			}
		})
	}
}

func (s *storm) end() {
	s.stop()
	s.clients.Wait()
}

// survivors counts the accepted sessions that the server still has.
func (s *storm) survivors(t *testing.T) (n int) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, session := range s.accepted {
		if s.alive(t, session) {
			n++
		}
	}
	return n
}

// visit connects, binds under 41 and writes until it is cut off.
func (s *storm) visit(ctx context.Context, store fencestore.Store) {
	conn, err := pgx.Connect(ctx, s.dsn("app"))
	if err != nil {
		return
	}
	defer func() { _ = conn.Close(context.Background()) }() // cut off by the takeover
	var session fencestore.Session
	err = conn.QueryRow(ctx, "select pid, (extract(epoch from backend_start) * 1000000)::bigint "+
		"from pg_stat_activity where pid = pg_backend_pid()").Scan(&session.PID, &session.Started)
	if err != nil {
		return
	}
	if _, err := store.Bind(ctx, claim(s.resource, 41), session); err != nil {
		return
	}
	s.mu.Lock()
	s.accepted = append(s.accepted, session)
	s.mu.Unlock()
	for err == nil && ctx.Err() == nil {
		_, err = conn.Exec(ctx, "insert into entry values ($1, 41)", s.resource)
	}
}

func (d *database) count(t testing.TB, resource string) (n int) {
	t.Helper()
	if err := d.admin.QueryRow(context.Background(), "select count(*) from entry where resource = $1", resource).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestSideConnectionInRepeatableRead(t *testing.T) {
	d := newDatabase(t)
	for _, level := range []string{"repeatable read", "serializable"} {
		_, err := d.admin.Exec(t.Context(), "begin isolation level "+level)
		if err == nil {
			_, err = d.admin.Exec(t.Context(), "select fence.bind($1, 'a', 41, 'hash', null, null, 1000)", cluster)
		}
		var refused *pgconn.PgError
		if !errors.As(err, &refused) || refused.Code != "LG007" {
			t.Errorf("in %s: got %v, want LG007", level, err)
		}
		pgtest.Exec(t, d.admin, "rollback")
	}
}

// Whatever the database's defaults are, the store's own sessions are what they must be.
func TestHostileDefaultsOfTheDatabase(t *testing.T) {
	d := newDatabase(t)
	for setting, value := range map[string]string{
		"default_transaction_isolation": "serializable", "default_transaction_read_only": "on", "lock_timeout": "1",
		"statement_timeout": "1", "search_path": "public", "client_min_messages": "error", "idle_session_timeout": "1",
		"synchronous_commit": "off",
	} {
		pgtest.Exec(t, d.admin, fmt.Sprintf("alter database %s set %s = '%s'", d.name, setting, value))
	}
	pgtest.Exec(t, d.admin, "create function public.now() returns timestamptz language plpgsql as $$ begin raise 'hijacked'; end $$")
	store := d.store(t, nil)
	if _, err := store.Raise(t.Context(), claim("a", 41)); err != nil {
		t.Fatal(err)
	}
	wantFloor(t, store, "a", 41)
}

// Without pg_read_all_stats other sessions show no start: "gone" would be concluded of the living.
func TestOwnerStrippedOfItsRights(t *testing.T) {
	for _, right := range []string{"pg_read_all_stats", "pg_signal_backend"} {
		t.Run(right, func(t *testing.T) {
			d := newDatabase(t)
			store := d.store(t, func(c *pgstore.Config) { c.TakeoverTimeout = 300 * time.Millisecond })
			old := d.client(t)
			mustBind(t, store, "a", 41, old)
			d.strip(t, right)
			_, err := store.Raise(t.Context(), claim("a", 42))
			if refusal := wantReason(t, err, fencestore.NotReady); !strings.Contains(refusal.Detail, right) {
				t.Errorf("refusal %q does not name %s", refusal.Detail, right)
			}
			wantReason(t, store.Check(t.Context(), cluster), fencestore.NotReady)
			if !d.alive(t, old.session) {
				t.Error("the old session was ended")
			}
		})
	}
}

// strip takes a right from the owner's role, which all databases of the server share, for the test.
func (d *database) strip(t *testing.T, right string) {
	t.Helper()
	pgtest.Exec(t, d.admin, "revoke "+right+" from fence_owner")
	t.Cleanup(func() { pgtest.Exec(t, d.admin, "grant "+right+" to fence_owner") })
}

// The same once more without the check at the door: a start that cannot be seen counts as alive.
func TestStartThatCannotBeSeenCountsAsAlive(t *testing.T) {
	d := newDatabase(t)
	store := d.store(t, func(c *pgstore.Config) { c.TakeoverTimeout = 300 * time.Millisecond })
	old := d.client(t)
	mustBind(t, store, "a", 41, old)
	d.strip(t, "pg_read_all_stats")
	// The row now names a superuser's session: it is not ended, only waited for.
	pgtest.Exec(t, d.admin, "create or replace function fence.require_ready(p_cluster text, p_pin boolean) returns void "+
		"language sql as ''; update fence.binding set pid = pg_backend_pid()")
	_, err := store.Raise(t.Context(), claim("a", 42))
	wantReason(t, err, fencestore.TakeoverTimeout)
	hidden := fencestore.Session{PID: int64(d.admin.PgConn().PID()), Started: old.session.Started}
	if gone, err := store.Unbind(t.Context(), claim("a", 41), hidden, false); err != nil || gone {
		t.Errorf("unbind: got %v, %v, want the binding kept", gone, err)
	}
	pgtest.Exec(t, d.admin, "set role "+fencesql.DefaultProxyRole)
	var swept int
	if err := d.admin.QueryRow(t.Context(), "select fence.sweep()").Scan(&swept); err != nil || swept != 0 {
		t.Errorf("sweep: got %d rows, %v, want none", swept, err)
	}
	pgtest.Exec(t, d.admin, "reset role")
}

// The database commits without waiting for its log, and loses power right after a raise.
func TestCrashRightAfterARaise(t *testing.T) {
	s := pgtest.Start(t, pgserver.Config{Settings: map[string]string{"wal_writer_delay": "10s", "wal_writer_flush_after": "1GB"}})
	d := newDatabaseOn(t, s)
	pgtest.Exec(t, d.admin, fmt.Sprintf("alter database %s set synchronous_commit = off; checkpoint", d.name))
	store := d.store(t, nil)
	if _, err := store.Raise(t.Context(), claim("a", 42)); err != nil {
		t.Fatal(err)
	}
	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
	_, err := store.Floor(t.Context(), cluster, "a")
	if err == nil {
		t.Error("a store that is down gave an answer")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantFloor(t, store, "a", 42)
	_, err = store.Raise(t.Context(), claim("a", 41))
	wantReason(t, err, fencestore.StaleToken)
	if list, err := store.Bindings(t.Context(), cluster, 10); err != nil || len(list) != 0 {
		t.Errorf("bindings after a crash: got %v, %v, want none", list, err)
	}
}

// A client is killed while its statement runs: the server does not notice, and goes on writing.
func TestUnbindWhileAKilledClientsStatementRuns(t *testing.T) {
	d := newDatabase(t)
	store := d.store(t, nil)
	c := d.mute(t)
	mustBind(t, store, "a", 41, c)
	running := make(chan struct{})
	go func() {
		defer close(running)
		_, _ = c.conn.Exec(context.Background(), "insert into entry select 'a', 41 from pg_sleep(600)") // is cut off
	}()
	await(t, func() bool { return d.waiting(t, "", "Timeout") })
	if err := c.conn.PgConn().Conn().Close(); err != nil {
		t.Fatal(err)
	}
	<-running
	gone, err := store.Unbind(t.Context(), claim("a", 41), c.session, false)
	if err != nil || gone {
		t.Errorf("unbind: got %v, %v, want the binding kept", gone, err)
	}
	accepted, err := store.Raise(t.Context(), claim("a", 42))
	if err != nil || accepted.Ended != 1 {
		t.Errorf("raise: got %+v, %v, want one ended", accepted, err)
	}
	if d.alive(t, c.session) || d.count(t, "a") != 0 {
		t.Error("the killed client's statement outlived the takeover")
	}
}

// mute is a client that cannot send a cancel request when it is cut off, as one that was killed.
func (d *database) mute(t *testing.T) *client {
	t.Helper()
	cfg, err := pgx.ParseConfig(d.dsn("app"))
	if err != nil {
		t.Fatal(err)
	}
	dialled := false
	cfg.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if dialled {
			return nil, errors.New("dead clients do not dial")
		}
		dialled = true
		return (&net.Dialer{}).DialContext(ctx, network, addr)
	}
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) }) // it is cut off by the test
	return newClient(t, conn)
}

func TestPreparedTransactionOfTheOldHolder(t *testing.T) {
	s := pgtest.Start(t, pgserver.Config{Settings: map[string]string{"max_prepared_transactions": "4"}})
	d := newDatabaseOn(t, s)
	if state, err := fencesql.Status(t.Context(), d.admin); err != nil || len(state.Problems) != 1 {
		t.Errorf("problems: got %q, %v, want advice about prepared transactions", state.Problems, err)
	}
	store := d.store(t, nil)
	c := d.client(t)
	mustBind(t, store, "a", 41, c)
	pgtest.Exec(t, c.conn, "begin; insert into entry values ('a', 41); prepare transaction 'zombie'")
	for range 2 { // the session is gone the second time, its transaction is not
		_, err := store.Raise(t.Context(), claim("a", 42))
		if refusal := wantReason(t, err, fencestore.TakeoverTimeout); !strings.Contains(refusal.Detail, "'zombie'") {
			t.Errorf("refusal %q does not name the transaction", refusal.Detail)
		}
	}
	wantFloor(t, store, "a", 41)
	pgtest.Exec(t, d.admin, "rollback prepared 'zombie'")
	if _, err := store.Raise(t.Context(), claim("a", 42)); err != nil {
		t.Fatal(err)
	}
}

// A cancelled wait for a synchronous standby is a success with a warning: committed here, perhaps lost with
// this server. It must not be accepted, by a second store that only joins neither.
func TestCancelledWaitForASynchronousStandby(t *testing.T) {
	s := pgtest.Start(t, pgserver.Config{})
	d := newDatabaseOn(t, s)
	pgtest.Exec(t, d.admin, fmt.Sprintf("alter database %s set synchronous_commit = off", d.name))
	if _, err := d.store(t, nil).Raise(t.Context(), claim("before", 1)); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, d.admin, "alter system set synchronous_standby_names = 'nobody'")
	pgtest.Exec(t, d.admin, "select pg_reload_conf()")
	first, second := d.store(t, nil), d.store(t, nil)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	results := make(chan error, 2)
	for _, store := range []*pgstore.Store{first, second} {
		go func() {
			_, err := store.Raise(ctx, claim("a", 42))
			results <- err
		}()
	}
	for range 5 { // the raise, then the joins that are asked after each doubt
		d.cancelSyncWait(t)
	}
	await(t, func() bool { return d.waiting(t, "lychgate-fence", "IPC") })
	select {
	case err := <-results:
		t.Fatalf("a raise that no standby has was answered: %v", err)
	default:
	}
	stop()
	for range 2 {
		err := <-results
		var refusal *fencestore.Refusal
		if err == nil || errors.As(err, &refusal) || !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want an unknown outcome", err)
		}
	}
	pgtest.Exec(t, d.admin, "alter system reset synchronous_standby_names")
	pgtest.Exec(t, d.admin, "select pg_reload_conf()")
	if _, err := first.Raise(t.Context(), claim("a", 42)); err != nil {
		t.Errorf("raise again without a standby: %v", err)
	}
}

func (d *database) cancelSyncWait(t testing.TB) {
	t.Helper()
	var pid int
	await(t, func() bool {
		err := d.admin.QueryRow(context.Background(), "select pid from pg_stat_activity where wait_event = 'SyncRep'").Scan(&pid)
		return err == nil
	})
	pgtest.Exec(t, d.admin, fmt.Sprintf("select pg_cancel_backend(%d)", pid))
	await(t, func() bool {
		var waits bool
		err := d.admin.QueryRow(context.Background(), "select exists (select from pg_stat_activity "+
			"where pid = $1 and wait_event = 'SyncRep')", pid).Scan(&waits)
		return err == nil && !waits
	})
}
