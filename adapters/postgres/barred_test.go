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
	for name, c := range map[string]struct{ fenced, barred func(*pgconn.PgConn) error }{
		"RESET, renamed": {
			fenced: func(c *pgconn.PgConn) error {
				if _, err := c.Prepare(t.Context(), "s", "RESET fence.ticket", nil); err != nil {
					return err
				}
				_, err := c.Exec(t.Context(), "DEALLOCATE s; PREPARE s AS "+insert).ReadAll()
				return err
			},
			barred: none,
		},
		"BEGIN, renamed": {
			fenced: func(c *pgconn.PgConn) error {
				if _, err := c.Prepare(t.Context(), "s", "BEGIN", nil); err != nil {
					return err
				}
				_, err := c.Exec(t.Context(), "DEALLOCATE s; PREPARE s AS "+insert).ReadAll()
				return err
			},
			barred: none,
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
			result := conn.ExecPrepared(t.Context(), "s", nil, nil, nil).Read()
			wantCode(t, result.Err, postgres.CodeTicketRequired)
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
