package fencesql_test

import (
	"errors"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	fencesql "github.com/lychgate/lychgate/sql"
	"github.com/lychgate/lychgate/sql/pgserver"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

var server *pgserver.Server

func TestMain(m *testing.M) { os.Exit(pgtest.Main(m, pgserver.Config{}, &server)) }

// database is an empty one with an administrator's connection.
func database(t *testing.T) (name string, admin *pgx.Conn) {
	t.Helper()
	name = pgtest.NewDatabase(t, server)
	return name, pgtest.Connect(t, server.DSN("postgres", name))
}

// installed is a database with the schema and a role "app" that may do what an application may.
func installed(t *testing.T) (name string, admin *pgx.Conn) {
	t.Helper()
	name, admin = database(t)
	if _, err := fencesql.Install(t.Context(), admin, fencesql.Options{}); err != nil {
		t.Fatal(err)
	}
	role(t, admin, "app")
	return name, admin
}

func role(t *testing.T, admin *pgx.Conn, name string) {
	t.Helper()
	pgtest.Exec(t, admin, "do $$ begin create role "+name+" login; exception when duplicate_object then null; end $$")
}

func wantState(t *testing.T, err error, code string) *pgconn.PgError {
	t.Helper()
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != code {
		t.Fatalf("got %v, want SQLSTATE %s", err, code)
	}
	return pgErr
}

func TestInstallTwiceChangesNothing(t *testing.T) {
	_, admin := database(t)
	before, err := fencesql.Status(t.Context(), admin)
	if err != nil || before.Installed || before.Latest == 0 {
		t.Fatalf("status of an empty database: got %+v, %v", before, err)
	}
	for range 2 {
		state, err := fencesql.Install(t.Context(), admin, fencesql.Options{Cluster: "c1"})
		if err != nil {
			t.Fatal(err)
		}
		if !state.Installed || state.Version != state.Latest || state.Cluster != "c1" || len(state.Problems) != 0 {
			t.Errorf("got %+v, want the latest version, pinned, without problems", state)
		}
		if len(state.ProxyRoles) != 1 || state.ProxyRoles[0] != fencesql.DefaultProxyRole {
			t.Errorf("proxy roles: got %v", state.ProxyRoles)
		}
	}
	_, err = fencesql.Install(t.Context(), admin, fencesql.Options{Cluster: "c2"})
	wantState(t, err, "LG007")
}

func TestInstallersAtTheSameTime(t *testing.T) {
	name := pgtest.NewDatabase(t, server)
	var all sync.WaitGroup
	for range 4 {
		admin := pgtest.Connect(t, server.DSN("postgres", name))
		all.Go(func() {
			if _, err := fencesql.Install(t.Context(), admin, fencesql.Options{ProxyRole: "racing proxy's"}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
}

func TestFailedInstallLeavesNothing(t *testing.T) {
	_, admin := database(t)
	pgtest.Exec(t, admin, "create schema fence")
	if _, err := fencesql.Install(t.Context(), admin, fencesql.Options{}); err == nil || !strings.Contains(err.Error(), "not ours") {
		t.Errorf("install into somebody's schema: got %v", err)
	}
	if state, err := fencesql.Status(t.Context(), admin); err != nil || state.Installed {
		t.Errorf("got %+v, %v, want it not installed", state, err)
	}
}

func TestDatabaseOfANewerProgramIsRefused(t *testing.T) {
	_, admin := installed(t)
	pgtest.Exec(t, admin, "insert into fence.version (number, name) values (9999, 'future')")
	if _, err := fencesql.Install(t.Context(), admin, fencesql.Options{}); err == nil || !strings.Contains(err.Error(), "newer lychgate") {
		t.Errorf("got %v, want it refused", err)
	}
}

func TestUninstallRemovesEverything(t *testing.T) {
	_, admin := database(t)
	if _, err := fencesql.Install(t.Context(), admin, fencesql.Options{ProxyRole: "gone_proxy"}); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, admin, "create table guarded (id text)")
	if _, err := fencesql.Protect(t.Context(), admin, "guarded", "id"); err != nil {
		t.Fatal(err)
	}
	if err := fencesql.Uninstall(t.Context(), admin); err == nil || !strings.Contains(err.Error(), "public.guarded") {
		t.Fatalf("uninstall with a protected table: got %v, want it refused by name", err)
	}
	if _, err := fencesql.Unprotect(t.Context(), admin, "guarded"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := fencesql.Uninstall(t.Context(), admin); err != nil {
			t.Fatal(err)
		}
	}
	var left int
	err := admin.QueryRow(t.Context(), "select (select count(*) from pg_namespace where nspname = 'fence') + "+
		"(select count(*) from pg_roles where rolname = 'gone_proxy')").Scan(&left)
	if err != nil || left != 0 {
		t.Errorf("left over: got %d, %v, want nothing", left, err)
	}
	if _, err := fencesql.Protect(t.Context(), admin, "guarded", "id"); !errors.Is(err, fencesql.ErrNotInstalled) {
		t.Errorf("protect without the schema: got %v, want %v", err, fencesql.ErrNotInstalled)
	}
}

// Whatever is not for everybody must not be reachable by an application's role.
func TestOnlyTheProxyRoleMayDecide(t *testing.T) {
	name, admin := installed(t)
	rows, err := admin.Query(t.Context(), `select p.proname from pg_proc p join pg_namespace n on n.oid = p.pronamespace
		where n.nspname = 'fence' and has_function_privilege('app', p.oid, 'EXECUTE') and p.prosecdef order by 1`)
	if err != nil {
		t.Fatal(err)
	}
	open, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || !slices.Equal(open, []string{"held", "holds", "holds_shared"}) { // both about the asking session alone
		t.Errorf("definer functions open to everybody: got %v, %v, want held, holds and holds_shared alone", open, err)
	}
	app := pgtest.Connect(t, server.DSN("app", name))
	for _, query := range []string{
		"select fence.bind('c', 'a', 1, 'h', null, null, 100)", "select fence.require_ready('c', true)",
		"select fence.adopt('c', 1)", "select fence.sweep()", "select * from fence.floor", "delete from fence.binding",
		"insert into fence.identity values (true, 'c', 1, 1, 1)", "select fence.end_lower('c','a',2,null,null,now())",
	} {
		_, err := app.Exec(t.Context(), query)
		wantState(t, err, "42501")
	}
	// Every function is pinned against the caller's search path, or too plain to need it.
	var loose []string
	err = admin.QueryRow(t.Context(), `select coalesce(array_agg(p.proname::text), '{}') from pg_proc p join pg_namespace n
		on n.oid = p.pronamespace where n.nspname = 'fence' and p.proname <> 'micros'
		and not exists (select from unnest(p.proconfig) c where c = 'search_path=pg_catalog, pg_temp')`).Scan(&loose)
	if err != nil || len(loose) != 0 {
		t.Errorf("functions without a pinned search path: %v, %v", loose, err)
	}
}

func TestFloorRecordIsMonotone(t *testing.T) {
	_, admin := installed(t)
	pgtest.Exec(t, admin, "insert into fence.floor values ('c', 'a', 42, now()); set session_replication_role = replica")
	for _, query := range []string{
		"update fence.floor set token = 41", "update fence.floor set resource = 'b'", "update fence.floor set cluster = 'd'",
		"delete from fence.floor", "truncate fence.floor", "truncate fence.floor cascade",
	} {
		_, err := admin.Exec(t.Context(), query)
		wantState(t, err, "23514")
	}
	pgtest.Exec(t, admin, "update fence.floor set token = 43")
}

// A record goes only where the folded floor refuses what it refused.
func TestFoldedFloorIsMonotone(t *testing.T) {
	_, admin := installed(t)
	pgtest.Exec(t, admin, `insert into fence.floor values ('c', 'a', 42, now()), ('c', 'b', 41, now()), ('d', 'b', 1, now());
		insert into fence.folded values ('c', 42, now()); set session_replication_role = replica`)
	for _, query := range []string{
		"update fence.folded set token = 41", "update fence.folded set cluster = 'd'", "delete from fence.folded", "truncate fence.folded",
		"delete from fence.floor where resource = 'a'", "delete from fence.floor where cluster = 'd'", "truncate fence.floor",
	} {
		_, err := admin.Exec(t.Context(), query)
		wantState(t, err, "23514")
	}
	pgtest.Exec(t, admin, "update fence.folded set token = 43; delete from fence.floor where cluster = 'c'")
	largest, err := fencesql.LargestFloor(t.Context(), admin)
	if err != nil || largest != 43 {
		t.Errorf("largest floor: got %d, %v, want the folded one", largest, err)
	}
}

func TestStatusNamesRolesThatCanBecomeTheOwner(t *testing.T) {
	_, admin := installed(t)
	pgtest.Exec(t, admin, `create role "a maker" createrole; create role "a super" createrole superuser`)
	t.Cleanup(func() { pgtest.Exec(t, admin, `drop role "a maker", "a super"`) })
	var version int
	if err := admin.QueryRow(t.Context(), "select current_setting('server_version_num')::int").Scan(&version); err != nil {
		t.Fatal(err)
	}
	state, err := fencesql.Status(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(state.Problems, "\n")
	if want := version < 160000; strings.Contains(got, `"a maker" have CREATEROLE`) != want || strings.Contains(got, "a super") {
		t.Errorf("version %d: problems %q", version, got)
	}
}

func TestStatusNamesProblems(t *testing.T) {
	_, admin := installed(t)
	pgtest.Exec(t, admin, "update fence.identity set timeline = timeline + 1")
	state, err := fencesql.Status(t.Context(), admin)
	if err != nil || len(state.Problems) != 1 || !strings.Contains(state.Problems[0], "restored") {
		t.Errorf("problems after a restore: got %q, %v", state.Problems, err)
	}
}
