package api

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/stats"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// peers keeps one connection to each other node, made when it is first needed.
type peers struct {
	secure dialSecurity

	mu        sync.Mutex
	addresses map[string]string // node id to gRPC address
	conns     map[string]*grpc.ClientConn
	closed    bool
}

func newPeers(members []Member, secure dialSecurity) *peers {
	p := &peers{secure: secure, addresses: map[string]string{}, conns: map[string]*grpc.ClientConn{}}
	p.learn(members...)
	return p
}

// address is where a node serves gRPC; empty for one that is not known.
func (p *peers) address(node string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addresses[node]
}

// learn takes addresses of nodes, new ones and changed ones. Calls on a connection to an old address end.
func (p *peers) learn(members ...Member) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range members {
		if conn := p.conns[m.ID]; conn != nil && p.addresses[m.ID] != m.GRPC {
			delete(p.conns, m.ID)
			_ = conn.Close() // its node is not there any more
		}
		p.addresses[m.ID] = m.GRPC
	}
}

func (p *peers) client(node string) (lockpb.LocksClient, error) {
	conn, err := p.conn(node)
	if err != nil {
		return nil, err
	}
	return lockpb.NewLocksClient(conn), nil
}

func (p *peers) conn(node string) (*grpc.ClientConn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return nil, errors.New("forward: the node is stopping")
	}
	if conn := p.conns[node]; conn != nil {
		return conn, nil
	}
	address, ok := p.addresses[node]
	if !ok {
		return nil, fmt.Errorf("forward: no address of node %q", node)
	}
	conn, err := grpc.NewClient(address,
		grpc.WithTransportCredentials(p.secure(node)),
		grpc.WithStatsHandler(sentHandler{}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxResponse)),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 10 * time.Second, Timeout: 3 * time.Second}),
		grpc.WithConnectParams(grpc.ConnectParams{
			MinConnectTimeout: time.Second,
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
		}))
	if err != nil {
		return nil, fmt.Errorf("forward to node %q: %w", node, err)
	}
	p.conns[node] = conn
	return conn, nil
}

// awake makes the next call to a node dial at once, where a connection that waits before its next attempt is of no use: it
// leads now, so it lives, or it is asked only once. (ClientConn.ResetConnectBackoff is for this, and races with the library's own dialling.)
func (p *peers) awake(node string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if conn := p.conns[node]; conn != nil && conn.GetState() == connectivity.TransientFailure {
		delete(p.conns, node)
		_ = conn.Close() // no call is on it
	}
}

func (p *peers) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	for _, conn := range p.conns {
		_ = conn.Close()
	}
}

// sentHandler notes in a call's context whether anything of it reached the wire. What never did was certainly not
// applied, and that is worth knowing when a leader has just died.
type sentHandler struct{}

type sentKey struct{}

func withSent(ctx context.Context) (context.Context, *atomic.Bool) {
	sent := new(atomic.Bool)
	return context.WithValue(ctx, sentKey{}, sent), sent
}

func (sentHandler) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if _, ok := event.(*stats.OutHeader); !ok {
		return
	}
	if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok {
		sent.Store(true)
	}
}

func (sentHandler) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (sentHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (sentHandler) HandleConn(context.Context, stats.ConnStats)                       {}
