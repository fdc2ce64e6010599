package client

import (
	"testing"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func queued(t *testing.T, s *session) *inflight {
	t.Helper()
	c, err := s.enqueue(t.Context(), &lockpb.Call{Kind: &lockpb.Call_Release{Release: &lockpb.ReleaseRequest{}}})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Calls that were given up before they were sent do not hold up those behind them.
func TestCallsBehindAbandonedOnesAreSent(t *testing.T) {
	s := newSession(t.Context(), "n1", nil)
	for range 3 * maxMessageCalls {
		s.abandon(queued(t, s))
	}
	live := queued(t, s)
	if s.take() == nil || !live.sent {
		t.Error("a call behind abandoned ones was not sent")
	}
}

// While nothing can be sent, calls that are given up do not pile up.
func TestAbandonedCallsDoNotPileUp(t *testing.T) {
	s := newSession(t.Context(), "n1", nil)
	live := queued(t, s)
	for range 10 * maxSessionCalls {
		s.abandon(queued(t, s))
	}
	if n := len(s.queue); n > 2*maxSessionCalls {
		t.Errorf("%d calls are queued, of which one is wanted", n)
	}
	if s.take() == nil || !live.sent || s.bytes != 0 {
		t.Errorf("the wanted call was sent: %v, %d bytes are left", live.sent, s.bytes)
	}
}
