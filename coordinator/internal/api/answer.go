package api

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// refused turns the machine's refusal into the API's. at is the lease time of the entry that refused.
func refused(r lock.Refused, at lock.LeaseTime) *refusal {
	var out *refusal
	switch r.Reason {
	case lock.ReasonHeld:
		out = refuse(lockpb.Reason_REASON_HELD, fmt.Sprintf("%s is held by client %s", r.Holder.Resource, r.Holder.Client))
	case lock.ReasonAlreadyHeld:
		out = refuse(lockpb.Reason_ALREADY_HELD, "this client holds or awaits the resource already")
	case lock.ReasonLeaseEnded:
		out = refuse(lockpb.Reason_LEASE_ENDED, "there is no such lease: it was released, it expired, it was broken, or it never was")
	case lock.ReasonNotOwner:
		out = refuse(lockpb.Reason_NOT_OWNER, "the lease belongs to another identity")
	case lock.ReasonRequestMismatch:
		out = refuse(lockpb.Reason_REQUEST_MISMATCH, "this request_id was used with other parameters")
	case lock.ReasonRequestTooOld:
		out = refuse(lockpb.Reason_REQUEST_TOO_OLD, "the request is older than the cluster remembers, so it was not executed")
	case lock.ReasonRequestEnded:
		out = refuse(lockpb.Reason_REQUEST_ENDED, "the lease or the wait of this request has ended")
	case lock.ReasonRequestCancelled:
		out = refuse(lockpb.Reason_REQUEST_CANCELLED, "the request was cancelled")
	case lock.ReasonTTLTooShort:
		out = outOfRange(lockpb.Reason_TTL_OUT_OF_RANGE, "ttl", "ttl is below the shortest that is allowed here", r.Limit)
	case lock.ReasonTTLTooLong:
		out = outOfRange(lockpb.Reason_TTL_OUT_OF_RANGE, "ttl", "ttl is above the longest that is allowed here", r.Limit)
	case lock.ReasonWaitTooLong:
		out = outOfRange(lockpb.Reason_WAIT_TOO_LONG, "wait_timeout", "wait_timeout is above the longest that is allowed", r.Limit)
	case lock.ReasonModeNotAllowed:
		out = refuse(lockpb.Reason_MODE_NOT_ALLOWED, "the mode is not allowed for this resource")
		out.detail.Field = "mode"
	case lock.ReasonTooManyWaiters:
		out = refuse(lockpb.Reason_TOO_MANY_WAITERS, fmt.Sprintf("%d already wait, and more are not allowed", r.Count))
	case lock.ReasonTooManyRequests:
		out = refuse(lockpb.Reason_TOO_MANY_REQUESTS, fmt.Sprintf("%d requests of this client are remembered", r.Count))
	case lock.ReasonTooManyTenantRequests:
		out = refuse(lockpb.Reason_TOO_MANY_REQUESTS, fmt.Sprintf("%d requests of this tenant are remembered, as many as may be", r.Count))
	case lock.ReasonTokensExhausted:
		out = refuse(lockpb.Reason_TOKENS_EXHAUSTED, "the fencing tokens of this incarnation are used up")
	case lock.ReasonNotInitialised:
		out = refuse(lockpb.Reason_NOT_INITIALISED, "the cluster is not initialised yet")
	case lock.ReasonRequestAhead:
		out = invalid("as_of", "as_of is ahead of this cluster: it is from another one")
	case lock.ReasonDeadlock:
		out = refuse(lockpb.Reason_DEADLOCK, "the request would wait for itself: "+cycle(r.Cycle))
		for _, owner := range r.Cycle {
			out.detail.Cycle = append(out.detail.Cycle, owner.Name)
		}
	case lock.ReasonTooManyLeases:
		out = refuse(lockpb.Reason_TOO_MANY_LEASES, fmt.Sprintf("this tenant holds or awaits %d leases, as many as it may", r.Count))
	case lock.ReasonRateLimited:
		out = refuse(lockpb.Reason_RATE_LIMITED, fmt.Sprintf("this tenant may acquire %d times a second", r.Count)).retryAfter(atLeastOne(r.RetryAfter))
	case lock.ReasonHoldTooLong:
		out = refuse(lockpb.Reason_HOLD_TOO_LONG, fmt.Sprintf("the lease has been renewed to the longest hold, %d ms", r.Limit.Milliseconds()))
	case lock.ReasonLockDelayed:
		out = refuse(lockpb.Reason_LOCK_DELAYED, "the last lease on the resource expired, and it stays closed for a while").retryAfter(atLeastOne(r.RetryAfter))
	case lock.ReasonNoSuchWait:
		out = refuse(lockpb.Reason_REQUEST_ENDED, "the request does not wait for that any more")
	case lock.ReasonNoSuchMember, lock.ReasonPolicyInvalid, lock.ReasonNoSuchPolicy, lock.ReasonTooManyPolicies, lock.ReasonNoSuchKey, lock.ReasonTooManyKeys,
		lock.ReasonMemberInvalid, lock.ReasonTooManyMembers, lock.ReasonOtherCluster, lock.ReasonIncarnationTooLow, lock.ReasonIncarnationTooHigh:
		out = refusedByCluster(r)
	case lock.ReasonLeaseIDTaken, lock.ReasonConfigInvalid:
		out = refuse(lockpb.Reason_INTERNAL, fmt.Sprintf("refused for a fault of this node (reason %d)", r.Reason))
		out.detail.Applied = lockpb.Applied_NO
	default:
		out = refuse(lockpb.Reason_INTERNAL, fmt.Sprintf("refused for reason %d", r.Reason))
		out.detail.Applied = lockpb.Applied_NO
	}
	if r.Holder.Client != "" {
		out.detail.Holder = holder(r.Holder, at)
	}
	return out
}

// refusedByCluster is the answer to an administrator's call that does not fit the cluster.
func refusedByCluster(r lock.Refused) *refusal {
	switch r.Reason {
	case lock.ReasonNoSuchMember:
		return refuse(lockpb.Reason_NO_SUCH_MEMBER, "there is no such member")
	case lock.ReasonPolicyInvalid:
		return invalid("policy", "the policy has a field of the other kind, a bound outside of the cluster's, or a lower bound above an upper one, also with what it inherits or is inherited")
	case lock.ReasonNoSuchPolicy:
		return invalid("policy", "there is no policy of this prefix or tenant")
	case lock.ReasonTooManyPolicies:
		return invalid("policy", fmt.Sprintf("there are %d policies already", r.Count))
	case lock.ReasonNoSuchKey:
		return invalid("key_id", "the cluster does not know this key")
	case lock.ReasonTooManyKeys:
		return invalid("key_id", fmt.Sprintf("there are %d keys already", r.Count))
	case lock.ReasonMemberInvalid:
		return invalid("node", "an id or address is empty or too long")
	case lock.ReasonTooManyMembers:
		return invalid("node", fmt.Sprintf("there are %d members already", r.Count))
	case lock.ReasonOtherCluster:
		return invalid("cluster", "this is another cluster")
	case lock.ReasonIncarnationTooLow:
		return invalid("incarnation", fmt.Sprintf("the incarnation must be above %d", r.Count))
	case lock.ReasonIncarnationTooHigh:
		return invalid("incarnation", fmt.Sprintf("the incarnation may be %d at most", r.Count))
	default:
	}
	return refuse(lockpb.Reason_INTERNAL, fmt.Sprintf("refused for reason %d", r.Reason))
}

// cycle is a deadlock for people: who waits for whom, and back to the first.
func cycle(owners []lock.Owner) string {
	var out strings.Builder
	if len(owners) == 0 {
		return "in a circle"
	}
	for _, o := range owners {
		out.WriteString(o.Name + " waits for ")
	}
	out.WriteString(owners[0].Name)
	return out.String()
}

// atLeastOne keeps a wish to come back later from being rounded to none.
func atLeastOne(d time.Duration) time.Duration { return max(d, time.Millisecond) }

func outOfRange(reason lockpb.Reason, field, message string, limit time.Duration) *refusal {
	out := refuse(reason, fmt.Sprintf("%s, %d ms", message, limit.Milliseconds()))
	out.detail.Field = field
	return out
}

// holder is a lease as others may see it: without its id. One without a token is whom a free resource is kept for.
func holder(h lock.Holder, at lock.LeaseTime) *lockpb.Holder {
	out := &lockpb.Holder{ClientId: string(h.Client), Identity: string(h.Identity), Mode: mode(h.Mode)}
	if h.Token == 0 {
		return out
	}
	out.LeaseHash = h.Hash.String()
	out.FencingToken = uint64(h.Token)
	out.HeldFor = milliseconds(at.Sub(h.Since))
	out.Remaining = milliseconds(h.Deadline.Sub(at))
	return out
}

// lockOf is a resource as others may see it, with at most so many of its waiters.
func lockOf(v lock.View, at lock.LeaseTime, waiters int) *lockpb.Lock {
	out := &lockpb.Lock{
		Resource: string(v.Resource), Waiting: int32(min(v.Waiting, 1<<31-1)), Holding: int32(min(v.Holding, 1<<31-1)),
	}
	if v.ClosedUntil != 0 {
		out.ClosedFor = milliseconds(v.ClosedUntil.Sub(at))
	}
	for _, h := range v.Holders {
		out.Holders = append(out.Holders, holder(h, at))
	}
	for _, w := range v.Waiters[:min(len(v.Waiters), waiters)] {
		out.Waiters = append(out.Waiters, &lockpb.Waiter{
			ClientId: string(w.Client), Identity: string(w.Identity), RequestId: string(w.Request),
			Mode: mode(w.Mode), Attached: w.Attached, Remaining: milliseconds(w.Deadline.Sub(at)),
		})
	}
	return out
}

func mode(m lease.Mode) lockpb.Mode {
	switch m {
	case lease.Exclusive:
		return lockpb.Mode_EXCLUSIVE
	case lease.Shared:
		return lockpb.Mode_SHARED
	}
	return lockpb.Mode_MODE_UNSPECIFIED
}

func requestState(s lock.RequestState) lockpb.RequestState {
	switch s {
	case lock.RequestUnknown:
		return lockpb.RequestState_UNKNOWN
	case lock.RequestWaiting:
		return lockpb.RequestState_WAITING
	case lock.RequestHeld:
		return lockpb.RequestState_HELD
	case lock.RequestEnded:
		return lockpb.RequestState_ENDED
	}
	return lockpb.RequestState_REQUEST_STATE_UNSPECIFIED
}

// expiresAt is for people: the node's wall clock, which no program should trust.
func expiresAt(remaining time.Duration) *timestamppb.Timestamp {
	return timestamppb.New(time.Now().Add(remaining))
}
