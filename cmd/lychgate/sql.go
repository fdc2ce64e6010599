package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/spf13/cobra"
)

// sqlTimeout bounds one command, waiting for locks on the tables included.
const sqlTimeout = time.Minute

func sqlCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "sql",
		Short: "Put the fence into a PostgreSQL database, and take it out",
		Long: `Put the fence into a PostgreSQL database, and take it out. All of it lives in the schema
"fence": the floors, the registered sessions, the functions that decide, and the guard of
tables. Every command may be repeated.

The database is named by --dsn or, without it, by the variables of libpq: PGHOST, PGPORT,
PGUSER, PGDATABASE, PGPASSWORD and so on. Log in directly, not through a proxy, as a
superuser or, where a service has none, as the database's owner with CREATEROLE and the
roles pg_signal_backend and pg_read_all_stats WITH ADMIN OPTION; for protect and unprotect
the table's owner is enough.`,
	}
	var db sqlTarget
	cmd.PersistentFlags().StringVar(&db.dsn, "dsn", "", "connection string of the database (default: the variables of libpq)")
	cmd.AddCommand(sqlInstallCommand(&db), sqlStatusCommand(&db), sqlAdoptCommand(&db),
		sqlProtectCommand(&db), sqlUnprotectCommand(&db), sqlUninstallCommand(&db))
	return cmd
}

// sqlTarget is the database that a command works on.
type sqlTarget struct{ dsn string }

// with calls fn with a connection and closes it.
func (t *sqlTarget) with(ctx context.Context, fn func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, sqlTimeout)
	defer cancel()
	config, err := pgx.ParseConfig(t.dsn)
	if err != nil {
		return usageError("--dsn: %w", err) // pgx hides the password
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "lychgate sql"
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		err = fmt.Errorf("connect to the database: %w", throughProxy(err))
		if t.dsn == "" && os.Getenv("PGHOST") == "" && os.Getenv("PGSERVICE") == "" {
			err = fmt.Errorf("%w; give --dsn, or set PGHOST and the other variables of libpq", err)
		}
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // what was done is committed
	return throughProxy(fn(ctx, conn))
}

// throughProxy says of a refusal that only a proxy gives where the command belongs: what these commands do is not what the
// fence guards, so the database itself never answers them so.
func throughProxy(err error) error {
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || !strings.HasPrefix(refusal.Code, "LG") {
		return err
	}
	return fmt.Errorf("there a lychgate proxy answers (%s: %s), and not the database: give --dsn of the database itself",
		refusal.Code, refusal.Message)
}
