package proxybench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/jackc/pgx/v5"

	fencesql "github.com/lychgate/lychgate/sql"
	"github.com/lychgate/lychgate/sql/pgserver"
)

// spareConnections are those of the server beside the idle ones that are counted: 64 clients through something that keeps
// what it had, side connections, ourselves.
const spareConnections = 250

// startPostgres starts a throw-away server with the durability that is PostgreSQL's default, and makes the database with
// the fence and pgbench's tables.
func (r *run) startPostgres(ctx context.Context) (err error) {
	if r.bin, err = pgserver.Binaries(); err != nil {
		return err
	}
	r.postgres, err = pgserver.Start(ctx, pgserver.Config{
		Dir: r.path("postgres"),
		Settings: map[string]string{
			"max_connections": strconv.Itoa(r.size.idle + spareConnections),
			"shared_buffers":  "128MB", // all of the tables
			"max_wal_size":    "2GB",   // no checkpoint in the middle of one side's turn
		},
	})
	if err != nil {
		return err
	}
	if err := r.makeDatabase(ctx); err != nil {
		return fmt.Errorf("make the database: %w", err)
	}
	initialise := exec.CommandContext(ctx, filepath.Join(r.bin, "pgbench"), "-i", "-q", "-s", strconv.Itoa(scale),
		"-h", r.postgres.Host(), "-p", strconv.Itoa(r.postgres.Port()), "-U", role, database)
	initialise.Env = append(pgEnvironment(), "PGSSLMODE=disable")
	if out, err := initialise.CombinedOutput(); err != nil {
		return fmt.Errorf("pgbench -i: %w: %s", err, tailOf(string(out)))
	}
	return nil
}

// scale is pgbench's: 100,000 rows, all in memory.
const scale = 1

// makeDatabase leaves r.admin connected to it as the superuser.
func (r *run) makeDatabase(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, r.postgres.DSN("postgres", "postgres"))
	if err != nil {
		return err
	}
	for _, sql := range []string{"CREATE ROLE " + role + " LOGIN", "CREATE DATABASE " + database} {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return errors.Join(err, conn.Close(ctx))
		}
	}
	if err := conn.Close(ctx); err != nil {
		return err
	}
	if r.admin, err = pgx.Connect(ctx, r.postgres.DSN("postgres", database)); err != nil {
		return err
	}
	if _, err := fencesql.Install(ctx, r.admin, fencesql.Options{}); err != nil {
		return err
	}
	return r.exec(ctx,
		"GRANT ALL ON SCHEMA public TO "+role,
		"CREATE TABLE entry (n bigint PRIMARY KEY)", // of the takeovers
		"GRANT ALL ON entry TO "+role,
		"CREATE TABLE checked_floor (resource text PRIMARY KEY, token bigint NOT NULL)", // of applications that check by themselves
		"GRANT ALL ON checked_floor TO "+role,
	)
}

// exec runs statements as the superuser.
func (r *run) exec(ctx context.Context, statements ...string) error {
	for _, sql := range statements {
		if _, err := r.admin.Exec(ctx, sql); err != nil {
			return fmt.Errorf("%s: %w", sql, err)
		}
	}
	return nil
}

// count is the number of rows of a table, as the superuser sees it.
func (r *run) count(ctx context.Context, table string) (n int, err error) {
	err = r.admin.QueryRow(ctx, "SELECT count(*) FROM "+table).Scan(&n)
	return n, err
}
