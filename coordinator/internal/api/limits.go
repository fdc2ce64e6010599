package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	grpccreds "google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/tap"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// What one gRPC connection may hold.
const (
	maxHeaders     = 16 << 10         // bytes of a call's metadata
	connectTimeout = 10 * time.Second // until TLS and HTTP/2 are agreed on
	idleTimeout    = 15 * time.Minute // without a call; a client of this library does not notice
	requestTimeout = 10 * time.Second // from a call's headers to its request
)

// connection is what this node knows of a gRPC connection. It is the connection's AuthInfo.
type connection struct {
	grpccreds.AuthInfo
	calls *atomic.Int64 // in progress
}

// counting gives each accepted connection its own count.
type counting struct{ grpccreds.TransportCredentials }

// ServerHandshake implements credentials.TransportCredentials.
func (c counting) ServerHandshake(raw net.Conn) (net.Conn, grpccreds.AuthInfo, error) {
	conn, info, err := c.TransportCredentials.ServerHandshake(raw)
	if err != nil {
		return nil, nil, err
	}
	return conn, connection{info, new(atomic.Int64)}, nil
}

// Clone implements credentials.TransportCredentials.
func (c counting) Clone() grpccreds.TransportCredentials {
	return counting{c.TransportCredentials.Clone()}
}

// hold counts a call in on its connection. A node's connections carry the calls of many clients, and what ends or keeps a
// lease is never in the way for long: neither is bounded here, only with all calls together.
func (s *Server) hold(ctx context.Context, c *caller, method string) (leave func(), refused *refusal) {
	p, ok := peer.FromContext(ctx)
	if !ok || c.forwarded || keepsLeases(method) {
		return func() {}, nil
	}
	info, ok := p.AuthInfo.(connection)
	if !ok {
		return func() {}, nil
	}
	if limit := int64(s.config.MaxCalls) * 3 / 4; info.calls.Add(1) > limit {
		info.calls.Add(-1)
		return nil, refuse(lockpb.Reason_OVERLOADED, fmt.Sprintf("this connection has %d calls in progress", limit)).retryAfter(time.Second)
	}
	return func() { info.calls.Add(-1) }, nil
}

func keepsLeases(method string) bool {
	switch method {
	case lockpb.Locks_Renew_FullMethodName, lockpb.Locks_Release_FullMethodName, lockpb.Locks_Heartbeat_FullMethodName:
		return true
	}
	return false
}

// errSlow ends a call whose request did not come.
var errSlow = errors.New("the request did not come in time")

type requestTimer struct{}

// await is called for each call when its headers are there, and before anything is spent on it: a request that never
// comes must not keep a goroutine for ever.
func (s *Server) await(ctx context.Context, info *tap.Info) (context.Context, error) {
	if info.FullMethodName == lockpb.Locks_Session_FullMethodName {
		return ctx, nil // it may be silent as long as it likes: see maxSessionCalls
	}
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(s.requestTimeout, func() { cancel(errSlow) })
	return context.WithValue(ctx, requestTimer{}, timer), nil
}

// arrived says that the request is there.
func arrived(ctx context.Context) {
	if timer, ok := ctx.Value(requestTimer{}).(*time.Timer); ok {
		timer.Stop()
	}
}
