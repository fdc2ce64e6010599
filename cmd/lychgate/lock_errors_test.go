package main

import (
	"strings"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Whatever stands in the way of an acquire and may be gone later is 75, and is told in the words of the command line.
func TestWhatMayBeLaterIs75(t *testing.T) {
	for reason, want := range map[lockpb.Reason]int{
		lockpb.Reason_REASON_HELD: exitNotObtained, lockpb.Reason_WAIT_TIMEOUT: exitNotObtained, lockpb.Reason_ALREADY_HELD: exitNotObtained,
		lockpb.Reason_LOCK_DELAYED: exitNotObtained, lockpb.Reason_TOO_MANY_LEASES: exitNotObtained, lockpb.Reason_RATE_LIMITED: exitNotObtained,
		lockpb.Reason_DEADLOCK: exitNotObtained, lockpb.Reason_TOO_MANY_WAITERS: exitNotObtained, lockpb.Reason_TOO_MANY_REQUESTS: exitNotObtained,
		lockpb.Reason_OVERLOADED: exitNotObtained, lockpb.Reason_NO_LEADER: exitNotObtained, lockpb.Reason_OUTCOME_UNKNOWN: exitNotObtained,
		lockpb.Reason_INVALID: exitUsage, lockpb.Reason_TTL_OUT_OF_RANGE: exitUsage, lockpb.Reason_WAIT_TOO_LONG: exitUsage,
		lockpb.Reason_PERMISSION_DENIED: exitFailure, lockpb.Reason_TOKENS_EXHAUSTED: exitFailure, lockpb.Reason_REQUEST_ENDED: exitFailure,
	} {
		if got := exitCodeFor(&client.Error{Op: "acquire", Resource: "a", Reason: reason}); got != want {
			t.Errorf("%s: exit code %d, want %d", reason, got, want)
		}
		if got := exitCodeFor(&client.Error{Op: "get", Resource: "a", Reason: reason}); got == exitNotObtained {
			t.Errorf("%s: a look at a lock has exit code %d", reason, got)
		}
	}
}

func TestErrorsAreToldInFlagsAndSeconds(t *testing.T) {
	for want, e := range map[string]*client.Error{
		"acquire a: the last lease on it expired, and it stays closed for another 3.3s; try again in 3.3s, or wait for it with --wait": {
			Reason: lockpb.Reason_LOCK_DELAYED, RetryAfter: 3210 * time.Millisecond, Hint: "set wait_timeout",
		},
		"acquire a: 50 times a second; try again in 100ms": {
			Reason: lockpb.Reason_RATE_LIMITED, RetryAfter: time.Millisecond, Message: "50 times a second", Hint: "after retry_after",
		},
		"acquire a: full; try again later": {Reason: lockpb.Reason_OVERLOADED, Message: "full", Hint: "after retry_after"},
		"acquire a: this --request-id was used; take a new --request-id": {
			Reason: lockpb.Reason_REQUEST_MISMATCH, Message: "this request_id was used", Hint: "take a new request_id",
		},
		"acquire a: the longest hold, 1m0s; release it": {
			Reason: lockpb.Reason_HOLD_TOO_LONG, Message: "the longest hold, 60000 ms", Hint: "release it",
		},
	} {
		e.Op, e.Resource = "acquire", "a"
		if got := explain(e, &target{}).Error(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		for _, word := range []string{"retry_after", "wait_timeout", "request_id"} {
			if got := explain(e, &target{waitGiven: true}).Error(); strings.Contains(got, word) {
				t.Errorf("%s: is the API's word %s", got, word)
			}
		}
	}
}
