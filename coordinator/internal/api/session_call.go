package api

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// submitter is a group that takes many commands at once. Only one that this node has a replica of does.
type submitter interface {
	Submit(submissions ...*group.Submission)
	Withdraw(s *group.Submission) bool
}

// receive begins the calls of one message. An error ends the session.
func (x *session) receive(calls []*lockpb.Call) error {
	if len(calls) > maxMessageCalls {
		return invalid("calls", fmt.Sprintf("%d calls in one message, at most %d are allowed", len(calls), maxMessageCalls))
	}
	batches := make([][]*group.Submission, len(x.shards))
	leading := x.leading()
	now := time.Now()
	for _, request := range calls {
		if abandon, ok := request.GetKind().(*lockpb.Call_Abandon); ok {
			x.abandon(abandon.Abandon.GetId())
			continue
		}
		c, err := x.admit(request, now)
		if err != nil {
			return err
		}
		switch {
		case c == nil: // refused, and answered
		case x.beginHere(c, leading):
			batches[c.shard.number] = append(batches[c.shard.number], &c.Submission)
		case c.shard == nil: // malformed, and answered
		default:
			x.anywhere(c, false)
		}
	}
	for i, batch := range batches {
		if len(batch) > 0 {
			leading[i].Submit(batch...)
		}
	}
	return nil
}

// leading has the groups that this node leads, by number; nil for the others.
func (x *session) leading() []submitter {
	groups := make([]submitter, len(x.shards))
	for i, sh := range x.shards {
		if _, self, _ := sh.reigns.now(); self {
			groups[i], _ = sh.group.(submitter)
		}
	}
	return groups
}

// admit counts a call in. Without one it has been refused, and answered; an error ends the session.
func (x *session) admit(request *lockpb.Call, now time.Time) (*sessionCall, error) {
	op := operationOf(request)
	if op == "" {
		return nil, invalid("calls", fmt.Sprintf("call %d is of no kind that this node knows", request.GetId()))
	}
	c := &sessionCall{session: x, request: request, op: op, began: now, until: now.Add(x.config.Budget)}
	if t := time.Duration(request.GetTimeout()) * time.Millisecond; t > 0 && t < x.config.Budget {
		c.until = now.Add(t - min(t/10, 100*time.Millisecond)) // so that the caller learns what happened
	}
	leases := len(request.GetHeartbeat().GetLeaseIds())
	limit := maxSessionCalls
	if keeps(op) {
		limit += limit / 8
	}
	leave, refused := x.enter(keeps(op))
	x.mu.Lock()
	_, taken := x.calls[request.GetId()]
	switch {
	case taken:
	case x.stopping, x.over:
		refused = refuse(lockpb.Reason_STOPPING, "the node is stopping")
	case refused == nil && len(x.calls)+len(x.answers) >= limit:
		refused = refuse(lockpb.Reason_OVERLOADED, "this session has too many calls in progress").retryAfter(100 * time.Millisecond)
	case refused == nil && x.leases+leases > maxSessionLeases:
		refused = refuse(lockpb.Reason_OVERLOADED, "this session has heartbeats of too many leases in progress").retryAfter(100 * time.Millisecond)
	}
	if refused == nil && !taken {
		c.leave = leave
		x.inside++
		x.leases += leases
		x.calls[request.GetId()] = c
		x.mu.Unlock()
		return c, nil
	}
	x.mu.Unlock()
	if leave != nil {
		leave()
	}
	if taken {
		return nil, invalid("calls", fmt.Sprintf("two calls in progress have the id %d", request.GetId()))
	}
	x.config.Metrics.called(op, refused, time.Since(now))
	x.mu.Lock()
	x.answers = append(x.answers, failed(request.GetId(), refused))
	x.mu.Unlock()
	signal(x.wake)
	return nil, nil
}

func operationOf(call *lockpb.Call) operation {
	switch call.GetKind().(type) {
	case *lockpb.Call_Acquire:
		return opAcquire
	case *lockpb.Call_Renew:
		return opRenew
	case *lockpb.Call_Release:
		return opRelease
	case *lockpb.Call_Cancel:
		return opCancel
	case *lockpb.Call_Heartbeat:
		return opHeartbeat
	case *lockpb.Call_Abandon:
	}
	return ""
}

// keeps reports whether an operation keeps or ends what is held, so that it comes before others under overload.
func keeps(op operation) bool {
	switch op {
	case opRenew, opHeartbeat, opRelease, opCancel, opAdmin:
		return true
	case opAcquire, opBreak, opGet, opList, opHot, opWatch:
	}
	return false
}

// beginHere makes the command of a call that this node can serve by itself, and reports whether it is to be submitted.
// Otherwise the call has been answered, and has no shard, or it is for anywhere.
func (x *session) beginHere(c *sessionCall, leading []submitter) bool {
	sh, cmd, refused := x.commandOf(c)
	if refused != nil {
		x.finish(c, nil, refused)
		return false
	}
	c.shard = sh
	if cmd == nil || leading[sh.number] == nil {
		return false
	}
	if acquire, ok := cmd.(lock.Acquire); ok {
		if cmd, ok = x.prepare(c, acquire); !ok {
			return false
		}
	}
	c.Command, c.Caller = cmd, c
	x.mu.Lock()
	defer x.mu.Unlock()
	x.here.add(c)
	return true
}

// commandOf checks a call, and says for which group it is. A call that takes more than one command has none.
func (x *session) commandOf(c *sessionCall) (*shard, lock.Command, *refusal) {
	switch kind := c.request.GetKind().(type) {
	case *lockpb.Call_Acquire:
		cmd, refused := x.acquisition(x.ctx, kind.Acquire)
		if refused != nil {
			return nil, nil, refused
		}
		return x.of(cmd.Resource), cmd, nil
	case *lockpb.Call_Renew:
		cmd, refused := parseRenew(x.identity, kind.Renew)
		return x.leased(cmd.Lease, cmd, refused)
	case *lockpb.Call_Release:
		cmd, refused := parseRelease(x.identity, kind.Release)
		return x.leased(cmd.Lease, cmd, refused)
	case *lockpb.Call_Cancel:
		return x.shards[0], nil, x.allowCancel(x.ctx)
	case *lockpb.Call_Heartbeat:
		return x.beatOf(c, kind.Heartbeat)
	case *lockpb.Call_Abandon:
	}
	return x.shards[0], nil, nil
}

func (x *session) leased(id lease.ID, cmd lock.Command, refused *refusal) (*shard, lock.Command, *refusal) {
	if refused != nil {
		return nil, nil, refused
	}
	sh, refused := x.ofLease(id)
	return sh, cmd, refused
}

// prepare fills in what the leader adds to an acquire, and registers for the end of its wait.
func (x *session) prepare(c *sessionCall, cmd lock.Acquire) (lock.Acquire, bool) {
	in := c.request.GetAcquire()
	if cmd.AsOf == 0 {
		cmd.AsOf = lock.LeaseTime(c.shard.now())
		in.AsOf = int64(cmd.AsOf) // each attempt says the same
	}
	cmd.Lease = newLeaseID(c.shard.number)
	if cmd.Wait == 0 {
		return cmd, true
	}
	cmd.Call = newCall()
	c.wait = c.shard.group.Await(cmd.Identity, cmd.Client, cmd.Request)
	if len(c.wait.C) > 0 { // over already: its unary form knows what to say
		c.wait.Close()
		return cmd, false
	}
	return cmd, true
}

// abandon ends the interest in a call.
func (x *session) abandon(id uint64) {
	x.mu.Lock()
	c := x.calls[id]
	if c == nil {
		x.mu.Unlock()
		return // answered already
	}
	delete(x.calls, id)
	c.gone = true
	here := c.listed
	cancel := c.cancel
	x.mu.Unlock()
	if cancel != nil {
		cancel()
	}
	if here && x.withdraw(c) {
		x.settled(c)
		x.finish(c, nil, refuse(lockpb.Reason_NO_LEADER, "the call ended before its command was proposed"))
	}
}

// withdraw takes a call's command back, and reports whether it certainly has no effect.
func (x *session) withdraw(c *sessionCall) bool {
	g, ok := c.shard.group.(submitter)
	if !ok || !g.Withdraw(&c.Submission) {
		return false
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.here.remove(c)
	return true
}

// expire answers the calls that have waited for their group for too long, and reports whether any are left.
func (x *session) expire(now time.Time) bool {
	x.mu.Lock()
	var late []*sessionCall
	for c := x.here.first; c != nil; c = c.after {
		if !c.answered && now.After(c.until) {
			late = append(late, c)
		}
	}
	left := x.here.first != nil
	x.mu.Unlock()
	for _, c := range late {
		if x.withdraw(c) {
			x.settled(c)
			x.finish(c, nil, refuse(lockpb.Reason_NO_LEADER, "the call ended before its command was proposed"))
			continue
		}
		x.finish(c, nil, refuse(lockpb.Reason_OUTCOME_UNKNOWN, "the call ended while its command was being committed"))
	}
	return left
}

// finish answers a call, once.
func (x *session) finish(c *sessionCall, answer *lockpb.Answer, refused *refusal) {
	if refused != nil && x.closing.Err() != nil && passing(refused) {
		stopping := refuse(lockpb.Reason_STOPPING, "the node is stopping")
		stopping.detail.Applied = refused.detail.GetApplied()
		refused = stopping
	}
	x.mu.Lock()
	if c.answered {
		x.mu.Unlock()
		return
	}
	c.answered = true
	x.inside--
	if c.gone || refused != nil {
		x.leases -= len(c.request.GetHeartbeat().GetLeaseIds())
	}
	if !c.gone {
		delete(x.calls, c.request.GetId())
		if refused != nil {
			answer = failed(c.request.GetId(), refused)
		}
		answer.Id = c.request.GetId()
		x.answers = append(x.answers, answer)
	}
	x.mu.Unlock()
	c.leave()
	signal(x.wake)
	x.config.Metrics.called(c.op, refused, time.Since(c.began))
}

// unwanted reports whether nobody waits for the answer of a call any more.
func (x *session) unwanted(c *sessionCall) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return c.gone || c.answered
}

// settled ends what a call has registered.
func (*session) settled(c *sessionCall) {
	if c.wait != nil {
		c.wait.Close()
	}
}

// failed is the answer of a refused call.
func failed(id uint64, r *refusal) *lockpb.Answer {
	code := codes.Internal
	if st := outwardOf(r.reason()); st.code != codes.OK {
		code = st.code
	}
	return &lockpb.Answer{Id: id, Kind: &lockpb.Answer_Failure{Failure: &lockpb.Failure{
		Code: int32(code), Message: r.message, Refusal: r.detail,
	}}}
}

// contextOf bounds a call that has a goroutine as its unary form would be by its caller.
func (x *session) contextOf(c *sessionCall) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(x.calling)
	if t := c.request.GetTimeout(); t > 0 {
		ctx, cancel = context.WithDeadline(x.calling, c.began.Add(time.Duration(t)*time.Millisecond))
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	c.cancel = cancel
	if c.gone {
		cancel()
	}
	return ctx, cancel
}
