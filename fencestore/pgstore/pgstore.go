// Package pgstore keeps the floors and bindings inside of the PostgreSQL database that they protect, by the
// functions that package fencesql installs. The database decides; this package asks over side connections of
// its own and believes only a clean answer.
package pgstore

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/fencestore/internal/keylock"
)

// Defaults of Config.
const (
	DefaultConns           = 8
	DefaultTakeoverTimeout = 5 * time.Second
)

const (
	applicationName = "lychgate-fence"
	warningKey      = "lychgate.warning" // in a connection's custom data
	sweepEvery      = time.Minute
	healthEvery     = 2 * time.Second // a lost side connection is replaced within
	connectTimeout  = 5 * time.Second
	longAgo         = 100 * 365 * 24 * time.Hour
)

// Config of a Store.
type Config struct {
	DSN             string        // of the protected database, as the proxy role
	Conns           int           // side connections, always open; 0: DefaultConns
	TakeoverTimeout time.Duration // how long a takeover waits for old sessions to end; 0: DefaultTakeoverTimeout
	Logger          *slog.Logger  // nil: silent
	// Follows: the server is not the DSN's but the one that Follow names; until it does the store is not ready.
	Follows bool
}

// Store is a fencestore.Store in the protected PostgreSQL. One resource takes one side connection at a time,
// so that a takeover that hangs does not use up all of them.
type Store struct {
	cfg    Config
	tenure atomic.Pointer[tenure] // nil: no server has been named yet
	locks  keylock.Locks

	moving     sync.Mutex
	closed     bool // guarded by moving
	stop       context.CancelCauseFunc
	background sync.WaitGroup // sweep and tend, and pools that are being closed
}

var _ fencestore.Store = (*Store)(nil)

var errClosed = errors.New("the store is closed")

// New makes a store and begins, in the background, to open its side connections and to sweep: the one constructor
// that does, because the connections have to stand before a client comes that could take the server's last slot. It
// does not wait for the database, which may be down: Check tells. Close it.
func New(cfg Config) (*Store, error) {
	if cfg.Conns == 0 {
		cfg.Conns = DefaultConns
	}
	if cfg.TakeoverTimeout == 0 {
		cfg.TakeoverTimeout = DefaultTakeoverTimeout
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	if cfg.Conns < 1 || cfg.Conns > 1000 || cfg.TakeoverTimeout < time.Millisecond {
		return nil, fmt.Errorf("fence store: %d connections and a takeover timeout of %s make no sense", cfg.Conns, cfg.TakeoverTimeout)
	}
	if err := OneServer(cfg.DSN); err != nil {
		return nil, fmt.Errorf("fence store: %w", err)
	}
	pool, err := poolConfig(cfg.DSN, cfg)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancelCause(context.Background())
	s := &Store{cfg: cfg, stop: stop}
	if !cfg.Follows {
		t, err := newTenure("", pool)
		if err != nil {
			stop(errClosed)
			return nil, fmt.Errorf("fence store: %w", err)
		}
		s.tenure.Store(t)
	}
	s.background.Go(func() { s.sweep(ctx) })
	s.background.Go(func() { s.tend(ctx) })
	return s, nil
}

func poolConfig(dsn string, cfg Config) (*pgxpool.Config, error) {
	pool, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("fence store: %w", err) // pgx hides the password
	}
	configure(pool, cfg)
	return pool, nil
}

// configure pins what a session of the store must be, whatever the database's or role's defaults are.
// Timeouts stand on the session: a SET clause of a function does not stop a timer that runs.
func configure(pool *pgxpool.Config, cfg Config) {
	pool.MinConns, pool.MaxConns = int32(cfg.Conns), int32(cfg.Conns)
	// Never closed for age: when a stale holder has taken every slot, we could not come back.
	pool.MaxConnLifetime, pool.MaxConnIdleTime = longAgo, longAgo
	pool.HealthCheckPeriod = healthEvery
	c := pool.ConnConfig
	c.ConnectTimeout = connectTimeout
	milliseconds := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	for name, value := range map[string]string{
		"application_name":                    applicationName,
		"search_path":                         "pg_catalog",
		"default_transaction_isolation":       "read committed",
		"default_transaction_read_only":       "off",
		"client_min_messages":                 "warning", // the warnings are part of the answer
		"lock_timeout":                        milliseconds(cfg.TakeoverTimeout + time.Second),
		"statement_timeout":                   milliseconds(2*cfg.TakeoverTimeout + 2*time.Second),
		"idle_session_timeout":                "0",
		"idle_in_transaction_session_timeout": milliseconds(cfg.TakeoverTimeout),
		"jit":                                 "off",
	} {
		c.RuntimeParams[name] = value
	}
	c.OnNotice = func(conn *pgconn.PgConn, notice *pgconn.Notice) {
		if warning := (*pgconn.PgError)(notice); severity(warning) == "WARNING" {
			conn.CustomData()[warningKey] = warning
		}
	}
}

// Raise implements fencestore.Store.
func (s *Store) Raise(ctx context.Context, claim fencestore.Claim) (fencestore.Accepted, error) {
	return s.bind(ctx, claim, nil)
}

// Bind implements fencestore.Store.
func (s *Store) Bind(ctx context.Context, claim fencestore.Claim, session fencestore.Session) (fencestore.Accepted, error) {
	return s.bind(ctx, claim, &session)
}

const bindQuery = "select takeover, ended from fence.bind($1, $2, $3, $4, $5, $6, $7, $8)"

func (s *Store) bind(ctx context.Context, claim fencestore.Claim, session *fencestore.Session) (fencestore.Accepted, error) {
	begun := time.Now()
	if claim.Token < 1 || claim.Token >= 1<<53 {
		return fencestore.Accepted{}, &fencestore.Refusal{Reason: fencestore.BadToken, Claim: claim, Detail: "A token is 1 to 2^53 - 1."}
	}
	unlock, err := s.locks.Lock(ctx, claim.Resource)
	if err != nil {
		return fencestore.Accepted{}, fmt.Errorf("wait for another decision on %s: %w", claim.Resource, err)
	}
	defer unlock()
	var pid, started *int64
	if session != nil {
		pid, started = &session.PID, &session.Started
	}
	var accepted fencestore.Accepted
	err = s.ask(ctx, claim, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, bindQuery, claim.Cluster, claim.Resource, int64(claim.Token), claim.LeaseHash,
			pid, started, s.patience(ctx).Milliseconds(), claim.Mode != fencestore.Exclusive).Scan(&accepted.Takeover, &accepted.Ended)
	})
	if err != nil {
		return fencestore.Accepted{}, err
	}
	accepted.Took = time.Since(begun)
	return accepted, nil
}

// patience is how long the database may wait for old sessions: less than our caller waits for us, so that
// its answer says what happened.
func (s *Store) patience(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return s.cfg.TakeoverTimeout
	}
	left := time.Until(deadline)
	return max(0, min(s.cfg.TakeoverTimeout, left-max(left/10, min(left/2, answerTime))))
}

// answerTime is how long an answer may take to come, on a busy machine.
const answerTime = 250 * time.Millisecond

// Unbind implements fencestore.Store.
func (s *Store) Unbind(ctx context.Context, claim fencestore.Claim, session fencestore.Session, idle bool) (bool, error) {
	var gone bool
	err := s.ask(ctx, claim, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "select fence.unbind($1, $2, $3, $4, $5)",
			claim.Cluster, claim.Resource, session.PID, session.Started, idle).Scan(&gone)
	})
	return gone, err
}

// Floor implements fencestore.Store.
func (s *Store) Floor(ctx context.Context, cluster, resource string) (fencestore.Floor, error) {
	floor := fencestore.Floor{Resource: resource}
	err := s.ask(ctx, fencestore.Claim{Cluster: cluster, Resource: resource}, func(ctx context.Context, conn *pgx.Conn) error {
		var token, since int64
		err := conn.QueryRow(ctx, "select token, since from fence.floor_of($1, $2)", cluster, resource).Scan(&token, &since)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		floor.Token, floor.Since = fencestore.Token(token), time.UnixMicro(since)
		return err
	})
	if err != nil {
		return fencestore.Floor{}, err
	}
	return floor, nil
}

// Bindings implements fencestore.Store.
func (s *Store) Bindings(ctx context.Context, cluster string, limit int) ([]fencestore.Binding, error) {
	var list []fencestore.Binding
	err := s.ask(ctx, fencestore.Claim{Cluster: cluster}, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, "select resource, token, lease, pid, started, since, shared from fence.bindings($1, $2)", cluster, limit)
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (fencestore.Binding, error) {
			return scanBinding(row, cluster)
		})
		return err
	})
	return list, err
}

func scanBinding(row pgx.CollectableRow, cluster string) (fencestore.Binding, error) {
	b := fencestore.Binding{Claim: fencestore.Claim{Cluster: cluster}}
	var token, since int64
	var shared bool
	err := row.Scan(&b.Resource, &token, &b.LeaseHash, &b.Session.PID, &b.Session.Started, &since, &shared)
	if shared {
		b.Mode = fencestore.Shared
	}
	b.Token, b.Since = fencestore.Token(token), time.UnixMicro(since)
	return b, err
}

// Check implements fencestore.Store.
func (s *Store) Check(ctx context.Context, cluster string) error {
	claim := fencestore.Claim{Cluster: cluster}
	var version int
	err := s.ask(ctx, claim, func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, "select fence.check_ready($1)", cluster).Scan(&version)
	})
	if err == nil && version < schemaVersion {
		err = &fencestore.Refusal{
			Reason: fencestore.NotReady, Claim: claim, Hint: installHint,
			Detail: fmt.Sprintf("The schema fence has version %d, this program needs %d.", version, schemaVersion),
		}
	}
	return err
}

// Close implements fencestore.Store: what is being asked ends with its answer, then the connections are closed.
func (s *Store) Close() {
	s.stop(errClosed)
	s.moving.Lock()
	s.closed = true
	s.moving.Unlock()
	s.background.Wait()
	if t := s.tenure.Load(); t != nil {
		t.close()
	}
}

// sweep forgets the bindings of sessions that are gone, which proxies that died have left behind.
func (s *Store) sweep(ctx context.Context) {
	ticker := time.NewTicker(sweepEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		var swept int64
		err := s.ask(ctx, fencestore.Claim{}, func(ctx context.Context, conn *pgx.Conn) error {
			return conn.QueryRow(ctx, "select fence.sweep()").Scan(&swept)
		})
		if err != nil && ctx.Err() == nil {
			s.cfg.Logger.Warn("fence store: bindings of ended sessions were not removed", "error", err)
		}
	}
}
