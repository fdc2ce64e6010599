package client_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/client/clienttest"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// sentinels is every reason of the API; a new one fails the test until it is here.
var sentinels = map[lockpb.Reason]error{
	lockpb.Reason_INVALID:           client.ErrInvalid,
	lockpb.Reason_REASON_HELD:       client.ErrHeld,
	lockpb.Reason_WAIT_TIMEOUT:      client.ErrWaitTimeout,
	lockpb.Reason_ALREADY_HELD:      client.ErrAlreadyHeld,
	lockpb.Reason_LEASE_ENDED:       client.ErrLeaseEnded,
	lockpb.Reason_NOT_OWNER:         client.ErrNotOwner,
	lockpb.Reason_REQUEST_MISMATCH:  client.ErrRequestMismatch,
	lockpb.Reason_REQUEST_TOO_OLD:   client.ErrRequestTooOld,
	lockpb.Reason_REQUEST_ENDED:     client.ErrRequestEnded,
	lockpb.Reason_REQUEST_CANCELLED: client.ErrRequestCancelled,
	lockpb.Reason_TTL_OUT_OF_RANGE:  client.ErrTTLOutOfRange,
	lockpb.Reason_WAIT_TOO_LONG:     client.ErrWaitTooLong,
	lockpb.Reason_MODE_NOT_ALLOWED:  client.ErrModeNotAllowed,
	lockpb.Reason_TOO_MANY_WAITERS:  client.ErrTooManyWaiters,
	lockpb.Reason_TOO_MANY_REQUESTS: client.ErrTooManyRequests,
	lockpb.Reason_OVERLOADED:        client.ErrOverloaded,
	lockpb.Reason_NO_LEADER:         client.ErrNoLeader,
	lockpb.Reason_OUTCOME_UNKNOWN:   client.ErrOutcomeUnknown,
	lockpb.Reason_STOPPING:          client.ErrStopping,
	lockpb.Reason_TOKENS_EXHAUSTED:  client.ErrTokensExhausted,
	lockpb.Reason_NOT_INITIALISED:   client.ErrNotInitialised,
	lockpb.Reason_PERMISSION_DENIED: client.ErrPermissionDenied,
	lockpb.Reason_INTERNAL:          client.ErrInternal,
	lockpb.Reason_DEADLOCK:          client.ErrDeadlock,
	lockpb.Reason_TOO_MANY_LEASES:   client.ErrTooManyLeases,
	lockpb.Reason_RATE_LIMITED:      client.ErrRateLimited,
	lockpb.Reason_HOLD_TOO_LONG:     client.ErrHoldTooLong,
	lockpb.Reason_LOCK_DELAYED:      client.ErrLockDelayed,
	lockpb.Reason_UNAUTHENTICATED:   client.ErrUnauthenticated,
	lockpb.Reason_MEMBER_EXISTS:     client.ErrMemberExists,
	lockpb.Reason_NO_SUCH_MEMBER:    client.ErrNoSuchMember,
	lockpb.Reason_VERSION_TOO_LOW:   client.ErrVersionTooLow,
	lockpb.Reason_QUORUM_AT_RISK:    client.ErrQuorumAtRisk,
	lockpb.Reason_NOT_CAUGHT_UP:     client.ErrNotCaughtUp,
}

func TestEveryReasonHasItsSentinel(t *testing.T) {
	temporary := map[lockpb.Reason]bool{
		lockpb.Reason_OVERLOADED: true, lockpb.Reason_NO_LEADER: true, lockpb.Reason_OUTCOME_UNKNOWN: true,
		lockpb.Reason_STOPPING: true, lockpb.Reason_NOT_INITIALISED: true, lockpb.Reason_RATE_LIMITED: true,
	}
	for number, name := range lockpb.Reason_name {
		reason := lockpb.Reason(number)
		if reason == lockpb.Reason_REASON_UNSPECIFIED {
			continue
		}
		inBubble(t, func(t *testing.T, s *clienttest.Server) {
			s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
				return nil, clienttest.Refuse(reason, lockpb.Applied_NO)
			})
			c := dial(t, s, client.Config{})
			_, err := c.Locks().Get(t.Context(), &lockpb.GetRequest{Resource: resource})
			e, ok := errors.AsType[*client.Error](err)
			if !ok || e.Reason != reason || e.Applied != lockpb.Applied_NO || e.Op != "get" || e.Resource != resource {
				t.Fatalf("%s: got %+v", name, err)
			}
			if e.Temporary() != temporary[reason] {
				t.Errorf("%s: temporary is %v", name, e.Temporary())
			}
			for other, sentinel := range sentinels {
				if errors.Is(err, sentinel) != (other == reason) {
					t.Errorf("%s is %v: %v", name, sentinel, errors.Is(err, sentinel))
				}
			}
			if sentinels[reason] == nil {
				t.Errorf("%s has no sentinel", name)
			}
		})
	}
}

func TestErrorsOfTheWay(t *testing.T) {
	for _, tt := range []struct {
		name      string
		err       error
		temporary bool
		applied   lockpb.Applied
	}{
		{"reset", status.Error(codes.Unavailable, "connection reset"), true, lockpb.Applied_MAYBE},
		{"timeout", status.Error(codes.DeadlineExceeded, "slow"), true, lockpb.Applied_MAYBE},
		{"unknown method", status.Error(codes.Unimplemented, "no such method"), false, lockpb.Applied_NO},
		{"no certificate", status.Error(codes.Unauthenticated, "who are you"), false, lockpb.Applied_NO},
		{"bug", status.Error(codes.Internal, "oops"), false, lockpb.Applied_MAYBE},
	} {
		inBubble(t, func(t *testing.T, s *clienttest.Server) {
			s.Intercept(func(context.Context, clienttest.Call, clienttest.Handler) (any, error) { return nil, tt.err })
			_, err := dial(t, s, client.Config{}).Locks().Renew(t.Context(), &lockpb.RenewRequest{})
			e, ok := errors.AsType[*client.Error](err)
			if !ok || e.Temporary() != tt.temporary || e.Applied != tt.applied ||
				errors.Is(err, client.ErrUnreachable) != tt.temporary {
				t.Errorf("%s: got %+v", tt.name, err)
			}
		})
	}
}

func TestErrorCarriesTheRefusal(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		st, err := status.New(codes.ResourceExhausted, "queues are full").WithDetails(&lockpb.Refusal{
			Reason: lockpb.Reason_OVERLOADED, Applied: lockpb.Applied_NO, RetryAfter: 700, Hint: "slow down",
		})
		if err != nil {
			t.Fatal(err)
		}
		s.Intercept(func(context.Context, clienttest.Call, clienttest.Handler) (any, error) { return nil, st.Err() })
		c := dial(t, s, client.Config{Patience: 3 * time.Second})
		_, err = c.Get(t.Context(), resource)
		e, ok := errors.AsType[*client.Error](err)
		if !ok || e.RetryAfter != 700*time.Millisecond || e.Hint != "slow down" || !strings.Contains(e.Error(), "queues are full") {
			t.Fatalf("got %+v", err)
		}
		if n := len(s.Calls("Get")); n < 3 || n > 5 { // the coordinator's wish is followed
			t.Errorf("asked %d times in 3s, want one in 700ms", n)
		}
	})
}

// One attempt may have taken effect and the others certainly have not: then the call may have.
func TestOneUnknownAttemptMakesTheCallUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		var calls atomic.Int32
		s.Intercept(func(context.Context, clienttest.Call, clienttest.Handler) (any, error) {
			if calls.Add(1) == 1 {
				return nil, status.Error(codes.Unavailable, "connection reset")
			}
			return nil, clienttest.Refuse(lockpb.Reason_NO_LEADER, lockpb.Applied_NO)
		})
		_, err := dial(t, s, client.Config{Patience: 3 * time.Second}).RenewLease(t.Context(), lease.ID{1}, 0)
		e, ok := errors.AsType[*client.Error](err)
		if !ok || e.Applied != lockpb.Applied_MAYBE || e.Reason != lockpb.Reason_NO_LEADER {
			t.Errorf("got %+v, want NO_LEADER, unknown", err)
		}
	})
}

// A break whose outcome is unknown must not be repeated: the next one would end the successor's lease.
func TestBreakIsNotRepeatedBlindly(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			_, _ = next(ctx)
			return nil, status.Error(codes.Unavailable, "connection reset")
		})
		_, err := dial(t, s, client.Config{}).Break(t.Context(), resource)
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Applied != lockpb.Applied_MAYBE {
			t.Errorf("got %v, want an unknown outcome", err)
		}
		if n := len(s.Calls("Break")); n != 1 {
			t.Errorf("sent %d times, want once", n)
		}
	})
}
