package fencesql_test

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	fencesql "github.com/lychgate/lychgate/sql"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

func holdShared(t *testing.T, admin, session *pgx.Conn, resource string, token int, shared bool) {
	t.Helper()
	_, err := admin.Exec(t.Context(), `select fence.bind('c', $1, $2, 'hash', a.pid, (extract(epoch from a.backend_start) * 1000000)::bigint, 1000, $4)
		from pg_stat_activity a where a.pid = $3`, resource, token, session.PgConn().PID(), shared)
	if err != nil {
		t.Fatal(err)
	}
}

func TestGuardOfWhoHoldsShared(t *testing.T) {
	admin, holder, reader := guarded(t) // the holder has account/1 and account/2 exclusive
	holdShared(t, admin, reader, "account/3", 5, true)
	holdShared(t, admin, holder, "account/3", 5, true)
	for _, conn := range []*pgx.Conn{reader, holder} {
		for _, statement := range []string{
			"insert into account values (3, 1)", "update note set id = id where id = 3", "delete from account where id = 3",
			"with w as (delete from note where id = 3 returning id) select from w",
		} {
			_, err := conn.Exec(t.Context(), statement)
			refused := wantState(t, err, "LG006")
			if refused.Message != "resource account/3 is held shared by this session (LG006)" ||
				!strings.Contains(refused.Detail, "exclusive") || !strings.Contains(refused.Hint, "take it exclusive to write") {
				t.Errorf("%s: got %q, %q, %q", statement, refused.Message, refused.Detail, refused.Hint)
			}
		}
		pgtest.Exec(t, conn, "select from account where id = 3")
	}
	pgtest.Exec(t, holder, "insert into note values (1)")
	_, err := reader.Exec(t.Context(), "insert into note values (1)")
	refused := wantState(t, err, "LG002")
	if want := "This session holds account/3 (shared)."; !strings.HasSuffix(refused.Detail, want) {
		t.Errorf("got detail %q, want its end %q", refused.Detail, want)
	}
	// Once it is held exclusive, under a newer token, it may be written.
	holdShared(t, admin, holder, "account/3", 6, false)
	pgtest.Exec(t, holder, "insert into note values (3)")
}

// Rather than hold up everybody who binds, an installation gives up behind a transaction that does not end.
func TestUpgradeBehindAnOpenWriter(t *testing.T) {
	name, admin := installedVersion(t, 6)
	pgtest.Exec(t, admin, "create table note (id int); grant all on note to app")
	protect(t, admin, "note", "'account/' || id", 1)
	writer := pgtest.Connect(t, server.DSN("app", name))
	hold(t, admin, writer, "account/1", 5)
	pgtest.Exec(t, admin, `create or replace function fence.holds(p_resource text) returns boolean
		language sql security definer as $$ select exists (select from fence.binding) $$`)
	pgtest.Exec(t, writer, "begin; insert into note values (1)")
	_, err := fencesql.Install(t.Context(), admin, fencesql.Options{})
	wantState(t, err, "55P03")
	if !strings.Contains(err.Error(), "try again when they have ended") {
		t.Errorf("got %v, want it to say what to do", err)
	}
	pgtest.Exec(t, writer, "commit")
	if _, err := fencesql.Install(t.Context(), admin, fencesql.Options{}); err != nil {
		t.Error(err)
	}
}
