package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// wantFatal expects the session to be found ended with LG001.
func wantFatal(t testing.TB, conn *pgx.Conn) *pgconn.PgError {
	t.Helper()
	err := wantCode(t, try(conn, "insert into entry values (99, 'stale')"), "LG001")
	if err.Severity != "FATAL" {
		t.Errorf("severity %s, want FATAL", err.Severity)
	}
	if !conn.IsClosed() {
		t.Error("the connection is still open")
	}
	return err
}

func TestTakeoverFromAnOpenTransaction(t *testing.T) {
	for _, level := range []string{"read committed", "repeatable read", "serializable"} {
		for _, proxies := range []string{"one proxy", "two proxies"} {
			t.Run(level+"/"+proxies, func(t *testing.T) {
				w := newWorld(t)
				p1 := w.proxy(nil)
				p2 := p1
				if proxies == "two proxies" {
					p2 = w.proxy(nil)
				}
				old := p1.connect(with(w.ticket("ledger", 41)))
				exec(t, old, "begin isolation level "+level)
				exec(t, old, "insert into entry values (1, 'old')")
				successor := p2.connect(with(w.ticket("ledger", 42)))
				exec(t, successor, "insert into entry values (1, 'new')")
				wantFatal(t, old)
				p1.refuse("app", "LG001", with(w.ticket("ledger", 41)))
				p2.refuse("app", "LG001", with(w.ticket("ledger", 41)))
				if got := w.count("who = 'new'"); got != 1 || w.count("true") != 1 {
					t.Errorf("the table is not what the rightful holder wrote")
				}
			})
		}
	}
}

func TestTakeoverWhileAStatementRuns(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	old := p.connect(with(w.ticket("ledger", 41)))
	exec(t, old, "begin")
	exec(t, old, "insert into entry values (1, 'old')")
	answer := make(chan error, 1)
	go func() { answer <- try(old, "select pg_sleep(600)") }()
	w.awaitRunning("pg_sleep")
	exec(t, p.connect(with(w.ticket("ledger", 42))), "insert into entry values (1, 'new')")
	wantCode(t, <-answer, "LG001")

	// Outside of a transaction a commit may have been in flight.
	old = p.connect(with(w.ticket("ledger", 42)))
	go func() { answer <- try(old, "select pg_sleep(600)") }()
	w.awaitRunning("pg_sleep")
	exec(t, p.connect(with(w.ticket("ledger", 43))), "insert into entry values (2, 'new')")
	wantCode(t, <-answer, "LG008")
}

func (w *world) awaitRunning(part string) {
	w.t.Helper()
	await(w.t, part+" to run", func() bool {
		var n int
		err := w.admin.QueryRow(context.Background(), `select count(*) from pg_stat_activity
			where state = 'active' and datname = $1 and usename = 'app' and query like '%' || $2 || '%'`, w.name, part).Scan(&n)
		return err == nil && n > 0
	})
}
