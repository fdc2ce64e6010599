package client

import (
	"context"
	"errors"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// router is the API over sessions where there are any, to the leader of the group that a call is for; and as plain
// calls where there are none. Every error is an *Error.
type router struct {
	lockpb.LocksClient // plain calls
	nodes              *nodes
}

// target is what a call is for: a resource, or a lease.
type target struct{ resource, lease string }

func ofResource(name string) target { return target{resource: name} }

func ofLease(id string) target { return target{lease: id} }

// in says which group that is, if there are so many. 0 groups: their number is not known.
func (t target) in(groups uint16) uint16 {
	if t.resource != "" {
		return lease.GroupOf(lease.Resource(t.resource), max(groups, 1))
	}
	parsed, err := lease.ParseID(t.lease)
	if err != nil {
		return 0 // any node refuses it
	}
	return parsed.Group()
}

// Acquire implements lockpb.LocksClient.
func (r router) Acquire(ctx context.Context, in *lockpb.AcquireRequest, opts ...grpc.CallOption) (*lockpb.AcquireResponse, error) {
	call := new(struct {
		lockpb.Call
		kind lockpb.Call_Acquire
	})
	call.kind.Acquire, call.Kind = in, &call.kind
	answer, err := r.ask(ctx, ofResource(in.GetResource()), &call.Call, opts)
	if errors.Is(err, errPlain) {
		return r.LocksClient.Acquire(ctx, in, opts...)
	}
	return answer.GetAcquire(), err
}

// Renew implements lockpb.LocksClient.
func (r router) Renew(ctx context.Context, in *lockpb.RenewRequest, opts ...grpc.CallOption) (*lockpb.RenewResponse, error) {
	call := &lockpb.Call{Kind: &lockpb.Call_Renew{Renew: in}}
	answer, err := r.ask(ctx, ofLease(in.GetLeaseId()), call, opts)
	if errors.Is(err, errPlain) {
		return r.LocksClient.Renew(ctx, in, opts...)
	}
	return answer.GetRenew(), err
}

// Release implements lockpb.LocksClient.
func (r router) Release(ctx context.Context, in *lockpb.ReleaseRequest, opts ...grpc.CallOption) (*lockpb.ReleaseResponse, error) {
	call := new(struct {
		lockpb.Call
		kind lockpb.Call_Release
	})
	call.kind.Release, call.Kind = in, &call.kind
	answer, err := r.ask(ctx, ofLease(in.GetLeaseId()), &call.Call, opts)
	if errors.Is(err, errPlain) {
		return r.LocksClient.Release(ctx, in, opts...)
	}
	return answer.GetRelease(), err
}

// Cancel implements lockpb.LocksClient.
func (r router) Cancel(ctx context.Context, in *lockpb.CancelRequest, opts ...grpc.CallOption) (*lockpb.CancelResponse, error) {
	call := &lockpb.Call{Kind: &lockpb.Call_Cancel{Cancel: in}}
	answer, err := r.ask(ctx, ofResource(in.GetResource()), call, opts)
	if errors.Is(err, errPlain) {
		return r.LocksClient.Cancel(ctx, in, opts...)
	}
	return answer.GetCancel(), err
}

// Heartbeat implements lockpb.LocksClient. The first lease says whom to ask; any node answers for all.
func (r router) Heartbeat(ctx context.Context, in *lockpb.HeartbeatRequest, opts ...grpc.CallOption) (*lockpb.HeartbeatResponse, error) {
	first := ""
	if ids := in.GetLeaseIds(); len(ids) > 0 {
		first = ids[0]
	}
	answer, err := r.ask(ctx, ofLease(first), &lockpb.Call{Kind: &lockpb.Call_Heartbeat{Heartbeat: in}}, opts)
	if errors.Is(err, errPlain) {
		return r.LocksClient.Heartbeat(ctx, in, opts...)
	}
	return answer.GetHeartbeat(), err
}

// errPlain says that a call is to be made by itself.
var errPlain = errors.New("no session takes the call")

// ask makes one attempt at a call in a session.
func (r router) ask(ctx context.Context, to target, call *lockpb.Call, opts []grpc.CallOption) (*lockpb.Answer, error) {
	if len(opts) > 0 { // they are about a call of its own
		return nil, errPlain
	}
	for range 3 { // a session that was just ending is replaced
		s, addr := r.nodes.session(to)
		if s == nil {
			return nil, errPlain
		}
		answer, sent, err := s.do(ctx, call)
		switch {
		case errors.Is(err, errSessionAbsent), errors.Is(err, errSessionFull):
			return nil, errPlain
		case errors.Is(err, errSessionOver) && !sent:
			continue
		case err != nil:
			return nil, r.nodes.lost(ctx, addr, call, err, sent)
		case answer.GetFailure() != nil:
			return nil, r.nodes.refused(addr, call, answer.GetFailure())
		}
		return answer, nil
	}
	return nil, errPlain
}

// lost is the error of a call that was not answered.
func (n *nodes) lost(ctx context.Context, addr string, call *lockpb.Call, err error, sent bool) *Error {
	if _, ok := status.FromError(err); !ok {
		err = status.FromContextError(err).Err()
	}
	op, resource := described(call)
	e := newError(ctx, op, resource, err, sent)
	if sent && !reads(op) && e.Code != codes.Unauthenticated && e.Code != codes.PermissionDenied {
		e.Applied = lockpb.Applied_MAYBE // a refusal of the session says nothing of the calls that were in it
	}
	if ctx.Err() == nil || blames(ctx, call) {
		n.judge(addr, e)
	}
	return e
}

// blames reports whether the end of a call's context tells against the node: its caller lost patience with it, and not
// with whoever holds the resource.
func blames(ctx context.Context, call *lockpb.Call) bool {
	var silent timeoutError
	if errors.As(context.Cause(ctx), &silent) && silent.what == noAnswer {
		return true
	}
	return errors.Is(ctx.Err(), context.DeadlineExceeded) && call.GetAcquire().GetWaitTimeout() == 0
}

// refused is the error that a node answered with.
func (n *nodes) refused(addr string, call *lockpb.Call, f *lockpb.Failure) *Error {
	op, resource := described(call)
	e := newError(context.Background(), op, resource, status.Error(codes.Code(f.GetCode()), f.GetMessage()), true)
	if f.GetRefusal() != nil {
		e.Message = f.GetMessage()
		e.fill(f.GetRefusal())
	}
	n.judge(addr, e)
	return e
}

// described names a call in errors.
func described(call *lockpb.Call) (op, resource string) {
	switch kind := call.GetKind().(type) {
	case *lockpb.Call_Acquire:
		return "acquire", kind.Acquire.GetResource()
	case *lockpb.Call_Renew:
		return "renew", ""
	case *lockpb.Call_Release:
		return "release", ""
	case *lockpb.Call_Cancel:
		return "cancel", kind.Cancel.GetResource()
	case *lockpb.Call_Heartbeat:
		return "heartbeat", ""
	case *lockpb.Call_Abandon:
	}
	return "abandon", ""
}
