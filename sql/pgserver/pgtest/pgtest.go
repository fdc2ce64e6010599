// Package pgtest starts a throw-away PostgreSQL for a test and sees to its end.
package pgtest

import (
	"context"
	"fmt"
	"maps"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lychgate/lychgate/sql/pgserver"
)

const (
	startBound = 2 * time.Minute // initdb on a busy machine
	dropBound  = 20 * time.Second
)

// Start runs a server until the test and its subtests are done. Unless cfg says otherwise it does not
// fsync: a test that pulls no plug need not wait for the disk.
func Start(tb testing.TB, cfg pgserver.Config) *pgserver.Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), startBound)
	defer cancel()
	s, err := pgserver.Start(ctx, withoutFsync(cfg))
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

func withoutFsync(cfg pgserver.Config) pgserver.Config {
	settings := map[string]string{"fsync": "off"}
	maps.Copy(settings, cfg.Settings)
	cfg.Settings = settings
	return cfg
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

// Main runs the tests of a package around one server, for use in TestMain.
func Main(m *testing.M, cfg pgserver.Config, server **pgserver.Server) (code int) {
	ctx, cancel := context.WithTimeout(context.Background(), startBound)
	defer cancel()
	s, err := pgserver.Start(ctx, withoutFsync(cfg))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := s.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	*server = s
	return m.Run()
}

var databases atomic.Int64

// NewDatabase makes an empty database that is dropped when the test is done, and returns its name.
func NewDatabase(tb testing.TB, s *pgserver.Server) string {
	tb.Helper()
	name := fmt.Sprintf("test_%d", databases.Add(1))
	admin := Connect(tb, s.DSN("postgres", "postgres"))
	Exec(tb, admin, "create database "+name)
	tb.Cleanup(func() {
		// The server may be down by now: then so is the database. Or it waits for a standby, by the test's wish.
		ctx, cancel := context.WithTimeout(context.Background(), dropBound)
		defer cancel()
		_, _ = admin.Exec(ctx, "drop database if exists "+name+" with (force)")
	})
	return name
}
