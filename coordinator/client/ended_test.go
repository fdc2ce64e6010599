package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// due is a context whose deadline has come, and which does not say so yet.
type due struct{ context.Context }

func (due) Deadline() (time.Time, bool) { return time.Now(), true }

func TestADeadlineThatTheCoordinatorSawFirst(t *testing.T) {
	reset := status.Error(codes.Internal, "stream terminated by RST_STREAM with error code: CANCEL")
	if err := newError(due{t.Context()}, "watch", "", reset, true); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want that the deadline has passed", err)
	}
	if err := newError(t.Context(), "watch", "", reset, true); errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v without a deadline", err)
	}
}
