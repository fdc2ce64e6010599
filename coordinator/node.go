package coordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/lychgate/lychgate/coordinator/internal/api"
	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/internal/peertls"
	"github.com/lychgate/lychgate/coordinator/ticket"
)

// Deps is what a Node may be given. The zero value of each field is replaced.
type Deps struct {
	Logger *slog.Logger // discards
	// Registry gets the node's metrics, and is served at /metrics. Each node needs one of its own.
	Registry *prometheus.Registry
	// GRPC and HTTP are listened on instead of the configured addresses. The node closes them.
	GRPC, HTTP net.Listener

	release uint32 // the newest cluster version that the node knows; 0: what the program does. Another one is for tests
}

// Node is one coordinator. Several may live in one process.
type Node struct {
	config  Config
	kind    peertls.Kind // what its certificate has to say that it is
	deps    Deps
	started atomic.Bool
	ready   chan struct{}
	grpc    atomic.Pointer[string]
	http    atomic.Pointer[string]

	security atomic.Pointer[secured] // once it is open
}

// New checks the configuration and does no I/O.
func New(config Config, deps Deps) (*Node, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	config = config.resolved()
	if err := config.lock().Validate(); err != nil {
		return nil, fmt.Errorf("lease: %w", err)
	}
	return newNode(peertls.Node, config, deps), nil
}

// newNode is anything that serves the API.
func newNode(kind peertls.Kind, config Config, deps Deps) *Node {
	return &Node{config: config, kind: kind, deps: deps.filled(config.Node), ready: make(chan struct{})}
}

// filled replaces what is not given.
func (d Deps) filled(node string) Deps {
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	d.Logger = d.Logger.With("node", node)
	if d.Registry == nil {
		d.Registry = prometheus.NewRegistry()
		d.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	}
	return d
}

// Ready is closed once the node can serve calls: it knows a leader and the cluster.
func (n *Node) Ready() <-chan struct{} { return n.ready }

// GRPCAddr is where the node serves gRPC: the configured address, and the bound one once Run listens.
func (n *Node) GRPCAddr() string { return bound(&n.grpc, n.config.Listen.GRPC) }

// HTTPAddr is the same for HTTP.
func (n *Node) HTTPAddr() string { return bound(&n.http, n.config.Listen.HTTP) }

// PeerAddr is where the node listens for other coordinators, as configured.
func (n *Node) PeerAddr() string { return n.config.Listen.Peer }

func bound(address *atomic.Pointer[string], configured string) string {
	if a := address.Load(); a != nil {
		return *a
	}
	return configured
}

// Run serves until ctx is done, and then stops in order: leadership is handed over, calls in progress are ended with an
// answer, the audit log is written out. It returns nil after such a stop, and otherwise why the node could not
// start or go on. It may be called once.
func (n *Node) Run(ctx context.Context) error {
	if n.started.Swap(true) {
		return errors.New("coordinator: Run was called before")
	}
	parts, err := n.open()
	if err != nil {
		return fmt.Errorf("coordinator %s: %w", n.config.Node, err)
	}
	if err := runParts(ctx, n.stopBound(), parts); err != nil {
		return fmt.Errorf("coordinator %s: %w", n.config.Node, err)
	}
	return nil
}

// stopBound is how long the node may take to stop. Handing leadership over takes its own time.
func (n *Node) stopBound() time.Duration { return stopBound + n.config.Timing.Failover() }

// open makes everything that a node consists of. What it returns runs in the order of starting, which is the reverse
// of the order of stopping.
func (n *Node) open() ([]part, error) {
	if err := os.MkdirAll(n.config.Dir, 0o700); err != nil {
		return nil, err
	}
	key, err := ticket.LoadOrCreateKey(n.config.Dir)
	if err != nil {
		return nil, err
	}
	signer, err := ticket.NewSigner(key)
	if err != nil {
		return nil, err
	}
	if err := group.CheckCount(n.config.Dir, n.config.Groups); err != nil {
		return nil, err
	}
	security, err := n.openSecurity()
	if err != nil {
		return nil, err
	}
	apiConfig := n.apiConfig(signer, api.NewMetrics(n.deps.Registry))
	apiConfig.Security = security.Security
	hosted, err := n.newGroups(signer, apiConfig, security)
	if err != nil {
		return nil, err
	}
	apiConfig.Keys = &ticketKeys{node: n.config.Node, dir: n.config.Dir, groups: hosted.groups}
	server, err := api.New(apiConfig, hosted.served()...)
	if err != nil {
		return nil, err
	}
	if err := hosted.port.Listen(); err != nil {
		return nil, err
	}
	ports, err := n.openPorts(server, security)
	if err != nil {
		return nil, errors.Join(err, hosted.port.Close())
	}
	parts := append(security.parts, hosted.parts()...)
	parts = append(parts,
		part{"api", func(ctx context.Context) error { server.Run(ctx); return nil }},
		part{"ready", func(ctx context.Context) error { return n.awaitReady(ctx, server) }},
		part{"deadlocks", func(ctx context.Context) error { server.FindDeadlocks(ctx); return nil }},
		part{"spread", func(ctx context.Context) error { server.Spread(ctx); return nil }})
	parts = append(parts, ports...)
	return append(parts, part{"calls", func(ctx context.Context) error {
		<-ctx.Done()
		hosted.handOver(n.config.Timing.Failover())
		server.Stop()
		return nil
	}}), nil
}

func (n *Node) awaitReady(ctx context.Context, server *api.Server) error {
	select {
	case <-server.FirstReady():
		n.deps.Logger.Info("ready", "grpc", n.GRPCAddr(), "http", n.HTTPAddr())
		close(n.ready)
		<-ctx.Done()
	case <-ctx.Done():
	}
	return nil
}

func (n *Node) apiConfig(signer *ticket.Signer, metrics *api.Metrics) api.Config {
	config := api.Config{
		Node:     n.config.Node,
		Patience: n.config.Timing.Call,
		Budget:   3 * n.config.Timing.Call,
		MaxCalls: n.config.Limits.Calls,
		Release:  n.deps.release,
		Steady:   10 * n.config.Timing.Heartbeat,
		Signer:   signer,
		Metrics:  metrics,
		Journal:  api.NewJournal(n.config.Groups, metrics),
		Logger:   n.deps.Logger,
	}
	for _, m := range n.config.Members {
		config.Members = append(config.Members, api.Member{ID: m.ID, Peer: m.Peer, GRPC: m.GRPC, HTTP: m.HTTP})
	}
	return config
}

// lock is the cluster's policy in the terms of the state machine.
func (c Config) lock() lock.Config {
	l := c.Lease
	return lock.Config{
		DefaultTTL: l.DefaultTTL, MinTTL: l.MinTTL, MaxTTL: l.MaxTTL, MaxWait: l.MaxWait,
		RetryWindow: l.RetryWindow, Grace: l.Grace, ClaimWindow: l.ClaimWindow, HeadStart: l.HeadStart,
		MaxWaiters: l.MaxWaiters, MaxRequests: l.MaxRequests, MaxExpiries: l.MaxExpiries,
		MaxTenantRequests: l.MaxTenantRequests,
	}
}
