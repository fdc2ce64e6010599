package api

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// settle ends a call that its group has told of, or gives it a goroutine if it is not over with that.
func (x *session) settle(c *sessionCall) {
	if c.err != nil {
		x.settled(c)
		refused := groupRefusal(c.err)
		if passing(refused) && !x.unwanted(c) {
			x.anywhere(c, refused.maybe())
			return
		}
		x.finish(c, nil, refused)
		return
	}
	if _, waits := c.outcome.Result.(lock.Waiting); waits && c.wait != nil {
		x.settleWaiting(c)
		return
	}
	x.settled(c)
	if c.op == opAcquire {
		x.settleAcquire(c)
		return
	}
	answer, refused := c.result()
	x.finish(c, answer, refused)
}

// result is the answer of a call that is over with its first command.
func (c *sessionCall) result() (*lockpb.Answer, *refusal) {
	if machine, ok := c.outcome.Result.(lock.Refused); ok {
		return nil, refused(machine, c.outcome.Now)
	}
	switch c.op {
	case opRenew:
		out, refused := c.shard.renewAnswer(c.outcome)
		return &lockpb.Answer{Kind: &lockpb.Answer_Renew{Renew: out}}, refused
	case opRelease:
		out, refused := releaseAnswer(c.outcome)
		return &lockpb.Answer{Kind: &lockpb.Answer_Release{Release: out}}, refused
	case opHeartbeat:
		return c.beaten()
	case opAcquire, opCancel, opBreak, opGet, opList, opHot, opWatch, opAdmin:
	}
	return nil, refuse(lockpb.Reason_INTERNAL, fmt.Sprintf("%s was submitted", c.op))
}

func (x *session) settleAcquire(c *sessionCall) {
	ticket := !c.request.GetAcquire().GetNoTicket()
	if x.unwanted(c) {
		x.finish(c, nil, refuse(lockpb.Reason_OUTCOME_UNKNOWN, "the call ended before its answer"))
		return
	}
	if granted, ok := c.outcome.Result.(lock.Granted); ok && granted.Retried {
		x.spawn(c, func(ctx context.Context) (*lockpb.AcquireResponse, *refusal) {
			ctx, cancel := x.within(ctx)
			defer cancel()
			return c.shard.confirm(ctx, granted.Grant, false, ticket)
		})
		return
	}
	out, refused := c.shard.acquired(x.calling, c.outcome, ticket) // proposes nothing: the grant is new
	x.finish(c, &lockpb.Answer{Kind: &lockpb.Answer_Acquire{Acquire: out}}, refused)
}

// settleWaiting gives an acquire that stands in the queue a goroutine. If its caller is gone, that only detaches it.
func (x *session) settleWaiting(c *sessionCall) {
	in, cmd := c.request.GetAcquire(), c.Command.(lock.Acquire)
	x.spawn(c, func(ctx context.Context) (*lockpb.AcquireResponse, *refusal) {
		defer c.wait.Close()
		if x.unwanted(c) {
			c.shard.detach(ctx, cmd)
			return nil, refuse(lockpb.Reason_OUTCOME_UNKNOWN, "the call ended while it waited; the request keeps its place for a short while")
		}
		return c.shard.keepWaiting(ctx, in, c, cmd)
	})
}

// keepWaiting is what remains of acquireAsOf once the request stands in the queue here.
func (sh *shard) keepWaiting(ctx context.Context, in *lockpb.AcquireRequest, c *sessionCall, cmd lock.Acquire) (*lockpb.AcquireResponse, *refusal) {
	until := c.began.Add(cmd.Wait)
	waiting, cancel := context.WithDeadline(ctx, until.Add(waitSlack))
	defer cancel()
	out, refused := sh.hang(waiting, cmd, c.wait, !in.GetNoTicket(), nil, nil)
	switch {
	case refused == nil || ctx.Err() != nil || !passing(refused):
		return out, refused
	case waiting.Err() != nil:
		return sh.endWait(ctx, in)
	}
	again := proto.CloneOf(in)
	again.WaitTimeout = max(1, milliseconds(time.Until(until)))
	out, refused = sh.acquireAsOf(ctx, again, nil)
	return out, repeated(refused)
}

// spawn gives an acquire a goroutine.
func (x *session) spawn(c *sessionCall, run func(context.Context) (*lockpb.AcquireResponse, *refusal)) {
	ctx, cancel := x.contextOf(c)
	x.work.Go(func() {
		defer cancel()
		out, refused := run(ctx)
		x.finish(c, &lockpb.Answer{Kind: &lockpb.Answer_Acquire{Acquire: out}}, refused)
	})
}

// anywhere serves a call as its unary form is: wherever its leader is, and for as long as that may take. unknown says
// that an attempt was made that may have taken effect.
//
// It costs several times what a call does that is served here, on both nodes. When a leader changes, all calls of all sessions come
// here at once; so they are bounded, and who is refused asks the new leader.
func (x *session) anywhere(c *sessionCall, unknown bool) {
	waits := c.request.GetAcquire().GetWaitTimeout() > 0
	if !waits && !x.goAway(c.op) {
		refused := refuse(lockpb.Reason_OVERLOADED, "too many calls of this session are for another node").retryAfter(100 * time.Millisecond)
		if unknown {
			refused = refuse(lockpb.Reason_OUTCOME_UNKNOWN, "the leader was lost before it answered")
		}
		x.finish(c, nil, refused)
		return
	}
	ctx, cancel := x.contextOf(c)
	x.work.Go(func() {
		defer cancel()
		if !waits {
			defer x.comeBack()
		}
		answer, refused := x.unary(ctx, c.request)
		if unknown {
			refused = repeated(refused)
		}
		x.finish(c, answer, refused)
	})
}

// goAway counts a call that is served as its unary form is, and reports whether there is room for it.
func (x *session) goAway(op operation) bool {
	limit := maxSessionAway
	if keeps(op) {
		limit *= 2
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.away >= limit {
		return false
	}
	x.away++
	return true
}

func (x *session) comeBack() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.away--
}

func (x *session) unary(ctx context.Context, call *lockpb.Call) (*lockpb.Answer, *refusal) {
	switch kind := call.GetKind().(type) {
	case *lockpb.Call_Acquire:
		out, refused := x.acquireAnywhere(ctx, kind.Acquire)
		return &lockpb.Answer{Kind: &lockpb.Answer_Acquire{Acquire: out}}, refused
	case *lockpb.Call_Renew:
		out, refused := x.renewAnywhere(ctx, kind.Renew)
		return &lockpb.Answer{Kind: &lockpb.Answer_Renew{Renew: out}}, refused
	case *lockpb.Call_Release:
		out, refused := x.releaseAnywhere(ctx, kind.Release)
		return &lockpb.Answer{Kind: &lockpb.Answer_Release{Release: out}}, refused
	case *lockpb.Call_Cancel:
		out, refused := x.cancelAnywhere(ctx, kind.Cancel)
		return &lockpb.Answer{Kind: &lockpb.Answer_Cancel{Cancel: out}}, refused
	case *lockpb.Call_Heartbeat:
		out, refused := x.heartbeatAnywhere(ctx, kind.Heartbeat)
		return &lockpb.Answer{Kind: &lockpb.Answer_Heartbeat{Heartbeat: out}}, refused
	case *lockpb.Call_Abandon:
	}
	return nil, refuse(lockpb.Reason_INTERNAL, "a call without a kind was served")
}

// repeated corrects the refusal of a call of which an earlier attempt may have taken effect.
func repeated(last *refusal) *refusal {
	if last != nil && passing(last) {
		return givenUp(last, true)
	}
	return afterUnknown(last, true)
}
