package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/client/clienttest"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// limitHold has a server's leases end by a policy, most after their grant.
func limitHold(s *clienttest.Server, most time.Duration) {
	var granted time.Time
	refusal := &lockpb.Refusal{Reason: lockpb.Reason_HOLD_TOO_LONG, Applied: lockpb.Applied_NO}
	clip := func(remaining int32) int32 {
		return min(remaining, int32(time.Until(granted.Add(most)).Milliseconds()))
	}
	s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
		end := granted.Add(most)
		if renews(call) && time.Until(end) < s.Deadline(resource).Sub(call.At)+time.Millisecond {
			if call.Method == "Renew" {
				return nil, clienttest.Refuse(refusal.Reason, refusal.Applied)
			}
			m := call.Request.(*lockpb.HeartbeatRequest)
			return &lockpb.HeartbeatResponse{Beats: []*lockpb.Beat{{LeaseId: m.GetLeaseIds()[0], Refusal: refusal}}}, nil
		}
		answer, err := next(ctx)
		switch a := answer.(type) {
		case *lockpb.AcquireResponse:
			if err == nil && !a.GetRetried() {
				granted = time.Now()
				a.Remaining = clip(a.GetRemaining())
			}
		case *lockpb.HeartbeatResponse:
			a.Beats[0].Remaining = clip(a.GetBeats()[0].GetRemaining())
		case *lockpb.RenewResponse:
			a.Remaining = clip(a.GetRemaining())
		}
		return answer, err
	})
}

// A policy may end a hold before the TTL does: the lease stands for as long as it was granted, is not renewed beyond it, and
// says why it ended.
func TestHoldThatItsPolicyEnds(t *testing.T) {
	for _, tt := range []struct {
		name string
		most time.Duration
		opts []client.Option
		sent int // renewals at least and at most
		up   int
	}{
		{"below the TTL", 12 * time.Second, nil, 1, 2},
		{"below the TTL, without waiting", 12 * time.Second, []client.Option{client.Wait(0)}, 1, 1},
		{"far below the TTL", time.Second, []client.Option{client.Wait(0)}, 1, 1},
		{"above the TTL", 50 * time.Second, nil, 2, 4},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *clienttest.Server) {
				limitHold(s, tt.most)
				begin := time.Now()
				l := acquire(t, dial(t, s, client.Config{TTL: 30 * time.Second}), tt.opts...)
				time.Sleep(tt.most - tt.most/4)
				if l.Err() != nil || l.Token() == 0 {
					t.Fatalf("a quarter before its end: %v", l.Err())
				}
				open(t, "the warning", l.Warning())
				within(t, tt.most/4, "the warning", l.Warning())
				if err := l.Unrenewed(); l.Err() != nil || !errors.Is(err, client.ErrHoldTooLong) {
					t.Errorf("at the warning: got %v, not renewed for %v", l.Err(), err)
				}
				within(t, tt.most/4, "the end", l.Done())
				held := time.Since(begin)
				if held > tt.most || held < tt.most-100*time.Millisecond {
					t.Errorf("held for %v, want %v", held, tt.most)
				}
				err := l.Err()
				if !errors.Is(err, client.ErrLost) || !errors.Is(err, client.ErrHoldTooLong) || errors.Is(err, client.ErrExpired) ||
					!strings.Contains(err.Error(), "held as long as its policy allows") {
					t.Errorf("got %v, want the policy", err)
				}
				if n := len(renewals(s)); n < tt.sent || n > tt.up {
					t.Errorf("%d renewals, want %d to %d", n, tt.sent, tt.up)
				}
			})
		})
	}
}
