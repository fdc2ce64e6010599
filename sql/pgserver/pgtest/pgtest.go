// Package pgtest starts a throw-away PostgreSQL for a test and sees to its end.
package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lychgate/lychgate/sql/pgserver"
)

const startBound = 2 * time.Minute // initdb on a busy machine

// Start runs a server until the test and its subtests are done. Unless cfg says otherwise it does not
// fsync: a test that pulls no plug need not wait for the disk.
func Start(tb testing.TB, cfg pgserver.Config) *pgserver.Server {
	tb.Helper()
	settings := map[string]string{"fsync": "off"}
	for name, value := range cfg.Settings {
		settings[name] = value
	}
	cfg.Settings = settings
	ctx, cancel := context.WithTimeout(context.Background(), startBound)
	defer cancel()
	s, err := pgserver.Start(ctx, cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := s.Stop(); err != nil {
			tb.Error(err)
		}
	})
	return s
}

// Connect opens a connection that is closed when the test is done.
func Connect(tb testing.TB, dsn string) *pgx.Conn {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startBound)
	defer cancel()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close(context.Background()) }) // it may have been ended by the test
	return conn
}

// Exec runs statements, several in one string allowed, and fails the test when one fails.
func Exec(tb testing.TB, conn *pgx.Conn, sql string) {
	tb.Helper()
	if _, err := conn.PgConn().Exec(context.Background(), sql).ReadAll(); err != nil {
		tb.Fatalf("%s: %v", sql, err)
	}
}
