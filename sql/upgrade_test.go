package fencesql_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	fencesql "github.com/lychgate/lychgate/sql"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// installedVersion is a database as an older program has left it, with a role "app".
func installedVersion(t *testing.T, version int) (name string, admin *pgx.Conn) {
	t.Helper()
	name, admin = installed(t) // for its roles
	pgtest.Exec(t, admin, `drop schema fence cascade; create schema fence authorization fence_owner; set role fence_owner;
		create table fence.version (number integer primary key, name text not null, installed timestamptz not null default clock_timestamp())`)
	files, err := filepath.Glob("scripts/*.sql")
	if err != nil || len(files) < version {
		t.Fatalf("scripts: got %v, %v", files, err)
	}
	for i, file := range files[:version] {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		pgtest.Exec(t, admin, "begin;"+string(text)+";commit")
		pgtest.Exec(t, admin, "insert into fence.version (number, name) values ("+strconv.Itoa(i+1)+", 'script')")
	}
	pgtest.Exec(t, admin, "insert into fence.identity (system, timeline, database) select * from fence.here(); reset role; grant usage on schema fence to public")
	for _, role := range []string{fencesql.DefaultProxyRole, "second_proxy"} {
		pgtest.Exec(t, admin, "do $$ begin create role "+role+" login; exception when duplicate_object then null; end $$")
		pgtest.Exec(t, admin, `do $$ declare f regprocedure; begin
			for f in select p.oid from pg_proc p where p.pronamespace = 'fence'::regnamespace
				and p.proname in ('bind', 'unbind', 'sweep', 'floor_of', 'bindings', 'check_ready', 'fold')
			loop execute format('grant execute on function %s to `+role+`', f); end loop; end $$`)
	}
	return name, admin
}

// Whichever program has installed it: what is bound stays bound, floors stay, and every role that was let in may do
// what is new.
func TestUpgradeFromEveryVersion(t *testing.T) {
	files, err := filepath.Glob("scripts/*.sql")
	if err != nil {
		t.Fatal(err)
	}
	const (
		binds  = 3 // the first version whose sessions can be bound
		guards = 5 // and whose tables can be protected
	)
	for version := binds; version < len(files); version++ {
		t.Run(strconv.Itoa(version), func(t *testing.T) {
			name, admin := installedVersion(t, version)
			pgtest.Exec(t, admin, "create table note (id int); grant all on note to app")
			if version >= guards {
				protect(t, admin, "note", "'account/' || id", 1)
			}
			holder := pgtest.Connect(t, server.DSN("app", name))
			hold(t, admin, holder, "account/1", 5)
			state, err := fencesql.Status(t.Context(), admin)
			if err != nil || state.Version != version || len(state.Problems) != 1 || !strings.Contains(state.Problems[0], "lychgate sql install") {
				t.Fatalf("status of the old schema: got %+v, %v, want it to name the install", state, err)
			}
			largest, err := fencesql.LargestFloor(t.Context(), admin)
			if err != nil || largest != 5 {
				t.Errorf("largest floor of the old schema: got %d, %v, want 5", largest, err)
			}
			for range 2 {
				state, err = fencesql.Install(t.Context(), admin, fencesql.Options{})
				if err != nil || state.Version != state.Latest || len(state.Problems) != 0 || len(state.ProxyRoles) != 2 || state.Bindings != 1 || state.Floors != 1 {
					t.Fatalf("upgrade: got %+v, %v", state, err)
				}
			}
			if version < guards {
				protect(t, admin, "note", "'account/' || id", 1)
			}
			pgtest.Exec(t, holder, "insert into note values (1)") // bound before the upgrade
			pgtest.Exec(t, admin, "do $$ begin create role sender login replication; exception when duplicate_object then null; end $$; grant all on note to sender")
			replicator := pgtest.Connect(t, server.DSN("sender", name)+"&replication=database&default_query_exec_mode=simple_protocol")
			hold(t, admin, replicator, "account/3", 1)
			pgtest.Exec(t, replicator, "insert into note values (3)")
			if _, err := replicator.Exec(t.Context(), "insert into note values (4)"); err == nil {
				t.Error("a session of logical replication has written to what it does not hold")
			}
			for _, role := range state.ProxyRoles {
				proxy := pgtest.Connect(t, server.DSN(role, name))
				pgtest.Exec(t, proxy, `select fence.bind('c', 'account/2', 1, 'h', null, null, 100, true);
					select fence.bind('c', 'account/2', 1, 'h', null, null, 100); select shared from fence.bindings('c', 5);
					select fence.fold('c', 1, 5)`)
			}
		})
	}
}
