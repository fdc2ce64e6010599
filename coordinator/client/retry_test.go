package client

import (
	"testing"
	"time"
)

func TestPause(t *testing.T) {
	for _, tt := range []struct {
		nth        int
		retryAfter time.Duration
		low, high  time.Duration
	}{
		{1, 0, 25 * time.Millisecond, 50 * time.Millisecond},
		{2, 0, 50 * time.Millisecond, 100 * time.Millisecond},
		{5, 0, 400 * time.Millisecond, 800 * time.Millisecond},
		{6, 0, 500 * time.Millisecond, time.Second},
		{1 << 40, 0, 500 * time.Millisecond, time.Second},
		{1, 3 * time.Second, 3 * time.Second, 3 * time.Second},
		{1, time.Hour, maxRetryAfter, maxRetryAfter},
	} {
		for range 100 {
			if got := pause(tt.nth, tt.retryAfter); got < tt.low || got > tt.high {
				t.Errorf("pause %d after %v: got %v, want %v to %v", tt.nth, tt.retryAfter, got, tt.low, tt.high)
			}
		}
	}
}

func TestNumbersAcknowledgeInOrder(t *testing.T) {
	n := numbers{on: true}
	for want := uint64(1); want <= 3; want++ {
		if got, acked := n.begin(); got != want || acked != 0 {
			t.Fatalf("got %d, acknowledged %d, want %d, 0", got, acked, want)
		}
	}
	n.end(2)
	n.end(3)
	if _, acked := n.begin(); acked != 0 {
		t.Errorf("acknowledged %d while 1 may be sent again", acked)
	}
	n.end(1)
	if _, acked := n.begin(); acked != 3 {
		t.Errorf("acknowledged %d, want 3", acked)
	}
}

// The clock of a client that was given none must run on; both of its two forms.
func TestClocksRun(t *testing.T) {
	for _, c := range []Clock{systemClock(), monotonic{start: time.Now()}} {
		first := c.Now()
		deadline := time.Now().Add(5 * time.Second)
		for c.Now() <= first {
			if time.Now().After(deadline) {
				t.Fatalf("%T stands still", c)
			}
		}
	}
}
