package api

import (
	"context"
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
	"github.com/lychgate/lychgate/coordinator/ticket"
)

// acquireAnywhere is an acquire on the node that holds the client's call. A wait that outlives a leader is attached
// to the next one by repeating the request; a wait that is over is ended by this node.
func (s *Server) acquireAnywhere(ctx context.Context, in *lockpb.AcquireRequest) (*lockpb.AcquireResponse, *refusal) {
	return s.acquireTelling(ctx, in, nil)
}

// acquireTelling also tells how the wait goes.
func (s *Server) acquireTelling(ctx context.Context, in *lockpb.AcquireRequest, tell teller) (*lockpb.AcquireResponse, *refusal) {
	cmd, refused := s.acquisition(ctx, in)
	if refused != nil {
		return nil, refused
	}
	sh := s.of(cmd.Resource)
	if in.AsOf != 0 {
		return sh.acquireAsOf(ctx, in, tell)
	}
	for began := time.Now(); ; {
		in = proto.CloneOf(in)
		in.AsOf = sh.now() // once, so that every attempt says the same
		out, refused := sh.acquireAsOf(ctx, in, tell)
		// A node that has just started knows the leader before its replica has caught up. That its own stamp was too old
		// is not the caller's affair; nothing can be executed under that stamp any more, so it takes another.
		outdated := refused != nil && refused.reason() == lockpb.Reason_REQUEST_TOO_OLD && in.GetSequence() == 0
		if !outdated || time.Since(began) > s.config.Patience || !sleep(ctx, sh.group.Changed(), firstPause) {
			return out, refused
		}
	}
}

// acquireAsOf is an acquire that says how old it is.
func (sh *shard) acquireAsOf(ctx context.Context, in *lockpb.AcquireRequest, tell teller) (*lockpb.AcquireResponse, *refusal) {
	if in.WaitTimeout == 0 {
		ctx, cancel := sh.within(ctx)
		defer cancel()
		return sh.routeAcquire(ctx, in, time.Time{}, tell)
	}
	until := time.Now().Add(duration(in.GetWaitTimeout()))
	waiting, cancel := context.WithDeadline(ctx, until.Add(waitSlack))
	defer cancel()
	out, refused := sh.routeAcquire(waiting, in, until, tell)
	switch {
	case refused == nil || ctx.Err() != nil:
	case refused.maybe() && waiting.Err() != nil:
		return sh.endWait(ctx, in)
	case refused.reason() == lockpb.Reason_REQUEST_ENDED && !time.Now().Before(until):
		return nil, waitIsOver() // it ended between two attempts
	}
	return out, refused
}

func (sh *shard) routeAcquire(
	ctx context.Context, in *lockpb.AcquireRequest, until time.Time, tell teller,
) (*lockpb.AcquireResponse, *refusal) {
	// The wait shrinks with each attempt: what counts is when the client asked.
	remaining := func() *lockpb.AcquireRequest {
		if until.IsZero() {
			return in
		}
		again := proto.CloneOf(in)
		again.WaitTimeout = max(1, milliseconds(time.Until(until)))
		return again
	}
	return route(ctx, sh, call[*lockpb.AcquireResponse]{
		patience: sh.config.Patience,
		waits:    !until.IsZero(),
		here: func(ctx context.Context) (*lockpb.AcquireResponse, *refusal) {
			return sh.acquireHere(ctx, remaining(), tell)
		},
		there: func(ctx context.Context, leader lockpb.LocksClient) (*lockpb.AcquireResponse, error) {
			if tell != nil {
				return followThere(ctx, leader, remaining(), tell)
			}
			return leader.Acquire(ctx, remaining())
		},
	})
}

// endWait ends a wait that the cluster did not end in time. Only a committed cancel makes it certain that no grant
// comes later. It must not end a lease: the client may have sent the request to another node too, and hold what that
// one answered. A request that was granted is answered with its grant, like every other copy of it.
func (sh *shard) endWait(ctx context.Context, in *lockpb.AcquireRequest) (*lockpb.AcquireResponse, *refusal) {
	out, refused := sh.cancelAnywhere(ctx, &lockpb.CancelRequest{
		ClientId: in.GetClientId(), RequestId: in.GetRequestId(), AsOf: in.GetAsOf(), TimedOut: true, Resource: in.GetResource(),
	})
	switch {
	case refused != nil:
		return nil, refuse(lockpb.Reason_OUTCOME_UNKNOWN, "the wait is over, and it could not be cancelled: "+refused.message)
	case out.GetWas() == lockpb.RequestState_HELD:
		ctx, cancel := sh.within(ctx)
		defer cancel()
		return sh.routeAcquire(ctx, in, time.Time{}, nil)
	case out.GetPosition() > 0:
		return nil, waitTimedOut(out.GetPosition(), out.GetHolder())
	}
	return nil, sh.waitTimeout(lease.Resource(in.GetResource()), out.GetIndex())
}

func waitIsOver() *refusal {
	return refuse(lockpb.Reason_WAIT_TIMEOUT, "the wait is over and the resource was not granted")
}

// waitTimedOut says where the wait stood at its end, and who was in its way then.
func waitTimedOut(position int32, blocker *lockpb.Holder) *refusal {
	out := waitIsOver()
	out.detail.Position, out.detail.Holder = position, blocker
	out.message += fmt.Sprintf("; it stood at position %d", position)
	if blocker != nil {
		out.message += fmt.Sprintf(", and client %s was in its way", blocker.GetClientId())
	}
	return out
}

// blocker is who was in the way of a wait; nil if no lease was.
func blocker(h lock.Holder, at lock.LeaseTime) *lockpb.Holder {
	if h.Client == "" {
		return nil
	}
	return holder(h, at)
}

// waitTimeout is what a wait that ended at a log index is answered with. It says who holds the resource now, not who
// did when the wait began, unless this node's replica has not come as far as the end.
func (sh *shard) waitTimeout(resource lease.Resource, index uint64) *refusal {
	out := waitIsOver()
	sh.group.View(func(m *lock.Machine) {
		info := m.Info()
		if holders := m.Get(resource).Holders; info.Index >= index && len(holders) > 0 {
			out.message += fmt.Sprintf("; it is held by client %s", holders[0].Client)
			out.detail.Holder = holder(holders[0], info.Now)
		}
	})
	return out
}

// acquireHere is an acquire on the leader.
func (sh *shard) acquireHere(ctx context.Context, in *lockpb.AcquireRequest, tell teller) (*lockpb.AcquireResponse, *refusal) {
	cmd, refusal := sh.acquisition(ctx, in)
	if refusal != nil {
		return nil, refusal
	}
	cmd.Lease = newLeaseID(sh.number)
	if cmd.AsOf == 0 { // the node that forwarded it has an empty replica
		cmd.AsOf = lock.LeaseTime(sh.now())
	}
	if cmd.Wait == 0 {
		out, err := sh.group.Propose(ctx, cmd)
		if err != nil {
			return nil, groupRefusal(err)
		}
		return sh.acquired(ctx, out, !in.GetNoTicket())
	}
	cmd.Call = newCall()
	wait := sh.group.Await(cmd.Identity, cmd.Client, cmd.Request)
	defer wait.Close()
	select {
	case end := <-wait.C:
		// Nobody would hear of a grant, so the request must not enter the queue: its turn would hold all others up.
		if end.Err != nil {
			return nil, groupRefusal(end.Err)
		}
		return sh.waitEnded(ctx, end, !in.GetNoTicket()) // of an earlier copy, in this moment
	default:
	}
	out, err := sh.group.Propose(ctx, cmd)
	if err != nil {
		if refusal = groupRefusal(err); refusal.maybe() && ctx.Err() != nil {
			sh.detach(ctx, cmd)
		}
		return nil, refusal
	}
	waiting, waits := out.Result.(lock.Waiting)
	if !waits {
		return sh.acquired(ctx, out, !in.GetNoTicket())
	}
	moved, leave := sh.progress(cmd, waiting, out, tell)
	defer leave()
	return sh.hang(ctx, cmd, wait, !in.GetNoTicket(), tell, moved)
}

// hang keeps the call until its wait ends, its caller goes, or leadership is lost, and tells meanwhile what it hears.
func (sh *shard) hang(
	ctx context.Context, cmd lock.Acquire, wait *group.Wait, ticket bool, tell teller, moved <-chan *lockpb.Progress,
) (*lockpb.AcquireResponse, *refusal) {
	for {
		select {
		case end := <-wait.C:
			return sh.waitEnded(ctx, end, ticket)
		case p := <-moved:
			tell(p)
		case <-ctx.Done():
			sh.detach(ctx, cmd)
			return nil, refuse(lockpb.Reason_OUTCOME_UNKNOWN, "the call ended while it waited; the request keeps its place for a short while")
		}
	}
}

// detach tells the cluster that the call is gone, so that nothing is granted to nobody. It is done before the
// handler returns, whatever became of its context.
func (sh *shard) detach(ctx context.Context, cmd lock.Acquire) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sh.config.Budget)
	defer cancel()
	_, err := sh.group.Propose(ctx, lock.Detach{
		Identity: cmd.Identity, Client: cmd.Client, Request: cmd.Request, Call: cmd.Call,
	})
	if err != nil { // the next leader detaches everybody
		sh.config.Logger.Debug("detach not committed", "resource", cmd.Resource, "error", err)
	}
}

func (sh *shard) waitEnded(ctx context.Context, end group.End, ticket bool) (*lockpb.AcquireResponse, *refusal) {
	if end.Err != nil {
		// The request stands in the queue, wherever the leader is now.
		return nil, groupRefusal(end.Err).mayBeApplied()
	}
	switch event := end.Event.(type) {
	case lock.LeaseGranted:
		return sh.confirm(ctx, event.Grant, true, ticket)
	case lock.WaitEnded:
		switch event.Cause {
		case lock.WaitTimedOut:
			if event.Position > 0 {
				return nil, waitTimedOut(int32(min(event.Position, 1<<31-1)), blocker(event.Blocker, end.Now))
			}
			return nil, sh.waitTimeout(event.Resource, end.Index)
		case lock.WaitCancelled:
			return nil, refuse(lockpb.Reason_REQUEST_CANCELLED, "the request was cancelled while it waited")
		case lock.WaitAbandoned:
			return nil, refuse(lockpb.Reason_REQUEST_ENDED, "the request lost its place, because its call was away for too long")
		case lock.WaitDeadlocked:
			return nil, refused(lock.Refused{Reason: lock.ReasonDeadlock, Cycle: event.Cycle}, end.Now)
		case lock.WaitRecovered:
			return nil, refuse(lockpb.Reason_REQUEST_ENDED, "the cluster was recovered from a snapshot, which ended every lease and wait")
		}
	default:
	}
	return nil, refuse(lockpb.Reason_INTERNAL, fmt.Sprintf("a wait ended with %T", end.Event))
}

// acquired answers from the result of a committed acquire.
func (sh *shard) acquired(ctx context.Context, out group.Outcome, ticket bool) (*lockpb.AcquireResponse, *refusal) {
	switch result := out.Result.(type) {
	case lock.Granted:
		if result.Retried {
			return sh.confirm(ctx, result.Grant, false, ticket)
		}
		return sh.grantAnswer(result.Grant, out, false, ticket)
	case lock.Refused:
		return nil, refused(result, out.Now)
	case lock.Waiting: // an earlier copy waits, and this one does not
		return nil, refuse(lockpb.Reason_REASON_HELD, "an earlier copy of this request waits in the queue").mayBeApplied()
	default:
	}
	return nil, unexpected("Acquire", out.Result)
}

// confirm renews a lease that was granted before this moment, because its caller has heard nothing of it: it may
// have been granted late, for a claim window only, and in any case the caller is promised a whole TTL.
func (sh *shard) confirm(ctx context.Context, grant lock.Grant, late, ticket bool) (*lockpb.AcquireResponse, *refusal) {
	out, err := sh.group.Propose(ctx, lock.Renew{Identity: grant.Identity, Lease: grant.Lease})
	if err != nil {
		return nil, groupRefusal(err).mayBeApplied() // the grant was, and a retry finds it
	}
	switch result := out.Result.(type) {
	case lock.Renewed:
		return sh.grantAnswer(result.Grant, out, !late, ticket)
	case lock.Refused:
		switch result.Reason {
		case lock.ReasonLeaseEnded:
			return nil, refuse(lockpb.Reason_REQUEST_ENDED, "the lease was granted and ended again before the answer could be given")
		case lock.ReasonHoldTooLong: // it stands as long as it can, and no shorter than when it was reported
			return sh.grantAnswer(grant, out, !late, ticket)
		default:
		}
		return nil, refused(result, out.Now)
	default:
	}
	return nil, unexpected("Renew", out.Result)
}

// grantAnswer is the answer to an acquire, with its ticket if that is wanted.
func (sh *shard) grantAnswer(grant lock.Grant, out group.Outcome, retried, ticket bool) (*lockpb.AcquireResponse, *refusal) {
	var signed string
	if ticket {
		var refusal *refusal
		if signed, refusal = sh.sign(grant); refusal != nil {
			return nil, refusal
		}
	}
	remaining := grant.Deadline.Sub(out.Now)
	return &lockpb.AcquireResponse{
		LeaseId:      grant.Lease.String(),
		FencingToken: uint64(grant.Token),
		ExpiresAt:    expiresAt(remaining),
		Ttl:          milliseconds(grant.TTL),
		Ticket:       signed,
		Remaining:    milliseconds(remaining),
		Resource:     string(grant.Resource),
		Mode:         mode(grant.Mode),
		Retried:      retried,
		AsOf:         int64(out.Now),
		Index:        out.Index,
	}, nil
}

// sign makes the ticket of a grant. It happens here and not in the log: the private key never leaves the node.
func (sh *shard) sign(grant lock.Grant) (string, *refusal) {
	signed, err := sh.signer.Load().Sign(ticket.Claims{
		Cluster:     sh.clusterName(),
		Incarnation: grant.Token.Incarnation(),
		Group:       sh.number,
		Resource:    grant.Resource,
		Token:       grant.Token,
		Mode:        grant.Mode,
		Lease:       grant.Lease.Hash(),
		Client:      ticket.ClientHash(grant.Identity, grant.Client),
	})
	if err != nil {
		sh.config.Logger.Error("ticket not signed", "resource", grant.Resource, "error", err)
		return "", refuse(lockpb.Reason_INTERNAL, "the lease was granted, but its ticket could not be signed")
	}
	return signed, nil
}

func unexpected(command string, result lock.Result) *refusal {
	return refuse(lockpb.Reason_INTERNAL, fmt.Sprintf("%s was answered with %T", command, result))
}
