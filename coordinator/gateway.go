package coordinator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/api"
	"github.com/lychgate/lychgate/coordinator/internal/peertls"
)

// GatewayConfig is what a gateway is made from; the koanf tags are its keys in YAML. DefaultGatewayConfig fills in
// everything but Coordinators and Listen.
type GatewayConfig struct {
	Node         string        `koanf:"node"`         // own name, in logs and in the certificate
	Coordinators []string      `koanf:"coordinators"` // gRPC addresses of some nodes; the others are learned from them
	Listen       GatewayListen `koanf:"listen"`
	Call         time.Duration `koanf:"call"` // how long a call looks for a leader before it is refused with NO_LEADER
	Limits       Limits        `koanf:"limits"`
	Log          Log           `koanf:"log"`

	TLS      *TLS    `koanf:"tls"`
	Access   *Access `koanf:"access"`
	Insecure bool    `koanf:"insecure"`
}

// GatewayListen says where a gateway listens.
type GatewayListen struct {
	GRPC string `koanf:"grpc"`
	HTTP string `koanf:"http"`
}

// DefaultGatewayConfig is a GatewayConfig whose Coordinators and Listen are still to be filled in.
func DefaultGatewayConfig() GatewayConfig {
	c := DefaultConfig()
	return GatewayConfig{Node: "gateway", Call: c.Timing.Call, Limits: c.Limits, Log: c.Log}
}

// Validate reports everything that is wrong with c, each as a *FieldError (errors.Join). It does no I/O.
func (c GatewayConfig) Validate() error {
	var f faults
	if c.Node == "" {
		f.add("node", "is missing")
	}
	if len(c.Coordinators) == 0 {
		f.add("coordinators", "is empty: it takes the gRPC addresses of the nodes")
	}
	for i, address := range c.Coordinators {
		if reason := addressFault(address); reason != "" {
			f.add(fmt.Sprintf("coordinators[%d]", i), "%s", reason)
		}
	}
	for field, address := range map[string]string{"listen.grpc": c.Listen.GRPC, "listen.http": c.Listen.HTTP} {
		if reason := addressFault(address); reason != "" {
			f.add(field, "%s", reason)
		}
	}
	positive(&f, map[string]time.Duration{"call": c.Call})
	counts(&f, map[string]int64{"limits.connections": int64(c.Limits.Connections), "limits.calls": int64(c.Limits.Calls)})
	validateLog(&f, c.Log)
	c.shell().validateSecurity(&f)
	slices.SortStableFunc(f, func(a, b *FieldError) int { return strings.Compare(a.Field, b.Field) })
	return f.joined()
}

// Warnings says what about a valid configuration is probably not meant.
func (c GatewayConfig) Warnings() []string { return c.shell().Warnings() }

// shell is what a gateway has in common with a node.
func (c GatewayConfig) shell() Config {
	return Config{
		Node: c.Node, Listen: Listen{GRPC: c.Listen.GRPC, HTTP: c.Listen.HTTP}, Limits: c.Limits, Log: c.Log,
		TLS: c.TLS, Access: c.Access, Insecure: c.Insecure,
	}
}

// Gateway serves the whole API and holds nothing: every call goes on to the leader of its group. Any number may stand side
// by side.
type Gateway struct {
	config GatewayConfig
	node   *Node
}

// NewGateway checks the configuration and does no I/O.
func NewGateway(config GatewayConfig, deps Deps) (*Gateway, error) {
	if err := config.Validate(); err != nil {
		return nil, err
	}
	return &Gateway{config: config, node: newNode(peertls.Gateway, config.shell(), deps)}, nil
}

// Ready is closed once the gateway can serve calls: it knows the cluster, and a leader of each group.
func (g *Gateway) Ready() <-chan struct{} { return g.node.Ready() }

// GRPCAddr is where the gateway serves gRPC: the configured address, and the bound one once it listens.
func (g *Gateway) GRPCAddr() string { return g.node.GRPCAddr() }

// HTTPAddr is the same for HTTP.
func (g *Gateway) HTTPAddr() string { return g.node.HTTPAddr() }

// Run serves until ctx is done; then calls in progress are ended with an answer. It returns nil after such a stop, and
// otherwise why the gateway could not start or go on. While no coordinator answers it waits, and /readyz says so. It may
// be called once.
func (g *Gateway) Run(ctx context.Context) error {
	n := g.node
	if n.started.Swap(true) {
		return errors.New("coordinator: Run was called before")
	}
	parts, err := g.open()
	if err == nil {
		err = runParts(ctx, 2*stopBound, parts)
	}
	if err != nil {
		return fmt.Errorf("gateway %s: %w", n.config.Node, err)
	}
	return nil
}

func (g *Gateway) open() ([]part, error) {
	n := g.node
	security, err := n.openSecurity()
	if err != nil {
		return nil, err
	}
	remote, err := api.NewRemote(api.RemoteConfig{Coordinators: g.config.Coordinators, Security: security.Security, Logger: n.deps.Logger})
	if err != nil {
		return nil, err
	}
	httpListener, err := n.listen("HTTP", n.config.Listen.HTTP, n.deps.HTTP)
	if err != nil {
		return nil, err
	}
	address := httpListener.Addr().String()
	n.http.Store(&address)
	door := &door{remote: remote}
	return append(slices.Clone(security.parts),
		part{"cluster", remote.Run},
		part{"HTTP", func(ctx context.Context) error {
			return serveHTTP(ctx, api.NewHTTPServer(door, n.deps.Logger), security.overTLS(httpListener))
		}},
		part{"calls", func(ctx context.Context) error { return g.serve(ctx, remote, security, door) }},
	), nil
}

// serve begins once the cluster is known: with how many groups there are, and who the nodes are.
func (g *Gateway) serve(ctx context.Context, remote *api.Remote, security *secured, door *door) error {
	select {
	case <-remote.Found():
	case <-ctx.Done():
		return nil
	}
	server, err := g.server(remote, security)
	if err != nil {
		return err
	}
	n := g.node
	handler, err := server.Handler(n.deps.Registry)
	if err != nil {
		return err
	}
	listener, err := n.listen("gRPC", n.config.Listen.GRPC, n.deps.GRPC)
	if err != nil {
		return err
	}
	address := listener.Addr().String()
	n.grpc.Store(&address)
	door.open(handler)
	return runParts(ctx, stopBound, []part{
		{"api", func(ctx context.Context) error { server.Run(ctx); return nil }},
		{"ready", func(ctx context.Context) error { return n.awaitReady(ctx, server) }},
		{"gRPC", func(ctx context.Context) error { return serveGRPC(ctx, server, listener) }},
		{"calls", func(ctx context.Context) error {
			<-ctx.Done()
			server.Stop()
			return nil
		}},
	})
}

func (g *Gateway) server(remote *api.Remote, security *secured) (*api.Server, error) {
	server, err := api.New(api.Config{
		Node:     g.config.Node,
		Members:  remote.Members(),
		Patience: g.config.Call,
		Budget:   3 * g.config.Call,
		MaxCalls: g.config.Limits.Calls,
		Metrics:  api.NewMetrics(g.node.deps.Registry),
		Logger:   g.node.deps.Logger,
		Security: security.Security,
	}, remote.Groups()...)
	if err != nil {
		return nil, err
	}
	remote.Follow(server.SetMembers)
	return server, nil
}

// door is the HTTP port of a gateway that may not know the cluster yet.
type door struct {
	remote *api.Remote
	behind atomic.Pointer[http.Handler]
}

func (d *door) open(handler http.Handler) { d.behind.Store(&handler) }

// ServeHTTP implements http.Handler.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if handler := d.behind.Load(); handler != nil {
		(*handler).ServeHTTP(w, r)
		return
	}
	if r.URL.Path == "/livez" {
		_, _ = fmt.Fprintln(w, "alive") // a client that is gone needs no answer
		return
	}
	api.RefuseNoLeader(w, d.remote.Fault())
}
