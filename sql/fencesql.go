// Package fencesql puts the schema "fence" into a PostgreSQL database and takes it out again: the floors, the
// registered sessions, the functions that decide, and the guard of a table. The scripts are embedded; what
// they promise is written in fencestore/DESIGN.md.
//
// All functions take a connection of an administrator: a superuser, or, where a service has none, the owner of the database
// who may make roles and hand on pg_signal_backend and pg_read_all_stats (for Protect and Unprotect the owner of the table
// is enough). They block until the server has answered, and leave nothing half done: each is one transaction.
package fencesql

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// DefaultProxyRole is the role that a proxy's store logs in as, unless another one is named.
const DefaultProxyRole = "lychgate_proxy"

// ErrNotInstalled: the database has no schema "fence".
var ErrNotInstalled = errors.New("the schema fence is not installed; run `lychgate sql install`")

// Options of Install.
type Options struct {
	ProxyRole string // may call the functions; made with LOGIN and without a password when missing; empty: DefaultProxyRole
	Cluster   string // pins the database to this cluster of coordinators; empty: to the first one that binds
}

// State is what an installed database looks like.
type State struct {
	Installed  bool
	Version    int       // of the schema; 0 when not installed
	Latest     int       // the version that this program would install
	Cluster    string    // "" while pinned to none
	ProxyRoles []string  // may call the functions
	Floors     int64     // resources with a floor
	Folded     uint64    // every token below is refused, whatever the resource; 0: none yet
	Bindings   int64     // registered sessions, those that are gone included
	Sessions   []Session // of the bindings, the oldest first, at most MaxSessions
	Tables     []Table   // protected
	Problems   []string  // complete sentences; empty when all is well
}

// MaxSessions bounds the sessions of a State.
const MaxSessions = 1000

// Session is a registered session as the server shows it. There is no secret in it.
type Session struct {
	Cluster     string
	Resource    string
	Token       uint64
	Shared      bool
	PID         int32
	State       string // as in pg_stat_activity; "gone" when only its row is left
	Role        string // empty when it is gone, or when its role was dropped
	Application string
	Age         time.Duration // since it was bound, by the server's clock
	Transaction time.Duration // how long its transaction is open; 0: none is
}

// Table is a protected table.
type Table struct {
	Name     string // qualified where needed
	Resource string // the expression that names a row's resource
	Complete bool   // every partition has all of its triggers, switched on
}

// Install brings the schema to the latest version, makes the roles that are missing, and lets the proxy role
// in. Running it again changes nothing. It returns the state afterwards, whose Problems are worth reading.
func Install(ctx context.Context, conn *pgx.Conn, opts Options) (State, error) {
	if opts.ProxyRole == "" {
		opts.ProxyRole = DefaultProxyRole
	}
	err := pgx.BeginTxFunc(ctx, conn, readCommitted, func(tx pgx.Tx) error { return install(ctx, tx, opts) })
	if err != nil {
		return State{}, fmt.Errorf("install the schema fence: %w", err)
	}
	return Status(ctx, conn)
}

// Status reports what is installed. A database without the schema is a State that says so, not an error.
func Status(ctx context.Context, conn *pgx.Conn) (State, error) {
	var state State
	err := pgx.BeginTxFunc(ctx, conn, readCommitted, func(tx pgx.Tx) (err error) {
		state, err = readState(ctx, tx)
		return err
	})
	if err != nil {
		return State{}, fmt.Errorf("read the state of the schema fence: %w", err)
	}
	return state, nil
}

// Protect guards a table and its partitions: a statement may change its rows only in a session that holds
// the resource of each exclusive, before and after. resource is an SQL expression over one row, for instance
// 'account/' || id; it sees only pg_catalog unless it qualifies names. Protecting a protected table replaces
// the expression and takes in new partitions. It returns the number of tables that now have the guard.
func Protect(ctx context.Context, conn *pgx.Conn, table, resource string) (int, error) {
	return onTable(ctx, conn, "protect", table, "select fence.protect($1::text::regclass, $2)", table, resource)
}

// Unprotect takes the guard off a table and its partitions; it returns from how many.
func Unprotect(ctx context.Context, conn *pgx.Conn, table string) (int, error) {
	return onTable(ctx, conn, "unprotect", table, "select fence.unprotect($1::text::regclass)", table)
}

// Adopt pins the database to what and where it is now and to the cluster ("" to the next one that comes),
// after a restore, a promotion, or a move to another cluster. Every bound session is ended first, within the
// timeout. It returns how many there were.
func Adopt(ctx context.Context, conn *pgx.Conn, cluster string, timeout time.Duration) (int, error) {
	ended := 0
	err := pgx.BeginTxFunc(ctx, conn, readCommitted, func(tx pgx.Tx) error {
		if err := asOwner(ctx, tx); err != nil {
			return err
		}
		return tx.QueryRow(ctx, "select fence.adopt(nullif($1, ''), $2)", cluster, timeout.Milliseconds()).Scan(&ended)
	})
	if err != nil {
		return 0, fmt.Errorf("adopt the database: %w", err)
	}
	return ended, nil
}

// Uninstall removes the schema with its floors, and the roles that Install made unless they are still used
// (by another database of the server). It refuses while a table is protected: what would go unnoticed is
// that its guard is gone.
func Uninstall(ctx context.Context, conn *pgx.Conn) error {
	err := pgx.BeginTxFunc(ctx, conn, readCommitted, func(tx pgx.Tx) error { return uninstall(ctx, tx) })
	if err != nil {
		return fmt.Errorf("uninstall the schema fence: %w", err)
	}
	return nil
}

var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}

func onTable(ctx context.Context, conn *pgx.Conn, verb, table, query string, args ...any) (count int, err error) {
	err = pgx.BeginTxFunc(ctx, conn, readCommitted, func(tx pgx.Tx) error {
		if ok, err := installed(ctx, tx); err != nil || !ok {
			return errors.Join(err, ErrNotInstalled)
		}
		return tx.QueryRow(ctx, query, args...).Scan(&count)
	})
	if err != nil {
		return 0, fmt.Errorf("%s table %s: %w", verb, table, err)
	}
	return count, nil
}
