package load

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// How calls travel.
const (
	overSession = "session"
	overUnary   = "unary calls"
)

// wire carries the calls of many clients to one node, in one session, or as unary calls to a node that has no sessions.
type wire struct {
	locks  lockpb.LocksClient
	conn   *grpc.ClientConn
	answer func(*lockpb.Answer)
	kind   string

	addr   string
	stream lockpb.Locks_SessionClient // nil: unary
	work   sync.WaitGroup
	broken chan struct{} // holds one: the stream broke
	moved  chan struct{} // holds one: other nodes lead now
}

// openWire connects to a node. answer is called for each answer, from several goroutines.
func openWire(ctx context.Context, addr string, answer func(*lockpb.Answer)) (*wire, error) {
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithNoProxy())
	if err != nil {
		return nil, err
	}
	w := &wire{
		locks: lockpb.NewLocksClient(conn), conn: conn, addr: addr, answer: answer, kind: overUnary,
		broken: make(chan struct{}, 1), moved: make(chan struct{}, 1),
	}
	if err := w.open(ctx); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return w, nil
}

// open begins a session and waits for the first answer, which shows whether the node has sessions.
func (w *wire) open(ctx context.Context) error {
	stream, err := w.locks.Session(ctx)
	if err == nil {
		// A lease that nobody has: the answer is a refusal, or what is beside it, and both show that the session works.
		err = stream.Send(&lockpb.SessionRequest{Calls: []*lockpb.Call{{
			Id: 1, Kind: &lockpb.Call_Release{Release: &lockpb.ReleaseRequest{LeaseId: "00000000000000000000000000000000"}},
		}}})
	}
	if errors.Is(err, io.EOF) {
		err = nil // the stream's end says why
	}
	for err == nil {
		var got *lockpb.SessionResponse
		if got, err = stream.Recv(); err == nil && len(got.GetAnswers()) > 0 {
			w.stream, w.kind = stream, overSession
			w.work.Go(w.receive)
			return nil
		}
	}
	if status.Code(err) == codes.Unimplemented {
		return nil
	}
	return fmt.Errorf("session: %w", err)
}

// receive hands out the answers until the stream ends.
func (w *wire) receive() {
	for {
		got, err := w.stream.Recv()
		if err != nil {
			w.fail()
			return
		}
		if leadsNot(got.GetLeaders(), w.addr) {
			select {
			case w.moved <- struct{}{}:
			default: // already known
			}
		}
		for _, a := range got.GetAnswers() {
			w.answer(a)
		}
	}
}

// leadsNot reports whether a node is none of the leaders that a session told of.
func leadsNot(leaders []*lockpb.Leader, addr string) bool {
	return len(leaders) > 0 && !slices.ContainsFunc(leaders, func(l *lockpb.Leader) bool { return l.GetGrpc() == addr || l.GetGrpc() == "" })
}

func (w *wire) fail() {
	select {
	case w.broken <- struct{}{}:
	default: // already known
	}
}

// maxCalls is how many calls a session takes in a message.
const maxCalls = 1000

// send sends calls. A session that broke says so on broken.
func (w *wire) send(ctx context.Context, calls []*lockpb.Call) {
	if w.stream == nil {
		for _, c := range calls {
			w.work.Go(func() { w.answer(w.unary(ctx, c)) })
		}
		return
	}
	for len(calls) > 0 {
		n := min(len(calls), maxCalls)
		if err := w.stream.Send(&lockpb.SessionRequest{Calls: calls[:n]}); err != nil {
			w.fail()
			return
		}
		calls = calls[n:]
	}
}

// attemptTimeout bounds a unary call.
const attemptTimeout = 10 * time.Second

func (w *wire) unary(ctx context.Context, c *lockpb.Call) *lockpb.Answer {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	a := &lockpb.Answer{Id: c.GetId()}
	var err error
	switch k := c.GetKind().(type) {
	case *lockpb.Call_Acquire:
		var got *lockpb.AcquireResponse
		got, err = w.locks.Acquire(ctx, k.Acquire)
		a.Kind = &lockpb.Answer_Acquire{Acquire: got}
	case *lockpb.Call_Renew:
		var got *lockpb.RenewResponse
		got, err = w.locks.Renew(ctx, k.Renew)
		a.Kind = &lockpb.Answer_Renew{Renew: got}
	case *lockpb.Call_Release:
		var got *lockpb.ReleaseResponse
		got, err = w.locks.Release(ctx, k.Release)
		a.Kind = &lockpb.Answer_Release{Release: got}
	case *lockpb.Call_Heartbeat:
		var got *lockpb.HeartbeatResponse
		got, err = w.locks.Heartbeat(ctx, k.Heartbeat)
		a.Kind = &lockpb.Answer_Heartbeat{Heartbeat: got}
	default:
		err = fmt.Errorf("no such call: %T", k)
	}
	if err != nil {
		a.Kind = &lockpb.Answer_Failure{Failure: failure(err)}
	}
	return a
}

func failure(err error) *lockpb.Failure {
	st, _ := status.FromError(err)
	f := &lockpb.Failure{Code: int32(st.Code()), Message: st.Message()}
	for _, d := range st.Details() {
		if r, ok := d.(*lockpb.Refusal); ok {
			f.Refusal = r
		}
	}
	return f
}

// close ends the connection and waits for what was under way.
func (w *wire) close() {
	_ = w.conn.Close() // nothing is left to lose
	w.work.Wait()
}
