package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// What errors.Is may be asked about a failed call: one for every lockpb.Reason.
var (
	ErrInvalid          = reason(lockpb.Reason_INVALID)
	ErrHeld             = reason(lockpb.Reason_REASON_HELD)
	ErrWaitTimeout      = reason(lockpb.Reason_WAIT_TIMEOUT)
	ErrAlreadyHeld      = reason(lockpb.Reason_ALREADY_HELD)
	ErrLeaseEnded       = reason(lockpb.Reason_LEASE_ENDED)
	ErrNotOwner         = reason(lockpb.Reason_NOT_OWNER)
	ErrRequestMismatch  = reason(lockpb.Reason_REQUEST_MISMATCH)
	ErrRequestTooOld    = reason(lockpb.Reason_REQUEST_TOO_OLD)
	ErrRequestEnded     = reason(lockpb.Reason_REQUEST_ENDED)
	ErrRequestCancelled = reason(lockpb.Reason_REQUEST_CANCELLED)
	ErrTTLOutOfRange    = reason(lockpb.Reason_TTL_OUT_OF_RANGE)
	ErrWaitTooLong      = reason(lockpb.Reason_WAIT_TOO_LONG)
	ErrModeNotAllowed   = reason(lockpb.Reason_MODE_NOT_ALLOWED)
	ErrTooManyWaiters   = reason(lockpb.Reason_TOO_MANY_WAITERS)
	ErrTooManyRequests  = reason(lockpb.Reason_TOO_MANY_REQUESTS)
	ErrOverloaded       = reason(lockpb.Reason_OVERLOADED)
	ErrNoLeader         = reason(lockpb.Reason_NO_LEADER)
	ErrOutcomeUnknown   = reason(lockpb.Reason_OUTCOME_UNKNOWN)
	ErrStopping         = reason(lockpb.Reason_STOPPING)
	ErrTokensExhausted  = reason(lockpb.Reason_TOKENS_EXHAUSTED)
	ErrNotInitialised   = reason(lockpb.Reason_NOT_INITIALISED)
	ErrPermissionDenied = reason(lockpb.Reason_PERMISSION_DENIED)
	ErrDeadlock         = reason(lockpb.Reason_DEADLOCK)
	ErrTooManyLeases    = reason(lockpb.Reason_TOO_MANY_LEASES)
	ErrRateLimited      = reason(lockpb.Reason_RATE_LIMITED)
	ErrHoldTooLong      = reason(lockpb.Reason_HOLD_TOO_LONG)
	ErrLockDelayed      = reason(lockpb.Reason_LOCK_DELAYED)
	ErrUnauthenticated  = reason(lockpb.Reason_UNAUTHENTICATED)
	ErrMemberExists     = reason(lockpb.Reason_MEMBER_EXISTS)
	ErrNoSuchMember     = reason(lockpb.Reason_NO_SUCH_MEMBER)
	ErrVersionTooLow    = reason(lockpb.Reason_VERSION_TOO_LOW)
	ErrQuorumAtRisk     = reason(lockpb.Reason_QUORUM_AT_RISK)
	ErrNotCaughtUp      = reason(lockpb.Reason_NOT_CAUGHT_UP)
	ErrInternal         = reason(lockpb.Reason_INTERNAL)
)

// What errors.Is may be asked besides.
var (
	// ErrLost is in every error of a lease that ended without Release. The lease's error also says why.
	ErrLost = errors.New("lease lost")
	// ErrExpired is why a lease was lost whose deadline passed before a renewal was answered.
	ErrExpired = errors.New("deadline passed without a renewal")
	// ErrReleased is what a lease's Err tells after Release.
	ErrReleased = errors.New("lease released")
	// ErrClosed is what a closed client's calls return, and why its leases were lost.
	ErrClosed = errors.New("client closed")
	// ErrUnreachable is in the error of a call that no coordinator answered.
	ErrUnreachable = errors.New("coordinator unreachable")
	// ErrNotCoordinator is in the error of a call to a port that speaks something else than gRPC.
	ErrNotCoordinator = errors.New("not a coordinator's gRPC port")
)

// reason is the sentinel of one lockpb.Reason.
type reason lockpb.Reason

func (r reason) Error() string {
	name := strings.TrimPrefix(lockpb.Reason(r).String(), "REASON_")
	return strings.ReplaceAll(strings.ToLower(name), "_", " ")
}

// Error is what every failed call returns: the coordinator's refusal, or what kept it from answering.
// errors.Is finds the sentinel of its Reason, and the context's error where a context ended the call.
type Error struct {
	Op         string         // "acquire", "renew", "release", "cancel", "break", "get", "list", "watch", "hot", "status", "keys"
	Resource   string         // may be empty
	Reason     lockpb.Reason  // REASON_UNSPECIFIED: the coordinator did not answer in this API's terms
	Applied    lockpb.Applied // whether the call took effect: NO, YES, or MAYBE
	Field      string         // for INVALID: which field of the request
	RetryAfter time.Duration  // the coordinator's wish; 0 if it has none
	Holder     *lockpb.Holder // for REASON_HELD, ALREADY_HELD and WAIT_TIMEOUT: one of those that hold it, if known
	Cycle      []string       // for DEADLOCK: the owners that wait for one another, this one's first
	Position   int            // for WAIT_TIMEOUT: the place in the queue at its end; 0 if unknown
	Hint       string         // what to do; may be empty
	Code       codes.Code     // of the gRPC status
	Message    string         // the coordinator's sentence
	Err        error          // underlying cause; may be nil

	final bool // there is no other address that could do better
}

func (e *Error) Error() string {
	s := e.Op
	if e.Resource != "" {
		s += " " + e.Resource
	}
	switch {
	case e.Message != "":
		s += ": " + e.Message
	case e.Reason != lockpb.Reason_REASON_UNSPECIFIED:
		s += ": " + reason(e.Reason).Error()
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	if e.Applied == lockpb.Applied_MAYBE {
		s += " (whether it took effect is unknown)"
	}
	return s
}

// Unwrap gives errors.Is the sentinel of the reason and the cause.
func (e *Error) Unwrap() []error {
	var causes []error
	switch {
	case e.Reason != lockpb.Reason_REASON_UNSPECIFIED:
		causes = append(causes, reason(e.Reason))
	case e.unreachable():
		causes = append(causes, ErrUnreachable)
	}
	if e.Err != nil {
		causes = append(causes, e.Err)
	}
	return causes
}

// Temporary reports whether the same call may well succeed a little later: the coordinator was unreachable,
// overloaded or between leaders. A repeated acquire must carry the same request id.
func (e *Error) Temporary() bool {
	if e.final {
		return false
	}
	switch e.Reason {
	case lockpb.Reason_OVERLOADED, lockpb.Reason_NO_LEADER, lockpb.Reason_OUTCOME_UNKNOWN,
		lockpb.Reason_STOPPING, lockpb.Reason_NOT_INITIALISED, lockpb.Reason_RATE_LIMITED:
		return true
	case lockpb.Reason_REASON_UNSPECIFIED:
		return e.unreachable()
	default:
		return false
	}
}

// unreachable reports whether the call failed on the way and not in this API's terms.
func (e *Error) unreachable() bool {
	if e.Reason != lockpb.Reason_REASON_UNSPECIFIED {
		return false
	}
	switch e.Code {
	case codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted,
		codes.ResourceExhausted, codes.Unknown:
		return true
	default:
		return false
	}
}

// elsewhere reports whether another node might know better.
func (e *Error) elsewhere() bool {
	switch e.Reason {
	case lockpb.Reason_NO_LEADER, lockpb.Reason_STOPPING, lockpb.Reason_OUTCOME_UNKNOWN, lockpb.Reason_NOT_INITIALISED:
		return true
	default:
		return e.unreachable()
	}
}

// newError translates what a gRPC call returned. ctx is the call's; sent says whether anything of it left.
func newError(ctx context.Context, op, resource string, err error, sent bool) *Error {
	st, _ := status.FromError(err)
	e := &Error{Op: op, Resource: resource, Code: st.Code(), Message: st.Message(), Applied: lockpb.Applied_MAYBE}
	for _, d := range st.Details() {
		if r, ok := d.(*lockpb.Refusal); ok {
			e.fill(r)
			return e
		}
	}
	if !sent || reads(op) || refusedAtTheDoor(st.Code()) {
		e.Applied = lockpb.Applied_NO
	}
	switch {
	case ended(ctx) != nil:
		e.Message, e.Err = "", ended(ctx)
	case strings.Contains(st.Message(), "looked like an HTTP/1.1 header"): // golang.org/x/net/http2
		e.Message, e.Err = "", fmt.Errorf("%w; is it the HTTP port?", ErrNotCoordinator)
	case isUntrusted(st):
		e.Message, e.Err = st.Message(), ErrUntrusted
	case st.Code() == codes.Unauthenticated: // by this side, or by something in between
		e.Reason, e.Message = lockpb.Reason_UNAUTHENTICATED, st.Message()
	case st.Code() == codes.PermissionDenied:
		e.Reason, e.Message = lockpb.Reason_PERMISSION_DENIED, st.Message()
	default:
		e.Message = fmt.Sprintf("no coordinator answered (%s)", st.Message())
	}
	return e
}

// ended is why a context has ended. One whose deadline has come counts before it says so itself: the coordinator knows
// the deadline too, and may be the first to end the call.
func ended(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// reads reports whether a call changes nothing, whatever becomes of it.
func reads(op string) bool {
	return slices.Contains([]string{"get", "list", "status", "keys", "watch", "hot"}, op)
}

// refusedAtTheDoor reports whether a call with this outcome was refused before anything was proposed.
func refusedAtTheDoor(c codes.Code) bool {
	return slices.Contains([]codes.Code{
		codes.Unimplemented, codes.Unauthenticated, codes.PermissionDenied, codes.InvalidArgument,
	}, c)
}

func (e *Error) fill(r *lockpb.Refusal) {
	e.Reason, e.Applied = r.GetReason(), r.GetApplied()
	e.Field, e.Holder, e.Hint = r.GetField(), r.GetHolder(), r.GetHint()
	e.Cycle, e.Position = r.GetCycle(), int(r.GetPosition())
	e.RetryAfter = time.Duration(r.GetRetryAfter()) * time.Millisecond
	switch {
	case reads(e.Op):
		e.Applied = lockpb.Applied_NO
	case e.Applied == lockpb.Applied_APPLIED_UNSPECIFIED:
		e.Applied = lockpb.Applied_MAYBE // silence is no promise
	}
}
