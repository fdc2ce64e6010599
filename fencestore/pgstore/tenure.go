package pgstore

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// tenure is the side connections to one server. All that a store decides at one time it decides on one server: were there
// connections to two, each would know its own sessions and its own floors only.
type tenure struct {
	server string
	pool   *pgxpool.Pool
	giveUp context.CancelFunc // ends connects that are under way

	mu    sync.Mutex
	over  bool
	conns map[net.Conn]struct{}
}

var errOver = errors.New("the store has moved to another server")

func newTenure(server string, config *pgxpool.Config) (*tenure, error) {
	ctx, giveUp := context.WithCancel(context.Background())
	t := &tenure{server: server, giveUp: giveUp, conns: map[net.Conn]struct{}{}}
	config.ConnConfig.DialFunc = t.dialer(config.ConnConfig.DialFunc)
	var err error
	if t.pool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		giveUp()
	}
	return t, err
}

// close lets what is being asked end with its answer, closes the connections and waits for that.
func (t *tenure) close() {
	t.giveUp()
	t.pool.Close()
}

// tracked is a connection that its tenure can close at any time.
type tracked struct {
	net.Conn
	tenure *tenure
}

func (c *tracked) Close() error {
	c.tenure.mu.Lock()
	delete(c.tenure.conns, c.Conn)
	c.tenure.mu.Unlock()
	return c.Conn.Close()
}

func (t *tenure) dialer(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		t.mu.Lock()
		defer t.mu.Unlock()
		if t.over {
			conn.Close()
			return nil, errOver
		}
		t.conns[conn] = struct{}{}
		return &tracked{conn, t}, nil
	}
}

// end closes every connection at once, also of questions that are being asked, and lets no other come. It does not wait for a
// server that does not answer.
func (t *tenure) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.over = true
	t.giveUp()
	for conn := range t.conns {
		conn.Close()
	}
}

func (t *tenure) isOver() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.over
}

// tend finds the side connections that the server has ended while nobody used them: the pool would notice when it hands one
// out, and by then the stale holder may have taken its place on the server.
func (s *Store) tend(ctx context.Context) {
	ticker := time.NewTicker(healthEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if t := s.tenure.Load(); t != nil {
			t.tend(ctx)
		}
	}
}

// tend closes the idle connections that give no answer within a second; the pool opens others.
func (t *tenure) tend(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for _, conn := range t.pool.AcquireAllIdle(ctx) {
		wg.Go(func() {
			if conn.Ping(ctx) != nil {
				_ = conn.Conn().Close(ctx) // it is of no use either way
			}
			conn.Release()
		})
	}
	wg.Wait()
}

// Follow moves the store to the server at host:port, or /folder/of/the/socket:port, in place of the one in its DSN: every
// side connection to another server is closed before the first to this one is opened, and what was being asked there is asked
// anew here. It does not wait for connections, and does nothing when the store is there already.
func (s *Store) Follow(server string) error {
	dsn, err := DSNOf(s.cfg.DSN, server)
	if err != nil {
		return err
	}
	config, err := poolConfig(dsn, s.cfg)
	if err != nil {
		return err
	}
	s.moving.Lock()
	defer s.moving.Unlock()
	before := s.tenure.Load()
	switch {
	case s.closed:
		return errClosed
	case before != nil && before.server == server:
		return nil
	case before != nil:
		before.end()
		s.background.Go(before.close)
	}
	next, err := newTenure(server, config)
	if err != nil {
		return fmt.Errorf("fence store: %w", err)
	}
	s.tenure.Store(next)
	return nil
}

// DSNOf is a connection string with the server, host:port or /folder/of/the/socket:port, in place of its own.
func DSNOf(dsn, server string) (string, error) {
	i := strings.LastIndexByte(server, ':')
	if i < 1 {
		return "", fmt.Errorf("%q is not host:port", server)
	}
	host, port := strings.Trim(server[:i], "[]"), server[i+1:]
	if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
		quote := strings.NewReplacer(`\`, `\\`, `'`, `\'`)
		return fmt.Sprintf("%s host='%s' port='%s'", dsn, quote.Replace(host), port), nil
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return "", errors.New("the connection string is not a URL") // the error would show the password
	}
	q := u.Query()
	q.Set("host", host)
	q.Set("port", port)
	u.Host, u.RawQuery = "", strings.ReplaceAll(q.Encode(), "+", "%20")
	return u.String(), nil
}

// OneServer reports an error when a connection string names several hosts: a connection to either could decide.
func OneServer(dsn string) error {
	config, err := pgconn.ParseConfig(dsn)
	if err != nil {
		return err // pgx hides the password
	}
	for _, other := range config.Fallbacks { // the same host again, without TLS, is none
		if other.Host != config.Host || other.Port != config.Port {
			return fmt.Errorf("several hosts (%s:%d, %s:%d): the side connections have to stand on one server",
				config.Host, config.Port, other.Host, other.Port)
		}
	}
	return nil
}
