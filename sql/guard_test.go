package fencesql_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	fencesql "github.com/lychgate/lychgate/sql"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// guarded is a database with a protected partitioned table "account" (id, part, amount), a protected plain
// table "note" (id), and a session of the application that holds account/1 and account/2.
func guarded(t *testing.T) (admin, holder, stranger *pgx.Conn) {
	t.Helper()
	name, admin := installed(t)
	pgtest.Exec(t, admin, `create table account (id int, part int, amount int default 0) partition by list (part);
		create table account_1 partition of account for values in (1);
		create table account_2 partition of account for values in (2) partition by list (part);
		create table account_2a partition of account_2 for values in (2);
		insert into account values (1, 1), (2, 1), (1, 2), (3, 2);
		create table note (id int); insert into note values (1), (3);
		create table source (id int, amount int); insert into source values (1, 7), (3, 7);
		grant all on all tables in schema public to app`)
	protect(t, admin, "account", "'account/' || account.id", 4)
	protect(t, admin, "note", "'account/' || id", 1)
	holder = pgtest.Connect(t, server.DSN("app", name))
	hold(t, admin, holder, "account/1", 42)
	hold(t, admin, holder, "account/2", 7)
	return admin, holder, pgtest.Connect(t, server.DSN("app", name))
}

func protect(t *testing.T, admin *pgx.Conn, table, resource string, want int) {
	t.Helper()
	if n, err := fencesql.Protect(t.Context(), admin, table, resource); err != nil || n != want {
		t.Fatalf("protect %s: got %d tables, %v, want %d", table, n, err, want)
	}
}

func hold(t *testing.T, admin, session *pgx.Conn, resource string, token int) {
	t.Helper()
	_, err := admin.Exec(t.Context(), `select fence.bind('c', $1, $2, 'hash', a.pid, (extract(epoch from a.backend_start) * 1000000)::bigint, 1000)
		from pg_stat_activity a where a.pid = $3`, resource, token, session.PgConn().PID())
	if err != nil {
		t.Fatal(err)
	}
}

func TestGuard(t *testing.T) {
	_, holder, stranger := guarded(t)
	statements := []struct {
		statement string
		allowed   bool // for the holder of account/1 and account/2; never for a stranger
	}{
		{"insert into account values (1, 1), (2, 2)", true},
		{"insert into account values (1, 1), (3, 1)", false},
		{"insert into account_1 values (3, 1)", false},
		{"insert into account_2 values (3, 2)", false},
		{"insert into account_2a values (3, 2)", false},
		{"insert into account values (null, 1)", false},
		{"update account set amount = 1 where id = 1", true},
		{"update account set amount = 1 where id = 3", false},
		{"update account_2a set amount = 1 where id = 3", false},
		{"update account set id = 3 where id = 1", false}, // moved out to a resource not held
		{"update account set id = 1 where id = 3", false}, // moved in from one
		{"update account set id = 2 where id = 1", true},
		{"update account set id = 3, part = 2 where id = 1 and part = 1", false}, // into another partition
		{"update account set id = 1, part = 1 where id = 3 and part = 2", false},
		{"update account set part = 3 - part where id = 1", true},
		{"delete from account where id = 1", true},
		{"delete from account", false},
		{"delete from account_2a where id = 3", false},
		{"truncate account", false},
		{"truncate account_1", true},
		{"truncate account_2", false},
		{"truncate account_2a", false},
		{"truncate only account_2a, note", false},
		{"with w as (delete from note where id = 1 returning id) select from w", true},
		{"with w as (delete from note returning id) select from w", false},
		{"do $$ begin insert into note values (3); exception when others then raise; end $$", false},
	}
	if version(t, holder) >= 150000 {
		merge := statements[0]
		merge.statement = "merge into note using source on note.id = source.id and source.id = 1 when matched then delete"
		statements = append(statements, merge)
		merge.statement, merge.allowed = "merge into note using source on note.id = source.id when matched then delete", false
		statements = append(statements, merge)
	}
	for _, c := range statements {
		for who, conn := range map[string]*pgx.Conn{"holder": holder, "stranger": stranger} {
			pgtest.Exec(t, conn, "begin")
			_, err := conn.Exec(t.Context(), c.statement)
			if want := c.allowed && who == "holder"; want && err != nil {
				t.Errorf("%s: %s: got %v, want it done", who, c.statement, err)
			} else if !want {
				if err == nil {
					t.Errorf("%s: %s: was done", who, c.statement)
				} else if refused := wantState(t, err, "LG002"); refused.Hint == "" || refused.Detail == "" {
					t.Errorf("%s: %s: refusal without detail or hint", who, c.statement)
				}
			}
			pgtest.Exec(t, conn, "rollback")
		}
	}
	// Statements that touch no row are nobody's business.
	pgtest.Exec(t, stranger, "update account set amount = 1 where false; delete from note where id = 99")
}

// The refusal says which resources the session has: often it is another one than was meant.
func TestTheGuardSaysWhatIsHeld(t *testing.T) {
	admin, holder, stranger := guarded(t)
	refused := func(conn *pgx.Conn, held string) {
		t.Helper()
		_, err := conn.Exec(t.Context(), "insert into note values (3)")
		got := wantState(t, err, "LG002")
		if want := "resource account/3 is not held by this session (LG002)"; got.Message != want {
			t.Errorf("got message %q, want %q", got.Message, want)
		}
		if !strings.HasSuffix(got.Detail, " This session holds "+held+".") {
			t.Errorf("got detail %q, want that the session holds %s", got.Detail, held)
		}
	}
	refused(stranger, "none")
	refused(holder, "account/1, account/2")
	for i := range 10 {
		hold(t, admin, holder, fmt.Sprintf("order/%d", i), 1)
	}
	refused(holder, "account/1, account/2, order/0, order/1, order/2, order/3, order/4, order/5, order/6, order/7 and 2 more")
}

// Under a collation that takes different names for equal, one of them would answer for the others.
func TestResourcesThatOnlyACollationTakesForEqual(t *testing.T) {
	admin, holder, _ := guarded(t)
	pgtest.Exec(t, admin, `create collation either_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
		create table ledger (region text collate either_case); grant all on ledger to app`)
	protect(t, admin, "ledger", "'ledger/' || region", 1)
	hold(t, admin, holder, "ledger/eu", 1)
	pgtest.Exec(t, holder, "insert into ledger values ('eu')")
	for _, rows := range []string{"('EU')", "('eu'), ('EU')", "('EU'), ('eu')"} {
		_, err := holder.Exec(t.Context(), "insert into ledger values "+rows)
		wantState(t, err, "LG002")
	}
}

// A row that MERGE moves to another partition is in no transition table (PostgreSQL 15), so that the guard would not
// see it: MERGE is refused where it could. What else a table with a rule can no longer do is not among what is used.
func TestMergeIntoAPartitionedTable(t *testing.T) {
	admin, holder, stranger := guarded(t)
	if version(t, holder) >= 150000 {
		for _, target := range []string{"account", "account_2"} {
			for _, conn := range []*pgx.Conn{holder, stranger} {
				_, err := conn.Exec(t.Context(), "merge into "+target+" a using source s on a.id = s.id when matched then update set part = 3 - part")
				wantState(t, err, "0A000")
			}
		}
		pgtest.Exec(t, admin, "set session_replication_role = replica")
		_, err := admin.Exec(t.Context(), "merge into account a using source s on a.id = s.id when matched then delete")
		wantState(t, err, "0A000")
		pgtest.Exec(t, admin, "reset session_replication_role")
	}
	pgtest.Exec(t, holder, `create view pg_temp.look as select * from account;
		with w as (delete from account where id = 1 and part = 2 returning *) insert into account select * from w;
		delete from account where id = 2 returning *; insert into pg_temp.look values (2, 1); delete from pg_temp.look where id = 2`)
	for _, damage := range []string{"drop rule fence_no_merge on account_2", "alter table account enable rule fence_no_merge"} {
		pgtest.Exec(t, admin, damage)
		state, err := fencesql.Status(t.Context(), admin)
		if err != nil || state.Tables[0].Complete {
			t.Errorf("%s: got %+v, %v, want an incomplete table", damage, state.Tables, err)
		}
		protect(t, admin, "account", "'account/' || account.id", 4)
	}
	if _, err := fencesql.Unprotect(t.Context(), admin, "account"); err != nil {
		t.Fatal(err)
	}
	if version(t, holder) >= 150000 {
		pgtest.Exec(t, stranger, "merge into account a using source s on a.id = s.id when matched then delete")
	}
}

func version(t *testing.T, conn *pgx.Conn) (number int) {
	t.Helper()
	if err := conn.QueryRow(t.Context(), "select current_setting('server_version_num')::int").Scan(&number); err != nil {
		t.Fatal(err)
	}
	return number
}

func TestGuardOfCopyAndUpsert(t *testing.T) {
	_, holder, stranger := guarded(t)
	copyRows := func(conn *pgx.Conn, ids string) error {
		_, err := conn.PgConn().CopyFrom(t.Context(), strings.NewReader(ids), "copy note from stdin")
		return err
	}
	if err := copyRows(holder, "1\n2\n"); err != nil {
		t.Errorf("copy by the holder: %v", err)
	}
	wantState(t, copyRows(holder, "1\n3\n"), "LG002")
	wantState(t, copyRows(stranger, "1\n"), "LG002")
}

// The triggers fire in every mode of the session.
func TestGuardUnderReplicaRole(t *testing.T) {
	admin, _, _ := guarded(t)
	name := admin.Config().Database
	pgtest.Exec(t, admin, "alter database "+name+" set session_replication_role = replica")
	stranger := pgtest.Connect(t, server.DSN("app", name))
	var mode string
	if err := stranger.QueryRow(t.Context(), "show session_replication_role").Scan(&mode); err != nil || mode != "replica" {
		t.Fatalf("session_replication_role: got %s, %v, want replica", mode, err)
	}
	for _, statement := range []string{
		"insert into note values (1)", "update note set id = 1", "delete from account_1", "truncate account_2a",
	} {
		_, err := stranger.Exec(t.Context(), statement)
		wantState(t, err, "LG002")
	}
}

// A cast of the table's owner runs as the writer, who may not touch the record; as the fence's owner it
// would forge a binding. Nor may the writer change what the expression means.
func TestGuardExpressionWithAHostileCast(t *testing.T) {
	name, admin := installed(t)
	pgtest.Exec(t, admin, `create schema evil; grant all on schema evil to app;
		create type evil.id as (v text);
		create function evil.forge(evil.id) returns text language plpgsql as $$ begin
			insert into fence.binding select 'c', 'a', a.pid, (extract(epoch from a.backend_start) * 1000000)::bigint, 42, 'h', now()
			from pg_stat_activity a where a.pid = pg_backend_pid();
			return 'a';
		end $$;
		create cast (evil.id as text) with function evil.forge(evil.id);
		create table forged (id evil.id); grant all on forged to app;
		create table plain (id int); grant all on plain to app`)
	protect(t, admin, "forged", "id", 1)
	protect(t, admin, "plain", "'account/' || id", 1)
	holder := pgtest.Connect(t, server.DSN("app", name))
	hold(t, admin, holder, "a", 42)

	app := pgtest.Connect(t, server.DSN("app", name))
	_, err := app.Exec(t.Context(), "insert into forged values (row('x'))")
	wantState(t, err, "42501")

	pgtest.Exec(t, holder, `create function evil.anything(text, int) returns text language sql as 'select ''a''';
		create operator evil.|| (function = evil.anything, leftarg = text, rightarg = int);
		create function pg_temp.holds(text) returns boolean language sql as 'select true';
		set search_path = evil, pg_temp, pg_catalog`)
	_, err = holder.Exec(t.Context(), "insert into public.plain values (1)")
	wantState(t, err, "LG002")
}

// TRUNCATE removes also what an older snapshot or a policy hides from the guard.
func TestTruncateThatCannotSeeEverything(t *testing.T) {
	admin, holder, _ := guarded(t)
	hold(t, admin, holder, "account/3", 1)
	pgtest.Exec(t, holder, "begin isolation level repeatable read")
	_, err := holder.Exec(t.Context(), "truncate account")
	wantState(t, err, "LG006")
	pgtest.Exec(t, holder, "rollback; begin; truncate account; rollback")
	pgtest.Exec(t, admin, "alter table note enable row level security; create policy own on note using (id = 1)")
	_, err = holder.Exec(t.Context(), "truncate note")
	wantState(t, err, "42501")
}

func TestGuardEndsWithTheBinding(t *testing.T) {
	admin, holder, _ := guarded(t)
	pgtest.Exec(t, holder, "insert into note values (1)")
	pgtest.Exec(t, admin, "delete from fence.binding where resource = 'account/1'")
	_, err := holder.Exec(t.Context(), "insert into note values (1)")
	wantState(t, err, "LG002")
	pgtest.Exec(t, holder, "insert into note values (2)")
	pgtest.Exec(t, admin, "update fence.floor set token = 8 where resource = 'account/2'")
	_, err = holder.Exec(t.Context(), "insert into note values (2)")
	wantState(t, err, "LG002")
}

func TestWhatCannotBeProtected(t *testing.T) {
	_, admin := installed(t)
	pgtest.Exec(t, admin, `create table plain (id int); create view look as select * from plain;
		create table parent (id int); create table child () inherits (parent);
		create table whole (id int) partition by list (id); create table part partition of whole for values in (1);
		create table lone (id int); create table "odd ""name" (id int)`)
	for _, c := range []struct{ table, resource, state string }{
		{"look", "id", "0A000"},
		{"parent", "id", "0A000"},
		{"child", "id", "0A000"},
		{"part", "id", "0A000"},
		{"no_such", "id", "42P01"},
		{"plain", "no_such", "42703"},
		{"plain", "max(id)", "42803"},
		{"plain", "id; drop table lone", "42601"},
	} {
		_, err := fencesql.Protect(t.Context(), admin, c.table, c.resource)
		wantState(t, err, c.state)
	}
	protect(t, admin, `"odd ""name"`, `'it''s ' || "odd ""name".id || '\'`, 1)
	_, err := admin.Exec(t.Context(), `insert into "odd ""name" values (1)`)
	if refused := wantState(t, err, "LG002"); !strings.Contains(refused.Message, `it's 1\`) {
		t.Errorf("message %q does not name the resource", refused.Message)
	}
	// A set of several or no resources for one row is no resource.
	protect(t, admin, "lone", "unnest('{}'::text[])", 1)
	_, err = admin.Exec(t.Context(), "insert into lone values (1)")
	wantState(t, err, "LG002")
}

func TestProtectedTablesInTheStatus(t *testing.T) {
	admin, _, stranger := guarded(t)
	want := []fencesql.Table{
		{Name: "public.account", Resource: "'account/' || account.id", Complete: true},
		{Name: "public.note", Resource: "'account/' || id", Complete: true},
	}
	wantTables(t, admin, want)
	for _, damage := range []string{
		"create table account_3 partition of account for values in (3)", "alter table account_1 disable trigger fence_update",
		"alter table account enable trigger fence_insert", "drop trigger fence_truncate on account_2",
	} {
		pgtest.Exec(t, admin, damage)
		want[0].Complete = false
		wantTables(t, admin, want)
		tables := 5 // account_3 was made by the first damage
		protect(t, admin, "account", "'account/' || account.id", tables)
		want[0].Complete = true
		wantTables(t, admin, want)
	}
	if n, err := fencesql.Unprotect(t.Context(), admin, "account"); err != nil || n != 5 {
		t.Errorf("unprotect: got %d, %v, want 5 tables", n, err)
	}
	wantTables(t, admin, want[1:])
	pgtest.Exec(t, stranger, "insert into account values (3, 2)")
}

func wantTables(t *testing.T, admin *pgx.Conn, want []fencesql.Table) {
	t.Helper()
	state, err := fencesql.Status(t.Context(), admin)
	if err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(state.Tables); got != fmt.Sprint(want) {
		t.Errorf("tables: got %v, want %v", got, want)
	}
	complete := true
	for _, table := range want {
		complete = complete && table.Complete
	}
	if complete != (len(state.Problems) == 0) {
		t.Errorf("problems: got %q for %v", state.Problems, want)
	}
}
