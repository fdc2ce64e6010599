package fencesql_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	fencesql "github.com/lychgate/lychgate/sql"
	"github.com/lychgate/lychgate/sql/pgserver"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// A database service gives its customers no superuser: their administrator owns the database, may make roles, and may
// hand on the two roles that the fence needs.
func TestServiceWithoutSuperuser(t *testing.T) {
	s := pgtest.Start(t, pgserver.Config{})
	root := pgtest.Connect(t, s.DSN("postgres", "postgres"))
	pgtest.Exec(t, root, `create role customer login createrole; grant pg_signal_backend, pg_read_all_stats to customer with admin option`)
	pgtest.Exec(t, root, "create database shop owner customer")
	admin := pgtest.Connect(t, s.DSN("customer", "shop"))
	for range 2 { // the second time everything is there
		state, err := fencesql.Install(t.Context(), admin, fencesql.Options{Cluster: "c"})
		if err != nil || state.Version != state.Latest {
			t.Fatalf("install: got %+v, %v", state, err)
		}
	}
	pgtest.Exec(t, admin, "create role app login; create table account (id int, n int); grant all on account to app")
	protect(t, admin, "account", "'account/' || id", 1)

	proxy := pgtest.Connect(t, s.DSN(fencesql.DefaultProxyRole, "shop"))
	old, successor := pgtest.Connect(t, s.DSN("app", "shop")), pgtest.Connect(t, s.DSN("app", "shop"))
	bindAs(t, proxy, old, "account/1", 5)
	pgtest.Exec(t, old, "begin; insert into account values (1, 5)")
	bindAs(t, proxy, successor, "account/1", 6)
	if _, err := old.Exec(t.Context(), "commit"); err == nil {
		t.Error("the old holder has committed")
	}
	pgtest.Exec(t, successor, "insert into account values (1, 6)")
	_, err := successor.Exec(t.Context(), "insert into account values (2, 6)")
	wantState(t, err, "LG002")

	if ended, err := fencesql.Adopt(t.Context(), admin, "another", 10*time.Second); err != nil || ended != 1 {
		t.Errorf("adopt: got %d, %v, want one session ended", ended, err)
	}
	if _, err := fencesql.Unprotect(t.Context(), admin, "account"); err != nil {
		t.Fatal(err)
	}
	if err := fencesql.Uninstall(t.Context(), admin); err != nil {
		t.Fatal(err)
	}
	state, err := fencesql.Status(t.Context(), admin)
	if err != nil || state.Installed {
		t.Errorf("after uninstall: got %+v, %v", state, err)
	}
	var roles int
	err = admin.QueryRow(t.Context(), "select count(*) from pg_roles where rolname in ('fence_owner', $1)", fencesql.DefaultProxyRole).Scan(&roles)
	if err != nil || roles != 0 {
		t.Errorf("roles left: got %d, %v", roles, err)
	}
}

func bindAs(t *testing.T, proxy, session *pgx.Conn, resource string, token int) {
	t.Helper()
	var started int64
	err := session.QueryRow(t.Context(), "select (extract(epoch from backend_start) * 1000000)::bigint from pg_stat_activity where pid = pg_backend_pid()").Scan(&started)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proxy.Exec(t.Context(), "select fence.bind('c', $1, $2, 'hash', $3, $4, 5000, false)", resource, token, session.PgConn().PID(), started); err != nil {
		t.Fatalf("bind %s under %d: %v", resource, token, err)
	}
}
