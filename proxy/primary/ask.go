package primary

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// applicationName is how the server shows the connections of this package.
const applicationName = "lychgate-probe"

// question is asked of a host. A standby's timeline is of its last checkpoint; a primary's is read from the name of the log
// file that is being written.
const question = `select pg_catalog.pg_is_in_recovery(), pg_catalog.current_setting('default_transaction_read_only') = 'on',
	(select system_identifier from pg_catalog.pg_control_system()),
	case when pg_catalog.pg_is_in_recovery() then (select timeline_id::bigint from pg_catalog.pg_control_checkpoint())
		else ('x' || pg_catalog.substr(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), 1, 8))::bit(32)::bigint end`

// Asker asks hosts over connections that it keeps open, one each, so that a server whose slots are all taken is not held for
// one that is down. Close it.
type Asker struct {
	dsn func(host string) (string, error)

	mu    sync.Mutex
	conns map[string]*pgx.Conn // nobody else uses one while it is asked
}

// NewAsker makes one; dsn is the connection string for a host.
func NewAsker(dsn func(host string) (string, error)) *Asker {
	return &Asker{dsn: dsn, conns: map[string]*pgx.Conn{}}
}

// Ask implements Config.Ask. A connection that was open before and fails is replaced once: it says nothing of the host.
func (a *Asker) Ask(ctx context.Context, host string) (Answer, error) {
	if conn := a.take(host); conn != nil {
		if answer, err := a.askOn(ctx, host, conn); err == nil {
			return answer, nil
		}
	}
	conn, err := a.connect(ctx, host)
	if err != nil {
		return Answer{}, plainly(err)
	}
	answer, err := a.askOn(ctx, host, conn)
	return answer, plainly(err)
}

func (a *Asker) connect(ctx context.Context, host string) (*pgx.Conn, error) {
	dsn, err := a.dsn(host)
	if err != nil {
		return nil, err
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, err
	}
	config.RuntimeParams["application_name"] = applicationName
	config.RuntimeParams["idle_session_timeout"] = "0"
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	return pgx.ConnectConfig(ctx, config)
}

func (a *Asker) askOn(ctx context.Context, host string, conn *pgx.Conn) (answer Answer, err error) {
	var system, timeline int64
	err = conn.QueryRow(ctx, question).Scan(&answer.Recovery, &answer.ReadOnly, &system, &timeline)
	if err != nil {
		_ = conn.Close(ctx)
		return Answer{}, err
	}
	answer.System, answer.Timeline = uint64(system), uint32(timeline)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conns[host] = conn
	return answer, nil
}

func (a *Asker) take(host string) *pgx.Conn {
	a.mu.Lock()
	defer a.mu.Unlock()
	conn := a.conns[host]
	delete(a.conns, host)
	return conn
}

// Close closes the connections. Nobody asks any more.
func (a *Asker) Close(ctx context.Context) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, conn := range a.conns {
		_ = conn.Close(ctx)
	}
	clear(a.conns)
}

// plainly leaves of an error what tells hosts apart; the whole has the connection string in it.
func plainly(err error) error {
	var refused *pgconn.PgError
	var connect *pgconn.ConnectError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return fmt.Errorf("says: %s (%s)", refused.Message, refused.Code)
	case errors.Is(err, context.DeadlineExceeded):
		return errors.New("gives no answer in time")
	case errors.As(err, &connect):
		return fmt.Errorf("cannot be reached: %w", rootOf(connect))
	}
	return err
}

// rootOf is the cause at the bottom.
func rootOf(err error) error {
	for {
		switch e := err.(type) { //nolint:errorlint // it is unwrapped here
		case interface{ Unwrap() error }:
			next := e.Unwrap()
			if next == nil {
				return err
			}
			err = next
		case interface{ Unwrap() []error }:
			all := e.Unwrap()
			if len(all) == 0 {
				return err
			}
			err = all[0]
		default:
			return err
		}
	}
}
