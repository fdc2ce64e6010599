package main

import (
	"context"
	"fmt"
	"time"
)

// stopReserve is what a server may take to stop beyond the time that it promises.
const stopReserve = 30 * time.Second

// stopsWithin runs a server, and is its caller's way out when it does not stop within bound of ctx's end: the process
// exits then, whatever still runs.
func stopsWithin(ctx context.Context, bound time.Duration, run func(context.Context) error) error {
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	late := time.NewTimer(bound)
	defer late.Stop()
	select {
	case err := <-done:
		return err
	case <-late.C:
		return fmt.Errorf("not stopped within %v", bound)
	}
}
