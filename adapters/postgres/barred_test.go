package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lychgate/lychgate/adapters/postgres"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// A name that means something harmless to the proxy and something else to the server would execute without a ticket.
func TestNamesOfStatementsDoNotOutliveTheTicket(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	const insert = "INSERT INTO entry VALUES (1, 'no ticket')"
	none := func(*pgconn.PgConn) error { return nil }
	for name, c := range map[string]struct {
		fenced, barred func(*pgconn.PgConn) error
		again          bool // the name has the meaning again that its client gave it
	}{
		"RESET, renamed": {
			fenced: func(c *pgconn.PgConn) error {
				if _, err := c.Prepare(t.Context(), "s", "RESET fence.ticket", nil); err != nil {
					return err
				}
				_, err := c.Exec(t.Context(), "DEALLOCATE s; PREPARE s AS "+insert).ReadAll()
				return err
			},
			barred: none, again: true,
		},
		"BEGIN, renamed": {
			fenced: func(c *pgconn.PgConn) error {
				if _, err := c.Prepare(t.Context(), "s", "BEGIN", nil); err != nil {
					return err
				}
				_, err := c.Exec(t.Context(), "DEALLOCATE s; PREPARE s AS "+insert).ReadAll()
				return err
			},
			barred: none, again: true,
		},
		"a name that exists": {
			fenced: func(c *pgconn.PgConn) error {
				_, err := c.Prepare(t.Context(), "s", insert, nil)
				return err
			},
			barred: func(c *pgconn.PgConn) error {
				_, err := c.Prepare(t.Context(), "s", "BEGIN", nil)
				wantCode(t, err, "42P05") // duplicate_prepared_statement
				return nil
			},
		},
		"a Parse that is skipped": {
			fenced: func(c *pgconn.PgConn) error {
				_, err := c.Prepare(t.Context(), "s", insert, nil)
				return err
			},
			barred: func(c *pgconn.PgConn) error {
				pipe := c.StartPipeline(t.Context())
				pipe.SendQueryPrepared("missing", nil, nil, nil)
				pipe.SendPrepare("s", "BEGIN", nil)
				if err := pipe.Sync(); err != nil {
					return err
				}
				_, err := pipe.GetResults()
				wantCode(t, err, postgres.CodeTicketRequired)
				_ = pipe.Close() // the error again
				return nil
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			conn := pgtest.Connect(t, p.dsn("app", with(w.ticket("r", 1)))).PgConn()
			if err := c.fenced(conn); err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Exec(t.Context(), "RESET fence.ticket").ReadAll(); err != nil {
				t.Fatal(err)
			}
			if err := c.barred(conn); err != nil {
				t.Fatal(err)
			}
			if err := conn.ExecPrepared(t.Context(), "s", nil, nil, nil).Read().Err; !c.again {
				wantCode(t, err, postgres.CodeTicketRequired)
			} else if err != nil {
				t.Error(err)
			}
			if n := w.count("true"); n != 0 {
				t.Errorf("%d rows were written without a ticket", n)
			}
		})
	}
}

// Without a ticket the few statements that are allowed can be prepared, also under a name whose first Parse failed.
func TestPreparedStatementsBeforeTheTicket(t *testing.T) {
	w := newWorld(t)
	for _, name := range []string{"", "s"} {
		conn := w.proxy(nil).connect(nil).PgConn()
		_, err := conn.Prepare(t.Context(), name, "SELECT 1", nil)
		wantCode(t, err, postgres.CodeTicketRequired)
		if _, err := conn.Prepare(t.Context(), name, "SET fence.ticket = '"+w.ticket("r", 1)+"'", nil); err != nil {
			t.Fatal(err)
		}
		if result := conn.ExecPrepared(t.Context(), name, nil, nil, nil).Read(); result.Err != nil {
			t.Fatal(result.Err)
		}
		if _, err := conn.Exec(t.Context(), "INSERT INTO entry VALUES (1, 'a'); TRUNCATE entry").ReadAll(); err != nil {
			t.Fatal(err)
		}
	}
}

// Drivers keep BEGIN and COMMIT prepared under names of theirs, also from one transaction's ticket to the next one's.
func TestPreparedEndsOfTransactionsWithATicketEach(t *testing.T) {
	w := newWorld(t)
	conn := w.proxy(nil).connect(nil).PgConn()
	simple := func(sql string) error {
		_, err := conn.Exec(t.Context(), sql).ReadAll()
		return err
	}
	prepare := func(name, sql string) func() error {
		return func() error {
			_, err := conn.Prepare(t.Context(), name, sql, nil)
			return err
		}
	}
	execute := func(name string) func() error {
		return func() error { return conn.ExecPrepared(t.Context(), name, nil, nil, nil).Read().Err }
	}
	show := func() error { return simple("SET LOCAL fence.ticket = '" + w.ticket("r", 1) + "'") }
	write := func() error { return simple("INSERT INTO entry SELECT count(*), 'a' FROM entry") }
	do := func(steps ...func() error) {
		t.Helper()
		for i, step := range steps {
			if err := step(); err != nil {
				t.Fatalf("step %d: %v", i, err)
			}
		}
	}
	do(prepare("begin", "BEGIN"), execute("begin"), show, prepare("commit", "COMMIT"), prepare("rollback", "ROLLBACK"), write, execute("commit"))
	for range 3 {
		wantCode(t, write(), postgres.CodeTicketRequired)
		do(execute("begin"), show, write, execute("commit"))
		do(execute("begin"))
		wantCode(t, write(), postgres.CodeTicketRequired)
		do(execute("rollback"))
	}
	if n := w.count("true"); n != 4 {
		t.Errorf("%d rows, want 4", n)
	}
	if conn.TxStatus() != 'I' {
		t.Errorf("transaction status %c", conn.TxStatus())
	}
}

// A savepoint executes nothing: some drivers have one before each statement.
func TestSavepointBeforeTheTicket(t *testing.T) {
	w := newWorld(t)
	conn := w.proxy(nil).connect(nil)
	show := "SET LOCAL fence.ticket = '" + w.ticket("r", 1) + "'"
	exec(t, conn, "BEGIN")
	exec(t, conn, "SAVEPOINT a")
	_, err := conn.Exec(t.Context(), "SELECT 1")
	wantCode(t, err, postgres.CodeTicketRequired)
	exec(t, conn, "ROLLBACK TO SAVEPOINT a")
	exec(t, conn, "RELEASE SAVEPOINT a")
	exec(t, conn, "COMMIT")

	exec(t, conn, "BEGIN")
	exec(t, conn, `SAVEPOINT "a"`)
	exec(t, conn, show)
	exec(t, conn, "INSERT INTO entry VALUES (1, 'a')")
	exec(t, conn, `ROLLBACK TO "a"`)
	exec(t, conn, "INSERT INTO entry VALUES (2, 'a')") // the fence is kept: one too many is safe
	exec(t, conn, "COMMIT")
	_, err = conn.Exec(t.Context(), "INSERT INTO entry VALUES (3, 'a')")
	wantCode(t, err, postgres.CodeTicketRequired)
	if n := w.count("true"); n != 1 {
		t.Errorf("%d rows, want 1", n)
	}
}

// Some drivers put BEGIN, or a savepoint, in front of the client's first statement, in one text.
func TestTicketBehindBeginInOneText(t *testing.T) {
	w := newWorld(t)
	conn := w.proxy(nil).connect(nil).PgConn()
	simple := func(sql string) error {
		_, err := conn.Exec(t.Context(), sql).ReadAll()
		return err
	}
	do := func(texts ...string) {
		t.Helper()
		for _, text := range texts {
			if err := simple(text); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
		}
	}
	ticket := "fence.ticket = '" + w.ticket("r", 2) + "'"
	const insert = "INSERT INTO entry SELECT count(*), 'a' FROM entry"
	do("BEGIN;SET LOCAL "+ticket, insert)
	results, err := conn.Exec(t.Context(), "SHOW fence.ticket").ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	if got := string(results[0].Rows[0][0]); got != "(redacted)" {
		t.Errorf("the server knows %q", got)
	}
	do("COMMIT")
	wantCode(t, simple(insert), postgres.CodeTicketRequired)
	do("BEGIN", "SAVEPOINT a;SET LOCAL "+ticket, "RELEASE a;"+insert, "COMMIT")
	wantCode(t, simple(insert), postgres.CodeTicketRequired)
	do("BEGIN;SET "+ticket, insert, "ROLLBACK") // takes back the SET, too
	wantCode(t, simple(insert), postgres.CodeTicketRequired)
	do("BEGIN;SET "+ticket, insert, "COMMIT", insert, "BEGIN;RESET fence.ticket", "COMMIT")
	wantCode(t, simple(insert), postgres.CodeTicketRequired)

	wantCode(t, simple("BEGIN;SET LOCAL fence.ticket = '"+w.ticket("r", 1)+"'"), postgres.CodeStaleToken)
	if conn.TxStatus() != 'I' {
		t.Errorf("refused, but the transaction status is %c", conn.TxStatus())
	}
	if n := w.count("true"); n != 4 {
		t.Errorf("%d rows, want 4", n)
	}
}

// Drivers and pools tidy a session up between one ticket and the next: psycopg deallocates what it has prepared behind each
// rollback. None of that executes anything.
func TestTidyingUpWithoutATicket(t *testing.T) {
	w := newWorld(t)
	conn := w.proxy(nil).connect(nil).PgConn()
	simple := func(sql string) error {
		_, err := conn.Exec(t.Context(), sql).ReadAll()
		return err
	}
	const insert = "INSERT INTO entry VALUES (1, 'no ticket')"
	tidy := []string{
		"DEALLOCATE ALL", "RESET ALL", "RESET statement_timeout", "UNLISTEN *", "CLOSE ALL", "SET SESSION AUTHORIZATION DEFAULT",
		"RESET SESSION AUTHORIZATION", "DISCARD PLANS", "DISCARD ALL",
	}
	for _, sql := range []string{"BEGIN", "SET LOCAL fence.ticket = '" + w.ticket("r", 1) + "'", "PREPARE s AS " + insert, "COMMIT"} {
		if err := simple(sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	for _, sql := range tidy {
		if err := simple(sql); err != nil {
			t.Errorf("%s: %v", sql, err)
		}
		if err := conn.ExecParams(t.Context(), sql, nil, nil, nil, nil).Read().Err; err != nil {
			t.Errorf("%s as a statement of the extended protocol: %v", sql, err)
		}
		wantCode(t, simple(sql+"; "+insert), postgres.CodeTicketRequired)
		wantCode(t, simple(insert), postgres.CodeTicketRequired)
	}
	// What executes something by a name that was prepared is no tidying up.
	if _, err := conn.Prepare(t.Context(), "tidy", "DEALLOCATE ALL", nil); err != nil {
		t.Fatal(err)
	}
	if err := conn.ExecPrepared(t.Context(), "tidy", nil, nil, nil).Read().Err; err != nil {
		t.Error(err)
	}
	wantCode(t, simple("EXECUTE s"), postgres.CodeTicketRequired)
	if n := w.count("true"); n != 0 {
		t.Errorf("%d rows were written without a ticket", n)
	}
	if conn.TxStatus() != 'I' {
		t.Errorf("transaction status %c", conn.TxStatus())
	}
}
