// Package clienttest is a coordinator in memory, for testing code that takes locks. It speaks the real API to
// real clients, with no socket and no disk, and lets a test take locks away, stop answering, or stand between
// a client and its answers. It works in the virtual time of testing/synctest.
//
//	s := clienttest.New()
//	defer s.Close()
//	c, err := s.Dial(client.Config{TTL: 10 * time.Second})
//	…
//	s.Expire("ledger/eu") // the holder finds out at its next renewal
//
// It grants as the coordinator does (one holder, a queue in order, tokens that grow), but it has one node, no
// limits and no memory of its own restart. Its tickets are not signed: no proxy accepts them.
package clienttest

import (
	"context"
	"errors"
	"net"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// What the fake decides where the request leaves it open.
const (
	DefaultTTL  = 30 * time.Second
	ClaimWindow = 10 * time.Second // a grant out of the queue ends then unless it is renewed
	Grace       = 10 * time.Second // a waiter whose caller is gone keeps its place so long
)

// Call is one call that reached the fake, by itself or in a session.
type Call struct {
	Addr    string // the address that the client called
	Method  string // "Acquire", "Heartbeat", …
	Request any    // *lockpb.AcquireRequest, …
	At      time.Time
}

// Grant is one grant of a resource.
type Grant struct {
	Resource, Client string
	Token            lease.Token
	At               time.Time
}

// Handler answers a call.
type Handler func(context.Context) (any, error)

var errClosed = errors.New("clienttest: closed")

// Server is the fake. It is safe for concurrent use.
type Server struct {
	table *table

	mu        sync.Mutex
	listeners map[string]*bufconn.Listener // by address
	servers   []*grpc.Server
	intercept func(context.Context, Call, Handler) (any, error)
	calls     []Call
	down      bool
	closed    bool
	features  Features
	leader    string
	open      map[*session]struct{}
	serving   sync.WaitGroup
}

// New starts a fake. The caller must Close it.
func New() *Server {
	return &Server{
		table: newTable(), listeners: make(map[string]*bufconn.Listener), features: AllFeatures, open: make(map[*session]struct{}),
	}
}

// Dial makes a client of the fake. Whatever addresses cfg names all lead to it.
func (s *Server) Dial(cfg client.Config) (*client.Client, error) {
	cfg.Dialer = s.dial
	return client.Dial(cfg)
}

// Close stops answering and waits for what is being answered.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	servers := s.servers
	s.mu.Unlock()
	for _, g := range servers {
		g.Stop()
	}
	s.serving.Wait()
	s.table.close()
}

// SetAvailable says whether there is a quorum. Without one every call is refused with NO_LEADER, and leases
// keep running out only when it is back.
func (s *Server) SetAvailable(available bool) {
	s.mu.Lock()
	s.down = !available
	s.mu.Unlock()
	s.table.freeze(!available)
}

// Intercept puts f between the clients and the fake, for this and all later calls; nil removes it. f may
// delay, refuse, or drop the answer of next; it runs on the server's side and many at a time.
func (s *Server) Intercept(f func(ctx context.Context, call Call, next Handler) (any, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.intercept = f
}

// Expire ends the lease of a resource as if its time had run out, and reports whether there was one.
func (s *Server) Expire(resource string) bool { return s.table.expire(resource) }

// Holder tells who holds a resource now.
func (s *Server) Holder(resource string) (clientID string, token lease.Token, held bool) {
	return s.table.holder(resource)
}

// Deadline tells when the lease of a resource ends unless it is renewed; the zero time if nobody holds it.
func (s *Server) Deadline(resource string) time.Time { return s.table.deadline(resource) }

// Waiting tells how many wait for a resource now.
func (s *Server) Waiting(resource string) int { return s.table.waiting(resource) }

// Grants lists every grant so far, oldest first.
func (s *Server) Grants() []Grant { return s.table.history() }

// Calls lists the calls so far, oldest first; only those of one method if it is not "".
func (s *Server) Calls(method string) []Call {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(s.calls), func(c Call) bool { return method != "" && c.Method != method })
}

// dial connects to a node of its own for each address, so that a test can tell them apart.
func (s *Server) dial(ctx context.Context, addr string) (net.Conn, error) {
	l, err := s.listener(addr)
	if err != nil {
		return nil, err
	}
	return l.DialContext(ctx)
}

func (s *Server) listener(addr string) (*bufconn.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, errClosed
	}
	l, ok := s.listeners[addr]
	if !ok {
		l = bufconn.Listen(1 << 16)
		s.listeners[addr] = l
		s.serve(addr, l)
	}
	return l, nil
}

// Serve answers on l too, for clients in other processes. It does not block; Close closes l. Their calls carry
// l's address.
func (s *Server) Serve(l net.Listener) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errClosed
	}
	s.serve(l.Addr().String(), l)
	return nil
}

// serve starts a node. The caller holds mu.
func (s *Server) serve(addr string, l net.Listener) {
	g := grpc.NewServer(grpc.WaitForHandlers(true), grpc.UnaryInterceptor(s.handle(addr)), grpc.KeepaliveEnforcementPolicy(
		keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true})) // as a coordinator
	lockpb.RegisterLocksServer(g, node{locks{table: s.table}, s, addr})
	lockpb.RegisterClusterServer(g, cluster{table: s.table})
	s.servers = append(s.servers, g)
	s.serving.Go(func() { _ = g.Serve(l) }) // ends with Stop
}

func (s *Server) handle(addr string) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if method := methodName(info.FullMethod); method != "Heartbeat" || s.Has(Heartbeats) {
			return s.call(ctx, addr, method, req, func(ctx context.Context) (any, error) { return next(ctx, req) })
		}
		return next(ctx, req) // unimplemented: no call
	}
}

// call makes one call that came to an address, by itself or in a session.
func (s *Server) call(ctx context.Context, addr, method string, req any, next Handler) (any, error) {
	call := Call{Addr: addr, Method: method, Request: req, At: time.Now()}
	s.mu.Lock()
	s.calls = append(s.calls, call)
	intercept, down := s.intercept, s.down
	s.mu.Unlock()
	handler := func(ctx context.Context) (any, error) {
		if down {
			return nil, Refuse(lockpb.Reason_NO_LEADER, lockpb.Applied_NO)
		}
		return next(ctx)
	}
	if intercept == nil {
		return handler(ctx)
	}
	return intercept(ctx, call, handler)
}

// Refuse is the error by which a coordinator refuses a call, for use in Intercept.
func Refuse(reason lockpb.Reason, applied lockpb.Applied) error {
	return refuse(&lockpb.Refusal{Reason: reason, Applied: applied})
}

func refuse(r *lockpb.Refusal) error {
	st, err := status.New(codes.FailedPrecondition, "refused: "+r.GetReason().String()).WithDetails(r)
	if err != nil {
		panic("clienttest: " + err.Error()) // the detail is a message that marshals
	}
	return st.Err()
}
