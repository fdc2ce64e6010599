package client

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Bounds of the pause between two attempts. It doubles from the first to the second.
const (
	minPause = 50 * time.Millisecond
	maxPause = time.Second
	// maxRetryAfter bounds how long a coordinator's wish is followed.
	maxRetryAfter = 10 * time.Second
)

// pause is the time to wait after the nth failure in a row (from 1), at least as long as the coordinator
// asked. The random half keeps clients that failed together from coming back together.
func pause(nth int, retryAfter time.Duration) time.Duration {
	d := maxPause
	if nth < 6 {
		d = min(minPause<<(nth-1), maxPause)
	}
	d = d/2 + rand.N(d/2+1)
	return max(d, min(retryAfter, maxRetryAfter))
}

// repeat calls attempt until it succeeds, fails for good, or ctx ends. Then the last failure also carries
// ctx's cause, and it is MAYBE if any attempt was. What a node has said lately counts for more than that others
// did not answer.
func repeat(ctx context.Context, attempt func(context.Context) error) error {
	maybe := false
	var said *Error // the last answer of a node
	var saidAt int
	for nth := 1; ; nth++ {
		err := attempt(ctx)
		if err == nil {
			return nil
		}
		e, ok := errors.AsType[*Error](err)
		if !ok {
			return err
		}
		maybe = maybe || e.Applied == lockpb.Applied_MAYBE
		if !e.Temporary() {
			return e
		}
		if e.Reason != lockpb.Reason_REASON_UNSPECIFIED {
			said, saidAt = e, nth
		}
		if sleep(ctx, pause(nth, e.RetryAfter)) {
			continue
		}
		if said != nil && nth-saidAt < lately {
			e = said
		}
		last := *e
		if cause := context.Cause(ctx); !errors.Is(e.Err, cause) {
			last.Err = errors.Join(e.Err, cause)
		}
		if maybe {
			last.Applied = lockpb.Applied_MAYBE
		}
		return &last
	}
}

// lately is for how many attempts an answer is remembered: enough to have asked every node of a cluster.
const lately = 10

// sleep waits for d and reports true, or false as soon as ctx has ended.
func sleep(ctx context.Context, d time.Duration) bool {
	if ctx.Err() != nil {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
