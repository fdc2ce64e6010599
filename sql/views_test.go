package fencesql_test

import (
	"testing"

	fencesql "github.com/lychgate/lychgate/sql"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

func TestStatusShowsSessions(t *testing.T) {
	name, admin := installed(t)
	holder, idle := pgtest.Connect(t, server.DSN("app", name)), pgtest.Connect(t, server.DSN("app", name))
	hold(t, admin, holder, "account/1", 5)
	holdShared(t, admin, idle, "account/2", 6, true)
	pgtest.Exec(t, admin, `insert into fence.binding (cluster, resource, pid, started, token, lease, since) values ('c', 'account/3', 1, 2, 7, 'a secret', now());
		select fence.fold('c', 4, 10)`)
	pgtest.Exec(t, holder, "begin; select 'a statement'")
	state, err := fencesql.Status(t.Context(), admin)
	if err != nil || len(state.Sessions) != 3 || state.Bindings != 3 || state.Folded != 4 {
		t.Fatalf("got %+v, %v", state, err)
	}
	for i, want := range []struct {
		resource, state, role string
		shared, transaction   bool
	}{{"account/1", "idle in transaction", "app", false, true}, {"account/2", "idle", "app", true, false}, {"account/3", "gone", "", false, false}} {
		got := state.Sessions[i]
		if got.Resource != want.resource || got.State != want.state || got.Role != want.role || got.Shared != want.shared ||
			got.Transaction > 0 != want.transaction || got.Age <= 0 || got.Cluster != "c" {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

// Monitoring looks with the rights of pg_monitor alone; an application does not look at all.
func TestViewsAreForMonitoring(t *testing.T) {
	name, admin := installed(t)
	role(t, admin, "watcher")
	pgtest.Exec(t, admin, "grant pg_monitor to watcher")
	holder := pgtest.Connect(t, server.DSN("app", name))
	hold(t, admin, holder, "account/1", 5)
	pgtest.Exec(t, admin, "select fence.fold('c', 4, 10)")
	watcher := pgtest.Connect(t, server.DSN("watcher", name))
	var state string
	var floors, folded, bindings int64
	err := watcher.QueryRow(t.Context(), `select s.state, f.n, t.folded, t.bindings
		from fence.sessions s, (select count(*) n from fence.floors) f, fence.status t where s.role = 'app'`).Scan(&state, &floors, &folded, &bindings)
	if err != nil || state != "idle" || floors != 2 || folded != 4 || bindings != 1 {
		t.Errorf("got %q, %d, %d, %d, %v", state, floors, folded, bindings, err)
	}
	app := pgtest.Connect(t, server.DSN("app", name))
	for _, view := range []string{"floors", "sessions", "status"} {
		_, err := app.Exec(t.Context(), "select * from fence."+view)
		wantState(t, err, "42501")
	}
	for _, table := range []string{"floor", "binding", "identity", "folded"} {
		_, err := watcher.Exec(t.Context(), "select * from fence."+table)
		wantState(t, err, "42501")
	}
}
