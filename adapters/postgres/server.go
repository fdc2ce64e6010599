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
	"strconv"
	"strings"
	"sync"
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
	StuckCheck     time.Duration // between looks at whether a session whose client does not read has become stale: 2 s

	Logger *slog.Logger // nil: none
}

// maxRefusing bounds the clients that are over the limit and are being told so.
const maxRefusing = 64

// Server serves one listener. Serve may be called once.
type Server struct {
	config Config
	log    *slog.Logger

	slots      chan struct{}   // one for each session
	refusing   chan struct{}   // one for each client that is over the limit
	background sync.WaitGroup  // unbinding and cancel requests of sessions that have ended
	hard       context.Context // done when even the background has to end

	mu       sync.Mutex
	sessions map[*session]struct{}
}

// New checks the configuration and does no I/O.
func New(config Config) (*Server, error) {
	if config.Gate == nil {
		return nil, errors.New("postgres: gate is missing")
	}
	if _, _, err := ParseUpstream(config.Upstream); err != nil {
		return nil, fmt.Errorf("postgres: upstream: %w", err)
	}
	setDefault(&config.MaxConnections, 1000)
	setDefault(&config.StartupTimeout, time.Minute)
	setDefault(&config.DialTimeout, 10*time.Second)
	setDefault(&config.DrainTimeout, 30*time.Second)
	setDefault(&config.EndTimeout, 2*time.Second)
	setDefault(&config.StuckCheck, 2*time.Second)
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	return &Server{
		config: config, log: config.Logger,
		slots: make(chan struct{}, config.MaxConnections), refusing: make(chan struct{}, maxRefusing),
		sessions: map[*session]struct{}{},
	}, nil
}

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
	defer context.AfterFunc(ctx, func() { l.Close() })()
	var sessions, watch sync.WaitGroup
	watch.Go(func() { s.watchStuck(hard) })
	err := s.accept(ctx, l, &sessions)
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

// accept runs until the listener is closed. Errors that pass, such as no more file descriptors, slow it down.
func (s *Server) accept(ctx context.Context, l net.Listener, sessions *sync.WaitGroup) error {
	for pause := time.Duration(0); ; {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				conn.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("postgres: accept: %w", err)
		case err != nil:
			s.log.Warn("accept", "cause", err.Error())
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(pause):
			case <-ctx.Done():
			}
			continue
		}
		pause = 0
		s.admitConn(ctx, conn, sessions)
	}
}

// admitConn gives a client its slot. One that is over the limit is told so if there is room even for that.
func (s *Server) admitConn(ctx context.Context, conn net.Conn, sessions *sync.WaitGroup) {
	setKeepAlive(conn)
	slots, refusing := s.slots, false
	select {
	case s.slots <- struct{}{}:
	default:
		refusing, slots = true, s.refusing
		select {
		case s.refusing <- struct{}{}:
		default:
			conn.Close()
			return
		}
	}
	one := &session{server: s, client: conn, refusing: refusing, log: s.log.With("client", conn.RemoteAddr().String())}
	s.mu.Lock()
	s.sessions[one] = struct{}{}
	s.mu.Unlock()
	sessions.Go(func() {
		defer func() { <-slots }()
		defer s.forget(one)
		one.run(ctx)
	})
}

func (s *Server) forget(one *session) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.sessions, one)
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

// unbindLater waits in the background until a session's backend is gone, and unbinds it. It ends with Serve.
func (s *Server) unbindLater(member *gate.Session, log *slog.Logger) {
	s.background.Go(func() {
		if err := member.Close(s.hard); err != nil {
			log.Warn("binding left to the next takeover", "cause", err.Error())
		}
	})
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
