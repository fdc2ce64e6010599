package stage

import (
	"context"
	"fmt"
	"time"
)

// pollInterval is how often Await looks.
const pollInterval = 20 * time.Millisecond

// Await calls fn until it is done, fails for good, or ctx ends; then it tells what was lacking.
func Await(ctx context.Context, what string, fn func() (done bool, lacking, final error)) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		done, lacking, final := fn()
		if done || final != nil {
			return final
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%s: %w: %w", what, context.Cause(ctx), lacking)
		}
	}
}

// Pause waits, unless ctx ends; then it returns why.
func Pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
