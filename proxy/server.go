package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/lychgate/lychgate/adapters/postgres"
	"github.com/lychgate/lychgate/coordinator/ticket"
	"github.com/lychgate/lychgate/proxy/admin"
	"github.com/lychgate/lychgate/proxy/gate"
	"github.com/lychgate/lychgate/proxy/watch"
)

// Deps is what a Server is given. Zero fields take a default.
type Deps struct {
	Logger   *slog.Logger         // default: none
	Registry *prometheus.Registry // default: one of its own
	// Load reads the configuration anew, for Reload; nil: there is none to read. Level takes its log level.
	Load  func() (Config, error)
	Level *slog.LevelVar
}

// Server is one proxy.
type Server struct {
	config    Config
	logger    *slog.Logger
	registry  *prometheus.Registry
	metrics   *admin.Metrics
	keys      *ticket.Remote
	limits    *postgres.Limits
	listeners []*listener
	readiness *readiness
	known     *watch.Known // nil without a watch
	watch     *watch.Watch // nil without one
	folding   *folding     // nil: never
	admin     net.Listener
	bound     chan struct{} // closed when every address is listened on
	console   *admin.Console
	numbers   atomic.Uint64 // of bound connections
	stopOnce  sync.Once
	load      func() (Config, error)
	level     *slog.LevelVar // nil: it does not change
	reloading sync.Mutex
	applied   Config        // guarded by reloading: what the latest reload left
	stopping  chan struct{} // closed by Drain
}

// New checks the configuration and puts the proxy together. It reads certificates and their CAs; apart from
// that it does no I/O. A Server that is never run has to be closed.
func New(config Config, deps Deps) (*Server, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	if deps.Logger == nil {
		deps.Logger = slog.New(slog.DiscardHandler)
	}
	if deps.Registry == nil {
		deps.Registry = prometheus.NewRegistry()
	}
	web, err := config.CoordinatorTLS.client()
	if err != nil {
		return nil, err
	}
	keys, err := ticket.NewRemote(ticket.RemoteConfig{URLs: config.Coordinators, Cluster: config.Cluster, Client: web})
	if err != nil {
		return nil, err
	}
	s := &Server{
		config: config, logger: deps.Logger.With("node", config.Node), registry: deps.Registry,
		metrics: admin.NewMetrics(deps.Registry), keys: keys, bound: make(chan struct{}), stopping: make(chan struct{}),
		load: deps.Load, level: deps.Level, applied: config, limits: postgres.NewLimits(config.Limits.caps()),
	}
	s.console = admin.NewConsole(s, s.logger)
	s.console.SetUsers(config.Console.users())
	source, err := config.source(s.logger)
	if err != nil {
		return nil, err
	}
	if source != nil {
		s.known = watch.NewKnown(watch.DefaultKnown, keys.Cluster)
	}
	for i, p := range config.Postgres {
		l, err := newPostgres(fmt.Sprintf("postgres[%d]", i), p, s)
		if err != nil {
			s.Close()
			return nil, err
		}
		s.listeners = append(s.listeners, l)
	}
	s.readiness = newReadiness(keys, s.checkedStores(), s.logger)
	if source != nil {
		s.watch = s.newWatch(source)
		s.folding = s.newFolding(source)
	}
	return s, nil
}

func (s *Server) newWatch(source watch.Source) *watch.Watch {
	config := watch.Config{Source: source, Cluster: s.keys.Cluster, Known: s.known, Observer: s.metrics, Logger: s.logger}
	for _, l := range s.listeners {
		config.Listeners = append(config.Listeners, l.watched)
	}
	return watch.New(config)
}

func (s *Server) newFolding(source *watch.Coordinators) *folding {
	if s.config.Watch.FoldEvery == 0 {
		return nil
	}
	f := &folding{every: s.config.Watch.FoldEvery, cluster: s.keys.Cluster, smallest: source.SmallestLive, logger: s.logger}
	for _, l := range s.listeners {
		if store, ok := l.store.(folder); ok {
			f.stores = append(f.stores, store)
		}
	}
	return f
}

func (s *Server) checkedStores() []checked {
	var out []checked
	for i, l := range s.listeners {
		out = append(out, checked{
			field: l.field, role: s.config.Postgres[i].role(), check: l.store.Check,
			set: func(ready bool) { s.metrics.StoreReady(l.adapter, l.address, ready) },
		})
	}
	return out
}

// Close frees what New has made. It is idempotent; Run does it itself.
func (s *Server) Close() {
	for _, l := range s.listeners {
		l.store.Close()
	}
	s.keys.Close()
}

// Bound is closed when every address is listened on; from then on AdminAddr and PostgresAddrs may be asked.
func (s *Server) Bound() <-chan struct{} { return s.bound }

// AdminAddr is where the admin side listens.
func (s *Server) AdminAddr() net.Addr { return s.admin.Addr() }

// PostgresAddrs are where the listeners listen, in the order of the configuration.
func (s *Server) PostgresAddrs() []net.Addr {
	var out []net.Addr
	for _, l := range s.listeners {
		out = append(out, l.addr())
	}
	return out
}

// Problems lists why the proxy should get no new connections now, one sentence each; empty: none.
func (s *Server) Problems() []string {
	problems := s.readiness.problems()
	for _, l := range s.listeners {
		if problem := l.hosts.problem(); problem != "" {
			problems = append(problems, problem)
		}
	}
	return problems
}

// Degraded lists what does not work although the proxy is ready, one sentence each; empty: nothing.
func (s *Server) Degraded() []string {
	if s.watch == nil {
		return nil
	}
	if err := s.watch.Problem(); err != nil {
		return []string{fmt.Sprintf("the coordinator is not watched: floors rise at a new holder's first contact only: %v", err)}
	}
	return nil
}

// Bindings lists the live bindings of all listeners.
func (s *Server) Bindings() []gate.BindingView {
	var out []gate.BindingView
	for _, l := range s.listeners {
		out = append(out, l.gate.Bindings()...)
	}
	return out
}

// Run listens and serves until ctx is done, then drains: no new connections, open transactions may end for
// DrainTimeout, the rest is cut. It returns when everything it started has ended: nil after a planned stop, an
// error when an address cannot be had or a listener broke. It may be called once.
//
// It serves also while a store or all coordinators are down: Problems says so, and each connection gets its refusal.
func (s *Server) Run(ctx context.Context) error {
	defer s.Close()
	if err := s.open(); err != nil {
		return err
	}
	close(s.bound)
	s.logger.Info("proxy started", "admin", s.admin.Addr().String(), "coordinators", s.config.Coordinators)
	for _, w := range s.config.Warnings() {
		s.logger.Warn("configuration", "doubt", w)
	}
	for _, l := range s.listeners {
		l.announce()
	}
	// The admin side and the checks outlive the drain, so that it can be watched.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	serving, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var others errgroup.Group
	others.Go(func() error { s.awaitDrain(serving, giveUp); return nil })
	others.Go(func() error { s.readiness.run(background); return nil })
	others.Go(func() error { defer giveUp(); return s.serveAdmin(background) })
	for _, l := range s.listeners {
		if l.hosts != nil {
			others.Go(func() error { l.hosts.run(background); return nil })
		}
	}
	if s.watch != nil {
		others.Go(func() error { s.watch.Run(background); return nil })
	}
	if s.folding != nil {
		others.Go(func() error { s.folding.run(background); return nil })
	}
	err := s.serve(serving)
	stop()
	return errors.Join(err, others.Wait())
}

// open listens on every address, or on none.
func (s *Server) open() (err error) {
	if s.admin, err = listenAt(s.config.Admin, s.config.ReusePort); err != nil {
		return fmt.Errorf("admin: %w", err)
	}
	for i, l := range s.listeners {
		if err := l.open(s.config.ReusePort); err != nil {
			_ = s.admin.Close()
			for _, opened := range s.listeners[:i] {
				_ = opened.listen.Close()
			}
			return err
		}
	}
	return nil
}

// serve runs the listeners until ctx is done or one breaks, then drains all.
func (s *Server) serve(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	serving, shut := context.WithCancel(context.WithoutCancel(ctx))
	defer shut()
	for _, l := range s.listeners {
		group.Go(func() error { return l.serve(serving) })
	}
	group.Go(func() error {
		<-ctx.Done()
		s.readiness.drain()
		s.logger.Info("draining", "timeout", s.config.DrainTimeout, "bindings", len(s.Bindings()))
		s.giveWay()
		shut()
		return nil
	})
	err := group.Wait()
	s.logger.Info("proxy stopped")
	return err
}

// giveWay leaves new connections to the next process, if there is one, and takes those that had begun.
func (s *Server) giveWay() {
	if !s.config.ReusePort {
		return
	}
	for _, l := range s.listeners {
		if err := steerAway(l.listen); err != nil {
			s.logger.Warn("the kernel does not steer connections to the next process: those of the last instant may be reset", "listener", l.address, "error", err)
		}
	}
	time.Sleep(handOver)
}

// Bounds of the admin side's connections.
const (
	adminHeaderTimeout = 5 * time.Second
	adminIdleTimeout   = time.Minute
	adminStopTimeout   = 2 * time.Second
)

// serveAdmin serves the admin side until ctx is done.
func (s *Server) serveAdmin(ctx context.Context) error {
	web := &http.Server{
		Handler:           admin.Handler(s, s.registry),
		ReadHeaderTimeout: adminHeaderTimeout,
		ReadTimeout:       adminHeaderTimeout,
		IdleTimeout:       adminIdleTimeout,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(s.logger.Handler(), slog.LevelDebug),
	}
	done := make(chan error, 1)
	go func() { done <- web.Serve(s.admin) }()
	select {
	case err := <-done:
		return fmt.Errorf("admin: %w", err)
	case <-ctx.Done():
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), adminStopTimeout)
	defer cancel()
	if err := web.Shutdown(stop); err != nil {
		_ = web.Close() // what is left is a client that does not read
	}
	if err := <-done; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin: %w", err)
	}
	return nil
}
