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
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lychgate/lychgate/proxy/gate"
)

// Config is one listener in front of one database. Zero numbers and durations take the default named beside them.
type Config struct {
	Upstream string // the server: host:port, or /folder/of/the/socket:port; or several, separated by commas
	// Upstreams says which of several hosts is the server; nil: there is one host, and it is.
	Upstreams Upstreams
	Database  string // the one database that is served; empty: any, for tests of the relay alone
	Gate      *gate.Gate
	// Replication lets replication connections in: logical ones as any other session, physical ones only where they need not
	// be bound.
	Replication bool
	TLS         *tls.Config // for clients that ask for it; nil: plaintext only

	ProxyProtocol ProxyProtocol // of load balancers; zero: there is none, and every peer is a client

	UpstreamTLS UpstreamTLS // of the leg to the server
	Verifiers   *Verifiers  // the proxy authenticates clients, and logs in for them; nil: they do it with the server

	Name   string  // of this listener in Limits
	Limits *Limits // shared with other Servers; nil: its own, by MaxConnections alone
	Places Places  // nil: nobody

	MaxConnections int           // client sessions, and as many clients again that have not introduced themselves: 1,000
	HelloTimeout   time.Duration // from a client's connect to the end of its start-up message: 10 s
	StartupTimeout time.Duration // from there to its first ReadyForQuery, takeovers included: 60 s
	DialTimeout    time.Duration // of one connect to the server: 10 s
	DrainTimeout   time.Duration // from a stop to cutting what still runs: 30 s
	EndTimeout     time.Duration // for telling an ended client why, when it does not read: 2 s
	StuckCheck     time.Duration // between looks at whether a session whose client does not read has become stale: 2 s

	Console Console // serves the virtual database ConsoleDatabase; nil: there is none

	// EventLoops are the goroutines that carry the sessions without TLS, many each: one for each two processors. Below 0:
	// none, and such a session has two goroutines of its own, as one with TLS has and every one on systems without epoll.
	EventLoops int

	Logger *slog.Logger // nil: none
}

// Server serves one listener. Serve may be called once.
type Server struct {
	config Config
	log    *slog.Logger

	upstreams []upstream

	unbinding chan struct{} // one for each ended session that waits for its backend to be gone
	canceling chan struct{} // one for each cancel request of an ended session

	loops      *loops
	background sync.WaitGroup  // unbinding and canceling
	hard       context.Context // done when even the background has to end

	most atomic.Int64 // connections; see SetMaxConnections

	mu       sync.Mutex
	sessions map[*session]struct{}
	arriving []*session // those without a slot, in the order in which they came
}

// New checks the configuration and does no I/O.
func New(config Config) (*Server, error) {
	if config.Gate == nil {
		return nil, errors.New("postgres: gate is missing")
	}
	upstreams, err := parseUpstreams(config)
	if err != nil {
		return nil, err
	}
	setDefault(&config.MaxConnections, 1000)
	setDefault(&config.HelloTimeout, 10*time.Second)
	setDefault(&config.StartupTimeout, time.Minute)
	setDefault(&config.DialTimeout, 10*time.Second)
	setDefault(&config.DrainTimeout, 30*time.Second)
	setDefault(&config.EndTimeout, 2*time.Second)
	setDefault(&config.StuckCheck, 2*time.Second)
	setDefault(&config.EventLoops, max(1, runtime.GOMAXPROCS(0)/2))
	if config.Limits == nil {
		config.Limits = NewLimits(Caps{})
	}
	if config.Places == nil {
		config.Places = nobody{}
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	s := &Server{
		config: config, log: config.Logger,
		upstreams: upstreams,
		unbinding: make(chan struct{}, maxUnbinding),
		canceling: make(chan struct{}, config.MaxConnections),
		sessions:  map[*session]struct{}{},
	}
	s.SetMaxConnections(config.MaxConnections)
	return s, nil
}

// SetMaxConnections replaces Config.MaxConnections for clients that come from now on; who is there stays.
func (s *Server) SetMaxConnections(n int) { s.most.Store(int64(n)) }

func (s *Server) maxConnections() int { return int(s.most.Load()) }

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Serve accepts clients until ctx is done, then drains: idle sessions end at once, others when their transaction
// does, all within DrainTimeout. It closes l and blocks until every session has ended and is unbound, as far as
// that can be had within DrainTimeout. A stop by ctx is no error.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	hard, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	s.hard = hard
	s.loops = newLoops(s.config.EventLoops, s.log)
	defer s.loops.close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	var sessions, watch sync.WaitGroup
	watch.Go(func() { s.watchStuck(hard) })
	err := acceptEach(ctx, l, s.log, func(conn net.Conn) { s.admitConn(ctx, conn, &sessions) })
	l.Close()

	cut := time.AfterFunc(s.config.DrainTimeout, func() { s.each((*session).cut); stop() })
	s.each((*session).drain)
	sessions.Wait()
	s.background.Wait()
	cut.Stop()
	stop()
	watch.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// each calls do for every session.
func (s *Server) each(do func(*session)) {
	s.mu.Lock()
	all := make([]*session, 0, len(s.sessions))
	for one := range s.sessions {
		all = append(all, one)
	}
	s.mu.Unlock()
	for _, one := range all {
		do(one)
	}
}

// watchStuck looks after sessions whose client does not read: they cannot see that their backend was ended. Only
// the store can tell.
func (s *Server) watchStuck(ctx context.Context) {
	ticker := time.NewTicker(s.config.StuckCheck)
	defer ticker.Stop()
	seen := map[*session]uint32{}
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		now := map[*session]uint32{}
		s.each(func(one *session) {
			at, writing := one.writing()
			if !writing {
				return
			}
			now[one] = at
			if before, was := seen[one]; was && before == at {
				one.checkStale(ctx)
			}
		})
		seen = now
	}
}

func setKeepAlive(conn net.Conn) {
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetKeepAliveConfig(keepAlive) // a dead connection fails on read
	}
}

// ParseUpstream turns host:port, or /folder/of/the/socket:port, into what net.Dial takes.
func ParseUpstream(s string) (network, address string, err error) {
	bad := fmt.Errorf("%q is not host:port or /folder/of/the/socket:port", s)
	i := strings.LastIndexByte(s, ':')
	if i < 1 {
		return "", "", bad
	}
	if port, err := strconv.ParseUint(s[i+1:], 10, 16); err != nil || port == 0 {
		return "", "", bad
	}
	if s[0] == '/' {
		return "unix", s[:i] + "/.s.PGSQL." + s[i+1:], nil
	}
	if _, _, err := net.SplitHostPort(s); err != nil {
		return "", "", bad
	}
	return "tcp", s, nil
}
