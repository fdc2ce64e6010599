package api

import (
	"errors"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Every reason of the API looks deliberate from outside: over gRPC, over HTTP, and with advice.
func TestEveryReasonHasAForm(t *testing.T) {
	for number, name := range lockpb.Reason_name {
		reason := lockpb.Reason(number)
		if reason == lockpb.Reason_REASON_UNSPECIFIED {
			continue
		}
		out := outwardOf(reason)
		if out.hint == "" || out.http < 400 || out.code == codes.OK {
			t.Errorf("%s: %+v", name, out)
		}
		if reason != lockpb.Reason_INTERNAL && out.code == codes.Internal {
			t.Errorf("%s has no row of its own", name)
		}
		if maybe := out.applied == lockpb.Applied_MAYBE; maybe != (reason == lockpb.Reason_OUTCOME_UNKNOWN || reason == lockpb.Reason_INTERNAL) {
			t.Errorf("%s: applied %v", name, out.applied)
		}
		if strings.HasPrefix(reasonName(reason), "REASON_") {
			t.Errorf("%s is shown as %s", name, reasonName(reason))
		}
		checkTravels(t, refuse(reason, "a message").retryAfter(time.Second))
	}
}

// checkTravels sends a refusal the way it goes between nodes, and compares.
func checkTravels(t *testing.T, r *refusal) {
	t.Helper()
	err := status.Convert(r).Err()
	got := received(err, "n1")
	if got.reason() != r.reason() || got.message != r.message || got.detail.GetApplied() != r.detail.GetApplied() ||
		got.detail.GetRetryAfter() != 1000 || got.detail.GetHint() != r.detail.GetHint() {
		t.Errorf("sent %v, received %v", r.detail, got.detail)
	}
	recorder := httptest.NewRecorder()
	writeRefusal(recorder, r)
	if recorder.Code != outwardOf(r.reason()).http || recorder.Header().Get("Retry-After") != "1" {
		t.Errorf("%s: HTTP %d, Retry-After %q", reasonName(r.reason()), recorder.Code, recorder.Header().Get("Retry-After"))
	}
}

// Every refusal of the state machine has a reason of the API, and only faults of a node are internal.
func TestEveryMachineReasonIsMapped(t *testing.T) {
	seen := 0
	for reason := lock.Reason(1); !strings.HasPrefix(reason.String(), "unknown"); reason++ {
		seen++
		out := refused(lock.Refused{Reason: reason, Holder: lock.Holder{Client: "c"}}, 0)
		internal := out.reason() == lockpb.Reason_INTERNAL
		if fault := reason == lock.ReasonLeaseIDTaken || reason == lock.ReasonConfigInvalid; internal != fault {
			t.Errorf("%s became %s", reason, reasonName(out.reason()))
		}
		if out.detail.GetApplied() != lockpb.Applied_NO {
			t.Errorf("%s: applied %v; a refusal changes nothing", reason, out.detail.GetApplied())
		}
		if out.detail.GetHolder().GetClientId() != "c" {
			t.Errorf("%s lost its holder", reason)
		}
	}
	if seen < 15 {
		t.Errorf("walked only %d reasons", seen)
	}
}

func TestEveryGroupKindIsMapped(t *testing.T) {
	seen := 0
	for kind := group.Kind(1); !strings.HasPrefix(kind.String(), "kind("); kind++ {
		seen++
		e := &group.Error{Kind: kind}
		out := groupRefusal(e)
		if out.reason() == lockpb.Reason_INTERNAL {
			t.Errorf("%s has no reason", kind)
		}
		if out.maybe() != e.MaybeApplied() {
			t.Errorf("%s: applied %v, the group says maybe = %v", kind, out.detail.GetApplied(), e.MaybeApplied())
		}
	}
	if seen < 5 {
		t.Errorf("walked only %d kinds", seen)
	}
	if got := groupRefusal(errors.New("?")); got.reason() != lockpb.Reason_INTERNAL || !got.maybe() {
		t.Errorf("an error of no kind became %v", got.detail)
	}
}

func TestOutcomesOfMetrics(t *testing.T) {
	for name, test := range map[string]struct {
		op      operation
		refused *refusal
		want    string
	}{
		"granted":  {opAcquire, nil, outcomeGranted},
		"renewed":  {opRenew, nil, outcomeDone},
		"timeout":  {opAcquire, waitIsOver(), outcomeTimeout},
		"held":     {opAcquire, refuse(lockpb.Reason_REASON_HELD, ""), outcomeConflict},
		"ended":    {opRenew, refuse(lockpb.Reason_LEASE_ENDED, ""), outcomeRefused},
		"unknown":  {opAcquire, refuse(lockpb.Reason_OUTCOME_UNKNOWN, ""), outcomeUnknown},
		"invalid":  {opAcquire, invalid("ttl", ""), outcomeRefused},
		"stopping": {opAcquire, refuse(lockpb.Reason_STOPPING, "").mayBeApplied(), outcomeUnknown},
	} {
		if got := outcome(test.op, test.refused); got != test.want {
			t.Errorf("%s: got %s, want %s", name, got, test.want)
		}
	}
}
