// Package pgxlease opens PostgreSQL connections that show a lease's ticket to a Lychgate proxy, with pgx, its
// pool, or database/sql. Point the connection string at the proxy.
//
// Every new connection shows the ticket as it is then, as the startup parameter fence.ticket, which the proxy
// takes out before the server sees it. Once the lease is over no connection is opened or handed out any more:
// the attempt fails with the lease's error. Connections that are in use at that moment are ended by the store
// when it accepts a newer ticket; cancel their work with the lease's context.
package pgxlease

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/lychgate/lychgate/coordinator/client"
)

// Parameter is the startup parameter that carries a ticket.
const Parameter = "fence.ticket"

// Lease is what this package needs of a *client.Lease.
type Lease interface {
	Ticket() string // "" once the lease is over
	Err() error     // nil until then
}

// Configure makes cfg show the ticket as it is now. It returns the lease's error if that is over. For a
// single connection; a pool needs BeforeConnect, because its tickets must be fresh.
func Configure(l Lease, cfg *pgx.ConnConfig) error {
	ticket := l.Ticket()
	if err := l.Err(); err != nil {
		return err
	}
	if cfg.RuntimeParams == nil {
		cfg.RuntimeParams = make(map[string]string)
	}
	cfg.RuntimeParams[Parameter] = ticket
	return nil
}

// BeforeConnect is a hook for pgxpool.Config.BeforeConnect and stdlib.OptionBeforeConnect.
func BeforeConnect(l Lease) func(context.Context, *pgx.ConnConfig) error {
	return func(_ context.Context, cfg *pgx.ConnConfig) error { return Configure(l, cfg) }
}

// Bind shows the ticket to the proxy once. When it has returned nil, every earlier holder is fenced: do this
// before work whose first step does not go through the proxy. BindFirst does it in time.
func Bind(ctx context.Context, l Lease, cfg *pgx.ConnConfig) error {
	cfg = cfg.Copy()
	if err := Configure(l, cfg); err != nil {
		return err
	}
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return err
	}
	return conn.Close(ctx)
}

// BindFirst has Acquire and Do bind before they hand the lease out or start the work: with
//
//	c.Do(ctx, "ledger/eu", work, pgxlease.BindFirst(cfg))
//
// every earlier holder is fenced when work starts, and work never starts if the proxy refuses the ticket. cfg
// is copied at each use and must not be changed meanwhile.
func BindFirst(cfg *pgx.ConnConfig) client.Option {
	return client.Before(func(ctx context.Context, l *client.Lease) error { return Bind(ctx, l, cfg) })
}

// ConfigurePool makes a pool show the lease's ticket on each new connection and hand out none once the lease
// is over. Hooks that cfg already has are called first.
func ConfigurePool(l Lease, cfg *pgxpool.Config) {
	connect, prepare := cfg.BeforeConnect, cfg.PrepareConn
	if acquire := cfg.BeforeAcquire; prepare == nil && acquire != nil { //nolint:staticcheck // a caller may still use it
		prepare = func(ctx context.Context, conn *pgx.Conn) (bool, error) { return acquire(ctx, conn), nil }
	}
	cfg.BeforeConnect = func(ctx context.Context, conn *pgx.ConnConfig) error {
		if connect != nil {
			if err := connect(ctx, conn); err != nil {
				return err
			}
		}
		return Configure(l, conn)
	}
	cfg.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
		if prepare != nil {
			if ok, err := prepare(ctx, conn); !ok || err != nil {
				return ok, err
			}
		}
		err := l.Err()
		return err == nil, err // not ok: the pool closes the connection
	}
}

// OpenDB opens a database/sql pool with the same behaviour. The caller closes it.
func OpenDB(l Lease, cfg *pgx.ConnConfig) *sql.DB {
	return stdlib.OpenDB(*cfg, stdlib.OptionBeforeConnect(BeforeConnect(l)),
		stdlib.OptionResetSession(func(context.Context, *pgx.Conn) error {
			if l.Err() != nil {
				return driver.ErrBadConn // database/sql closes it and opens another, which gets the error
			}
			return nil
		}))
}
