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

// nodes is a grpc.ClientConnInterface over several addresses. Each call is one attempt at the address in
// use; when it fails in a way that another node might not, later calls go to the next address.
// Every error is an *Error.
type nodes struct {
	addrs []string
	conns []*grpc.ClientConn // one for each address

	mu  sync.Mutex
	use int // index of the address in use
}

func newNodes(c Config) (*nodes, error) {
	n := &nodes{addrs: c.Addrs}
	for _, addr := range c.Addrs {
		conn, err := grpc.NewClient("passthrough:///"+addr, dialOptions(c)...)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("client: address %q: %w", addr, err), n.Close())
		}
		n.conns = append(n.conns, conn)
	}
	return n, nil
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
	if c.Dialer != nil {
		opts = append(opts, grpc.WithContextDialer(c.Dialer))
	}
	return append(opts, c.DialOptions...)
}

// Invoke makes one attempt at a unary call.
func (n *nodes) Invoke(ctx context.Context, method string, args, reply any, opts ...grpc.CallOption) error {
	i, conn := n.current()
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
	if errors.Is(e, ErrNotCoordinator) {
		e.Err = fmt.Errorf("%s is %w", n.addrs[i], e.Err)
		e.final = len(n.addrs) == 1
	}
	if e.elsewhere() {
		n.failed(i)
	}
	return e
}

// NewStream opens a stream at the address in use; its errors are gRPC's.
func (n *nodes) NewStream(ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	_, conn := n.current()
	return conn.NewStream(ctx, desc, method, opts...)
}

func (n *nodes) current() (int, *grpc.ClientConn) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.use, n.conns[n.use]
}

// failed moves on from address i, once for all the calls that failed there together.
func (n *nodes) failed(i int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.use == i {
		n.use = (i + 1) % len(n.conns)
	}
}

// Close closes every connection.
func (n *nodes) Close() error {
	var errs []error
	for _, conn := range n.conns {
		errs = append(errs, conn.Close())
	}
	return errors.Join(errs...)
}
