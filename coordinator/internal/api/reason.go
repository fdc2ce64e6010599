package api

import (
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// outward is how a reason looks from outside. One row for each lockpb.Reason; a test walks all of them.
type outward struct {
	code    codes.Code
	http    int
	applied lockpb.Applied // unless the refusal says otherwise
	hint    string
}

func outwardOf(reason lockpb.Reason) outward {
	no, maybe := lockpb.Applied_NO, lockpb.Applied_MAYBE
	switch reason {
	case lockpb.Reason_INVALID:
		return outward{codes.InvalidArgument, http.StatusBadRequest, no, "correct the field and send it again"}
	case lockpb.Reason_REASON_HELD:
		return outward{codes.FailedPrecondition, http.StatusConflict, no, "set wait_timeout to wait for it"}
	case lockpb.Reason_WAIT_TIMEOUT:
		return outward{codes.Aborted, http.StatusConflict, no, "try again with a new request_id"}
	case lockpb.Reason_ALREADY_HELD:
		return outward{codes.AlreadyExists, http.StatusConflict, no, "this client_id holds or awaits it under another request_id: renew that lease, or cancel that request"}
	case lockpb.Reason_LEASE_ENDED:
		return outward{codes.NotFound, http.StatusNotFound, no, "acquire again; what was written under the old token may be fenced"}
	case lockpb.Reason_NOT_OWNER:
		return outward{codes.PermissionDenied, http.StatusForbidden, no, "only the identity that acquired a lease renews and releases it"}
	case lockpb.Reason_REQUEST_MISMATCH:
		return outward{codes.InvalidArgument, http.StatusUnprocessableEntity, no, "a request_id names one attempt: take a new one for other parameters"}
	case lockpb.Reason_REQUEST_TOO_OLD:
		return outward{codes.FailedPrecondition, http.StatusConflict, no, "take a new request_id, and as_of from a fresh answer"}
	case lockpb.Reason_REQUEST_ENDED:
		return outward{codes.FailedPrecondition, http.StatusConflict, no, "the lease or wait of this request_id has ended: take a new one"}
	case lockpb.Reason_REQUEST_CANCELLED:
		return outward{codes.FailedPrecondition, http.StatusConflict, no, "this request_id was cancelled: take a new one"}
	case lockpb.Reason_TTL_OUT_OF_RANGE:
		return outward{codes.InvalidArgument, http.StatusBadRequest, no, "choose a ttl within the cluster's bounds, in milliseconds"}
	case lockpb.Reason_WAIT_TOO_LONG:
		return outward{codes.InvalidArgument, http.StatusBadRequest, no, "choose a shorter wait_timeout, in milliseconds, and ask again when it is over"}
	case lockpb.Reason_MODE_NOT_ALLOWED:
		return outward{codes.InvalidArgument, http.StatusBadRequest, no, "this cluster grants this resource in another mode only"}
	case lockpb.Reason_TOO_MANY_WAITERS:
		return outward{codes.ResourceExhausted, http.StatusTooManyRequests, no, "the queue of this resource is full: try later"}
	case lockpb.Reason_TOO_MANY_REQUESTS:
		return outward{codes.ResourceExhausted, http.StatusTooManyRequests, no, "too many requests of this client_id or tenant are remembered: slow down, or number and acknowledge them"}
	case lockpb.Reason_OVERLOADED:
		return outward{codes.ResourceExhausted, http.StatusTooManyRequests, no, "try again after retry_after"}
	case lockpb.Reason_NO_LEADER:
		return outward{codes.Unavailable, http.StatusServiceUnavailable, no, "no majority of the coordinators is reachable, or an election is on: leases stand, try again"}
	case lockpb.Reason_OUTCOME_UNKNOWN:
		return outward{codes.Unknown, http.StatusGatewayTimeout, maybe, "send it again: an acquire with the same request_id, the others as they are; after a break, look first"}
	case lockpb.Reason_STOPPING:
		return outward{codes.Unavailable, http.StatusServiceUnavailable, no, "this node is going down: ask another"}
	case lockpb.Reason_TOKENS_EXHAUSTED:
		return outward{codes.FailedPrecondition, http.StatusInternalServerError, no, "an operator has to raise the cluster's incarnation"}
	case lockpb.Reason_NOT_INITIALISED:
		return outward{codes.Unavailable, http.StatusServiceUnavailable, no, "the cluster is being created: try again"}
	case lockpb.Reason_PERMISSION_DENIED:
		return outward{codes.PermissionDenied, http.StatusForbidden, no, "ask an operator for the right"}
	case lockpb.Reason_DEADLOCK:
		return outward{codes.Aborted, http.StatusConflict, no, "release what you hold, and take the locks in one order everywhere"}
	case lockpb.Reason_TOO_MANY_LEASES:
		return outward{codes.ResourceExhausted, http.StatusTooManyRequests, no, "this tenant holds as many leases as its policy allows: release some"}
	case lockpb.Reason_RATE_LIMITED:
		return outward{codes.ResourceExhausted, http.StatusTooManyRequests, no, "this tenant acquires faster than its policy allows: try again after retry_after"}
	case lockpb.Reason_HOLD_TOO_LONG:
		return outward{codes.FailedPrecondition, http.StatusConflict, no, "the policy bounds how long one lease is held: release it and acquire again"}
	case lockpb.Reason_LOCK_DELAYED:
		return outward{codes.FailedPrecondition, http.StatusConflict, no, "its last holder did not release it: try again after retry_after, or set wait_timeout to wait"}
	case lockpb.Reason_UNAUTHENTICATED:
		return outward{codes.Unauthenticated, http.StatusUnauthorized, no, "show a client certificate or a token that this cluster knows"}
	case lockpb.Reason_MEMBER_EXISTS:
		return outward{codes.AlreadyExists, http.StatusConflict, no, "remove the old member first, or give the new node another id"}
	case lockpb.Reason_NO_SUCH_MEMBER:
		return outward{codes.NotFound, http.StatusNotFound, no, "see who is a member with: lychgate cluster status"}
	case lockpb.Reason_VERSION_TOO_LOW:
		return outward{codes.FailedPrecondition, http.StatusConflict, no, "a node of an older release is a member: upgrade or remove it"}
	case lockpb.Reason_QUORUM_AT_RISK:
		return outward{codes.FailedPrecondition, http.StatusConflict, no, "start the members that are down, or let another one join first"}
	case lockpb.Reason_NOT_CAUGHT_UP:
		return outward{codes.FailedPrecondition, http.StatusConflict, no, "start the node with an empty folder, and join it again: it goes on from there"}
	case lockpb.Reason_INTERNAL, lockpb.Reason_REASON_UNSPECIFIED:
	}
	return outward{codes.Internal, http.StatusInternalServerError, maybe, "report this with the node's log"}
}

// reasonName is a reason as people and JSON see it. The prefix only keeps two enums of the proto apart.
func reasonName(reason lockpb.Reason) string {
	return strings.TrimPrefix(reason.String(), "REASON_")
}

// refusal is the one error type of the API's answers. It travels as a gRPC status with a lockpb.Refusal, and is an
// HTTP body with the same fields.
type refusal struct {
	message string
	detail  *lockpb.Refusal
	final   bool // no other attempt of this node's would do better
}

func (r *refusal) Error() string { return reasonName(r.detail.GetReason()) + ": " + r.message }

// GRPCStatus is what google.golang.org/grpc sends for the error.
func (r *refusal) GRPCStatus() *status.Status {
	plain := status.New(outwardOf(r.detail.GetReason()).code, r.message)
	detailed, err := plain.WithDetails(r.detail)
	if err != nil {
		return plain
	}
	return detailed
}

func (r *refusal) reason() lockpb.Reason { return r.detail.GetReason() }

func (r *refusal) maybe() bool { return r.detail.GetApplied() == lockpb.Applied_MAYBE }

// refuse makes a refusal with the reason's own applied and hint.
func refuse(reason lockpb.Reason, message string) *refusal {
	out := outwardOf(reason)
	return &refusal{message: message, detail: &lockpb.Refusal{Reason: reason, Applied: out.applied, Hint: out.hint}}
}

func invalid(field, message string) *refusal {
	r := refuse(lockpb.Reason_INVALID, message)
	r.detail.Field = field
	if field == "" {
		r.detail.Hint = "correct the request and send it again"
	}
	return r
}

// advise gives a refusal a hint of its own.
func (r *refusal) advise(hint string) *refusal {
	r.detail.Hint = hint
	return r
}

// mayBeApplied turns a refusal into one after which the outcome is unknown.
func (r *refusal) mayBeApplied() *refusal {
	r.detail.Applied = lockpb.Applied_MAYBE
	return r
}

func (r *refusal) retryAfter(d time.Duration) *refusal {
	r.detail.RetryAfter = milliseconds(d)
	return r
}
