package coordinator

import (
	"context"
	"errors"
	"fmt"
)

// part is something that runs as long as the node does. run returns when its ctx is done, or with why it cannot go on.
type part struct {
	name string
	run  func(ctx context.Context) error
}

// runParts starts the parts in order and runs them until ctx is done or one of them ends. Then it stops them in
// reverse order, each after the one that depends on it has ended.
func runParts(ctx context.Context, parts []part) error {
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
	var failures []error
	for i := len(started) - 1; i >= 0; i-- {
		started[i].cancel()
		if err := <-started[i].done; err != nil {
			failures = append(failures, fmt.Errorf("%s: %w", parts[i].name, err))
		}
	}
	return errors.Join(failures...)
}
