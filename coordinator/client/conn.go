package client

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
)

// A node that stopped answering without closing its connection is noticed by a ping: pingAfter of silence
// while a call is open, and pingTimeout for the answer.
const (
	pingAfter   = 10 * time.Second // the least that grpc-go's client allows
	pingTimeout = 5 * time.Second
)

// nodes are the coordinators that a client knows: those of its configuration, and the leaders of which a session has told
// it. It is a grpc.ClientConnInterface: each call is one attempt at the configured address in use; when it fails in a way
// that another node might not, later calls go to the next address. Every error is an *Error.
type nodes struct {
	cfg   Config
	addrs []string
	work  sync.WaitGroup // sessions

	closing context.Context // ends when the client begins to close, which the sessions outlive

	mu       sync.Mutex
	conns    map[string]*grpc.ClientConn // by address; those of the configuration from the start
	use      int                         // index of the address in use
	sessions map[string]*session         // by address
	leaders  []string                    // their addresses, by group; empty before a session or a status has told
	avoid    map[string]time.Duration    // addresses whose last session or call failed, until then on the client's clock
	plain    map[string]time.Duration    // addresses without sessions, likewise

	distrusted map[string]struct{} // addresses whose last handshake failed
	closed     bool
}

func newNodes(closing context.Context, c Config) (*nodes, error) {
	n := &nodes{
		closing: closing, cfg: c, addrs: c.Addrs, conns: make(map[string]*grpc.ClientConn), sessions: make(map[string]*session),
		avoid: make(map[string]time.Duration), plain: make(map[string]time.Duration),
	}
	for _, addr := range c.Addrs {
		if _, err := n.connect(addr); err != nil {
			return nil, errors.Join(err, n.Close())
		}
	}
	return n, nil
}

// connect returns the connection to an address, made if need be. The caller holds mu, or nobody else has n.
func (n *nodes) connect(addr string) (*grpc.ClientConn, error) {
	if conn := n.conns[addr]; conn != nil {
		return conn, nil
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, dialOptions(n.cfg)...)
	if err != nil {
		return nil, fmt.Errorf("client: address %q: %w", addr, err)
	}
	n.conns[addr] = conn
	return conn, nil
}

func dialOptions(c Config) []grpc.DialOption {
	creds := insecure.NewCredentials()
	if c.TLS != nil {
		creds = credentials.NewTLS(c.TLS)
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithNoProxy(), // a web proxy from the environment has no business here
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(), // retries are this package's: each has its own send instant
		grpc.WithStatsHandler(sentHandler{}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingAfter, Timeout: pingTimeout}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 2 * time.Second,
		}),
	}
	if c.Token != nil {
		opts = append(opts, grpc.WithPerRPCCredentials(bearer{c.Token, c.TLS != nil}))
	}
	if c.Dialer != nil {
		opts = append(opts, grpc.WithContextDialer(c.Dialer))
	}
	return append(opts, c.DialOptions...)
}

// Invoke makes one attempt at a unary call.
func (n *nodes) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	addr, conn := n.current()
	marked, sent := markSent(ctx)
	err := conn.Invoke(marked, method, args, reply, opts...)
	if err == nil {
		return nil
	}
	resource := ""
	if named, ok := args.(interface{ GetResource() string }); ok {
		resource = named.GetResource()
	}
	e := newError(ctx, strings.ToLower(path.Base(method)), resource, err, sent.Load())
	n.judge(addr, e)
	return e
}

// judge draws the conclusions from a failed call: a node that could not serve it is not asked for a while.
func (n *nodes) judge(addr string, e *Error) {
	if errors.Is(e, ErrNotCoordinator) {
		e.Err = fmt.Errorf("%s is %w", addr, e.Err)
		e.final = len(n.addrs) == 1
	}
	switch {
	case errors.Is(e, ErrUntrusted):
		e.final = n.distrust(addr)
	case !e.unreachable():
		n.trust(addr)
	}
	if e.elsewhere() {
		n.failed(addr)
	}
}

// NewStream opens a stream at the address in use; its errors are gRPC's.
func (n *nodes) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	_, conn := n.current()
	return conn.NewStream(ctx, desc, method, opts...)
}

func (n *nodes) current() (addr string, conn *grpc.ClientConn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	addr = n.addrs[n.use]
	return addr, n.conns[addr]
}

// failed moves on from an address, once for all the calls that failed there together.
func (n *nodes) failed(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.addrs[n.use] == addr {
		n.use = (n.use + 1) % len(n.addrs)
	}
	n.avoid[addr] = n.cfg.Clock.Now() + avoidFor
}

// Close ends the sessions and closes every connection.
func (n *nodes) Close() error {
	n.mu.Lock()
	n.closed = true
	for _, s := range n.sessions {
		s.end()
	}
	n.mu.Unlock()
	n.work.Wait()
	var errs []error
	for _, conn := range n.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}
