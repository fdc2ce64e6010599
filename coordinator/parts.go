package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// part is something that runs as long as the node does. run returns when its ctx is done, or with why it cannot go on.
type part struct {
	name string
	run  func(ctx context.Context) error
}

// stopBound is how long all parts together may take to stop: more than their own bounds add up to.
const stopBound = 30 * time.Second

// runParts starts the parts in order and runs them until ctx is done or one of them ends. Then it stops them in
// reverse order, each after the one that depends on it has ended. What has not ended within bound is named in the error,
// and left behind with what it depends on: the process is to exit then.
func runParts(ctx context.Context, bound time.Duration, parts []part) error {
	type running struct {
		cancel context.CancelFunc
		done   chan error
	}
	ended := make(chan struct{}, len(parts))
	started := make([]running, 0, len(parts))
	for _, p := range parts {
		partCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r := running{cancel, make(chan error, 1)}
		started = append(started, r)
		go func() {
			r.done <- p.run(partCtx)
			ended <- struct{}{}
		}()
	}
	select {
	case <-ctx.Done():
	case <-ended:
	}
	late := time.NewTimer(bound)
	defer late.Stop()
	var failures []error
	for i := len(started) - 1; i >= 0; i-- {
		started[i].cancel()
		select {
		case err := <-started[i].done:
			if err != nil {
				failures = append(failures, fmt.Errorf("%s: %w", parts[i].name, err))
			}
		case <-late.C:
			return errors.Join(append(failures, fmt.Errorf("%s: not stopped within %v", parts[i].name, bound))...)
		}
	}
	return errors.Join(failures...)
}
