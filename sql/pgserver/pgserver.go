// Package pgserver runs a throw-away PostgreSQL from the binaries of the machine, for `lychgate dev`, the
// demo and every test that needs a real server. It is not for data that matters: the superuser "postgres"
// is trusted from the loopback, so everybody who can log in to the machine can do everything.
//
// The server belongs to the process that started it: it ends with Stop, and on Linux also when that process
// dies. As root it runs under the account postgres (else nobody), because PostgreSQL refuses root.
package pgserver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/lychgate/lychgate/sql/pgserver/freeport"
)

// Bounds of a stop: what is past them gets the next harder signal.
const (
	fastStop      = 20 * time.Second
	immediateStop = 10 * time.Second
)

// Config says what to run. The zero value is a server on a free port in a temporary folder.
type Config struct {
	Dir      string            // keeps the data between runs; empty: temporary, removed by Stop
	Port     int               // on 127.0.0.1; 0: a free one
	Settings map[string]string // postgresql.conf; overrides the defaults, ALTER SYSTEM overrides it
	HBA      []string          // lines of pg_hba.conf that come before trust for the loopback and the socket
	Log      io.Writer         // the server's log; nil: dropped, but its end is in the errors
}

// Server is one PostgreSQL cluster, running or crashed. Its methods are safe for concurrent use.
type Server struct {
	cfg     Config
	bin     string
	account account
	dir     string // data and lock live here
	socket  string
	port    int

	mu      sync.Mutex
	lock    *os.File
	process *process // nil: not running
	closed  bool
}

// Start makes the cluster if the folder is empty, starts it and returns when it accepts connections. What an
// earlier process left running on the folder is ended first; a folder that a living process uses is refused.
// ctx bounds the start only.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	bin, err := Binaries()
	if err != nil {
		return nil, err
	}
	acc, err := currentAccount()
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, bin: bin, account: acc, port: cfg.Port}
	if err := s.open(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start PostgreSQL: %w", err), s.Stop())
	}
	return s, nil
}

func (s *Server) open(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.folders(); err != nil {
		return err
	}
	if err := endLeftover(ctx, s.data()); err != nil {
		return err
	}
	if err := s.initdb(ctx); err != nil {
		return err
	}
	if err := s.account.canEnter(s.data()); err != nil {
		return err
	}
	return s.startOnFreePort(ctx)
}

// folders makes the server's folders and locks them against a second process.
func (s *Server) folders() error {
	var err error
	if s.dir = s.cfg.Dir; s.dir == "" {
		s.dir, err = os.MkdirTemp("", "lychgate-pg-")
	} else if s.dir, err = filepath.Abs(s.dir); err == nil {
		err = os.MkdirAll(s.dir, 0o755)
	}
	if err != nil {
		return err
	}
	if s.lock, err = lockFile(filepath.Join(s.dir, "lychgate.lock")); err != nil {
		return err
	}
	return s.socketFolder()
}

// socketFolder stands beside the data, unless its name is too long: a socket's path has room for about 100 bytes.
func (s *Server) socketFolder() error {
	s.socket = filepath.Join(s.dir, "socket")
	err := os.MkdirAll(s.socket, 0o755)
	if len(s.socket) > 80 {
		s.socket, err = os.MkdirTemp("/tmp", "lgpg-")
	}
	if err != nil {
		return err
	}
	if err := s.account.own(s.socket); err != nil {
		return err
	}
	return s.account.canEnter(s.socket)
}

func (s *Server) data() string { return filepath.Join(s.dir, "data") }

// startOnFreePort tries again on another port when somebody took the free one in between.
func (s *Server) startOnFreePort(ctx context.Context) error {
	for attempt := 1; ; attempt++ {
		if s.cfg.Port == 0 {
			port, err := freeport.Port()
			if err != nil {
				return err
			}
			s.port = port
		}
		err := s.launch(ctx)
		if !errors.Is(err, errPortTaken) || s.cfg.Port != 0 || attempt == 5 {
			return err
		}
	}
}

// launch starts the server process and waits until it is ready. The caller holds mu.
func (s *Server) launch(ctx context.Context) error {
	if err := s.writeSettings(); err != nil {
		return err
	}
	p, err := startProcess(s.bin, s.data(), s.account, s.cfg.Log)
	if err != nil {
		return err
	}
	if err := p.awaitReady(ctx, s.data()); err != nil {
		return errors.Join(err, p.end(syscall.SIGQUIT))
	}
	s.process = p
	return nil
}

// Stop ends the server, waits for it, and removes what is temporary. It is idempotent.
func (s *Server) Stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	err := s.halt(syscall.SIGINT)
	if s.socket != "" { // the name may be a temporary one of its own
		err = errors.Join(err, os.RemoveAll(s.socket))
	}
	if s.cfg.Dir == "" && s.dir != "" {
		err = errors.Join(err, os.RemoveAll(s.dir))
	}
	if s.lock != nil {
		_ = s.lock.Close() // nothing was written to it
	}
	return err
}

// Crash ends the server as a power cut would end its processes: nothing is flushed, nothing is said good-bye
// to, the data stays for Restart.
func (s *Server) Crash() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.halt(syscall.SIGQUIT)
}

// Restart stops the server if it runs and starts it again on the same port and data.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("restart PostgreSQL: it was stopped for good")
	}
	if err := s.halt(syscall.SIGINT); err != nil {
		return err
	}
	return s.launch(ctx)
}

func (s *Server) halt(sig syscall.Signal) error {
	if s.process == nil {
		return nil
	}
	err := s.process.end(sig)
	s.process = nil
	return err
}

// DSN is a connection URL over TCP.
func (s *Server) DSN(user, database string) string {
	u := url.URL{
		Scheme: "postgres", User: url.User(user), Host: s.Host() + ":" + strconv.Itoa(s.Port()),
		Path: "/" + database, RawQuery: "sslmode=disable",
	}
	return u.String()
}

// Host is the address that the server listens on.
func (s *Server) Host() string { return "127.0.0.1" }

// Port is the TCP port; it stays the same over Crash and Restart.
func (s *Server) Port() int { return s.port }

// SocketDir is the folder of the server's unix socket.
func (s *Server) SocketDir() string { return s.socket }

// Dir is the folder that holds the server's data.
func (s *Server) Dir() string { return s.dir }

// Own gives a file to the server's account, for instance a private key named by ssl_key_file.
func (s *Server) Own(path string) error { return s.account.own(path) }

// Credential is the account that the server runs under, for programs that have to stand beside it; nil: the calling user.
func (s *Server) Credential() *syscall.Credential { return s.account.credential() }
