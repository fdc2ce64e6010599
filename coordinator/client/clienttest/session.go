package clienttest

import (
	"context"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Features are what a coordinator may lack, being of an older release.
type Features uint8

// The features.
const (
	Sessions Features = 1 << iota
	Heartbeats
	Progress    // of waits, by Follow
	AllFeatures = Sessions | Heartbeats | Progress
)

// SetFeatures says what the fake has, for calls to come. At first it has everything. Sessions that are open stay so.
func (s *Server) SetFeatures(f Features) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.features = f
}

// Has reports whether the fake has all of the features.
func (s *Server) Has(f Features) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.features&f == f
}

// SetLeader has sessions tell that the node at an address leads. At first, and for "", nobody is known to.
func (s *Server) SetLeader(addr string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leader = addr
	for open := range s.open {
		open.signal()
	}
}

// BreakSessions cuts every open session off: what is in it is executed, and not answered.
func (s *Server) BreakSessions() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for open := range s.open {
		open.cut()
	}
}

// OpenSessions lists the addresses to which a session is open, one for each.
func (s *Server) OpenSessions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var addrs []string
	for open := range s.open {
		addrs = append(addrs, open.addr)
	}
	return addrs
}

// node is the fake at one address.
type node struct {
	locks
	server *Server
	addr   string
}

// Heartbeat implements lockpb.LocksServer.
func (n node) Heartbeat(ctx context.Context, m *lockpb.HeartbeatRequest) (*lockpb.HeartbeatResponse, error) {
	if !n.server.Has(Heartbeats) {
		return nil, status.Error(codes.Unimplemented, "no heartbeats")
	}
	return n.locks.Heartbeat(ctx, m)
}

// Follow implements lockpb.LocksServer. It tells how the queue stood at the beginning, and no more.
func (n node) Follow(m *lockpb.AcquireRequest, stream lockpb.Locks_FollowServer) error {
	if !n.server.Has(Progress) {
		return status.Error(codes.Unimplemented, "no progress")
	}
	begun := func(ctx context.Context) (any, error) {
		if p := n.table.progress(m); p != nil {
			if err := stream.Send(&lockpb.FollowResponse{News: &lockpb.FollowResponse_Progress{Progress: p}}); err != nil {
				return nil, err
			}
		}
		return n.Acquire(ctx, m)
	}
	out, err := n.server.call(stream.Context(), n.addr, "Follow", m, begun)
	if err != nil {
		return err
	}
	granted, ok := out.(*lockpb.AcquireResponse)
	if !ok {
		return status.Error(codes.Internal, "an interceptor has answered with something else")
	}
	return stream.Send(&lockpb.FollowResponse{News: &lockpb.FollowResponse_Granted{Granted: granted}})
}

// session is one stream of a client.
type session struct {
	node
	ctx  context.Context
	cut  context.CancelFunc
	work sync.WaitGroup
	wake chan struct{}

	mu      sync.Mutex
	calls   map[uint64]context.CancelFunc
	answers []*lockpb.Answer
}

// Session implements lockpb.LocksServer.
func (n node) Session(stream lockpb.Locks_SessionServer) error {
	if !n.server.Has(Sessions) {
		return status.Error(codes.Unimplemented, "no sessions")
	}
	s := &session{node: n, wake: make(chan struct{}, 1), calls: make(map[uint64]context.CancelFunc)}
	s.ctx, s.cut = context.WithCancel(stream.Context())
	defer s.work.Wait()
	defer s.cut()
	n.server.mu.Lock()
	n.server.open[s] = struct{}{}
	n.server.mu.Unlock()
	defer func() {
		n.server.mu.Lock()
		defer n.server.mu.Unlock()
		delete(n.server.open, s)
	}()
	go s.read(stream) // ends with the stream, when this returns
	return s.write(stream)
}

func (s *session) read(stream lockpb.Locks_SessionServer) {
	defer s.cut()
	for {
		m, err := stream.Recv()
		if err != nil {
			return
		}
		for _, call := range m.GetCalls() {
			s.begin(call)
		}
	}
}

func (s *session) begin(call *lockpb.Call) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if abandoned, ok := call.GetKind().(*lockpb.Call_Abandon); ok {
		if cancel := s.calls[abandoned.Abandon.GetId()]; cancel != nil {
			cancel()
		}
		return
	}
	ctx, cancel := context.WithCancel(s.ctx)
	if t := call.GetTimeout(); t > 0 {
		ctx, cancel = context.WithTimeout(s.ctx, time.Duration(t)*time.Millisecond)
	}
	s.calls[call.GetId()] = cancel
	s.work.Go(func() {
		defer cancel()
		answer := s.answer(ctx, call)
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.calls, call.GetId())
		s.answers = append(s.answers, answer)
		s.signal()
	})
}

// answer makes a call of a session as if it had come by itself.
func (s *session) answer(ctx context.Context, call *lockpb.Call) *lockpb.Answer {
	answer := &lockpb.Answer{Id: call.GetId()}
	var method string
	var req any
	var next Handler
	switch kind := call.GetKind().(type) {
	case *lockpb.Call_Acquire:
		method, req, next = "Acquire", kind.Acquire, func(ctx context.Context) (any, error) { return s.Acquire(ctx, kind.Acquire) }
	case *lockpb.Call_Renew:
		method, req, next = "Renew", kind.Renew, func(ctx context.Context) (any, error) { return s.Renew(ctx, kind.Renew) }
	case *lockpb.Call_Release:
		method, req, next = "Release", kind.Release, func(ctx context.Context) (any, error) { return s.Release(ctx, kind.Release) }
	case *lockpb.Call_Cancel:
		method, req, next = "Cancel", kind.Cancel, func(ctx context.Context) (any, error) { return s.Cancel(ctx, kind.Cancel) }
	case *lockpb.Call_Heartbeat:
		method, req, next = "Heartbeat", kind.Heartbeat, func(ctx context.Context) (any, error) { return s.Heartbeat(ctx, kind.Heartbeat) }
	case *lockpb.Call_Abandon:
	}
	out, err := s.server.call(ctx, s.addr, method, req, next)
	if err != nil {
		answer.Kind = &lockpb.Answer_Failure{Failure: failure(err)}
		return answer
	}
	switch out := out.(type) {
	case *lockpb.AcquireResponse:
		answer.Kind = &lockpb.Answer_Acquire{Acquire: out}
	case *lockpb.RenewResponse:
		answer.Kind = &lockpb.Answer_Renew{Renew: out}
	case *lockpb.ReleaseResponse:
		answer.Kind = &lockpb.Answer_Release{Release: out}
	case *lockpb.CancelResponse:
		answer.Kind = &lockpb.Answer_Cancel{Cancel: out}
	case *lockpb.HeartbeatResponse:
		answer.Kind = &lockpb.Answer_Heartbeat{Heartbeat: out}
	}
	return answer
}

func failure(err error) *lockpb.Failure {
	st, ok := status.FromError(err)
	if !ok {
		st = status.FromContextError(err)
	}
	f := &lockpb.Failure{Code: int32(st.Code()), Message: st.Message()}
	for _, d := range st.Details() {
		if r, ok := d.(*lockpb.Refusal); ok {
			f.Refusal = r
		}
	}
	return f
}

func (s *session) write(stream lockpb.Locks_SessionServer) error {
	told, first := "", true
	for {
		s.mu.Lock()
		m := &lockpb.SessionResponse{Answers: s.answers}
		s.answers = nil
		s.mu.Unlock()
		s.server.mu.Lock()
		leader := s.server.leader
		s.server.mu.Unlock()
		if first || leader != told {
			told, first = leader, false
			m.Leaders = []*lockpb.Leader{{Node: leader, Grpc: leader}}
		}
		if len(m.GetAnswers())+len(m.GetLeaders()) > 0 {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		select {
		case <-s.wake:
		case <-s.ctx.Done():
			return status.Error(codes.Unavailable, "the session was cut off")
		}
	}
}

func (s *session) signal() {
	select {
	case s.wake <- struct{}{}:
	default: // it looks already
	}
}
