// Package postgres relays PostgreSQL sessions and fences them: a client hands over its ticket, and before its first
// statement runs the session is bound, in the database itself, to the ticket's resource and token. From then on
// whoever shows a larger token ends it.
package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/lychgate/lychgate/proxy/gate"
)

// Config is one listener in front of one database. Zero numbers and durations take the default named beside them.
type Config struct {
	Upstream string // the server: host:port, or /folder/of/the/socket:port
	Database string // the one database that is served; empty: any, for tests of the relay alone
	Gate     *gate.Gate
	TLS      *tls.Config // for clients that ask for it; nil: plaintext only

	MaxConnections int           // client sessions: 1,000
	StartupTimeout time.Duration // from a client's connect to its first ReadyForQuery, takeovers included: 60 s
	DialTimeout    time.Duration // of one connect to the server: 10 s
	DrainTimeout   time.Duration // from a stop to cutting what still runs: 30 s
	EndTimeout     time.Duration // for telling an ended client why, when it does not read: 2 s

	Logger *slog.Logger // nil: none
}

// Server serves one listener.
type Server struct {
	config Config
	log    *slog.Logger
}

// New checks the configuration and does no I/O.
func New(config Config) (*Server, error) {
	if config.Gate == nil {
		return nil, errors.New("postgres: gate is missing")
	}
	if _, _, err := splitUpstream(config.Upstream); err != nil {
		return nil, fmt.Errorf("postgres: upstream: %w", err)
	}
	setDefault(&config.MaxConnections, 1000)
	setDefault(&config.StartupTimeout, time.Minute)
	setDefault(&config.DialTimeout, 10*time.Second)
	setDefault(&config.DrainTimeout, 30*time.Second)
	setDefault(&config.EndTimeout, 2*time.Second)
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{config: config, log: config.Logger}, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Serve accepts clients until ctx is done, then drains: idle sessions end at once, others when their transaction
// does, all within DrainTimeout. It closes l and blocks until every session has ended. A stop by ctx is no error.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	<-ctx.Done()
	return l.Close()
}

// splitUpstream turns an upstream into what net.Dial takes.
func splitUpstream(s string) (network, address string, err error) {
	if strings.HasPrefix(s, "/") {
		i := strings.LastIndexByte(s, ':')
		if i < 0 {
			return "", "", fmt.Errorf("%q has no port", s)
		}
		return "unix", s[:i] + "/.s.PGSQL." + s[i+1:], nil
	}
	if _, _, err := net.SplitHostPort(s); err != nil {
		return "", "", err
	}
	return "tcp", s, nil
}
