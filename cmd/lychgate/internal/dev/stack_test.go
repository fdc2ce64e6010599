package dev

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

func TestStackStopsInTheOppositeOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStack(t.Context())
		var mu sync.Mutex
		var ended []string
		for _, name := range []string{"a", "b", "c"} {
			s.run(name, func(ctx context.Context) error {
				<-ctx.Done()
				mu.Lock()
				defer mu.Unlock()
				ended = append(ended, name)
				return nil
			})
		}
		if err := s.stop(); err != nil {
			t.Error(err)
		}
		if !slices.Equal(ended, []string{"c", "b", "a"}) {
			t.Errorf("ended in the order %v", ended)
		}
	})
}

func TestStackOutlivesItsCallersContextUntilStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := newStack(ctx)
		ended := false
		s.run("a", func(ctx context.Context) error {
			<-ctx.Done()
			ended = true
			return nil
		})
		cancel()
		synctest.Wait()
		if ended || s.ctx.Err() == nil {
			t.Error("a signal must end the stack, and its services only in their order")
		}
		if err := s.stop(); err != nil || !ended {
			t.Errorf("ended %v, %v", ended, err)
		}
	})
}

func TestStackEndsWithTheFirstThatBreaks(t *testing.T) {
	broken := errors.New("no disk")
	for name, c := range map[string]struct{ err, want error }{"with an error": {broken, broken}, "silently": {nil, nil}} {
		synctest.Test(t, func(t *testing.T) {
			s := newStack(t.Context())
			s.run("other", func(ctx context.Context) error { <-ctx.Done(); return nil })
			s.run("broken", func(context.Context) error { return c.err })
			err := s.await(make(chan struct{}))
			if err == nil || (c.want != nil && !errors.Is(err, c.want)) {
				t.Errorf("%s: await: %v", name, err)
			}
			if err := s.stop(); err != nil {
				t.Errorf("%s: stop reports again: %v", name, err)
			}
		})
	}
}

func TestStackReportsWhatFailsToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStack(t.Context())
		stuck := errors.New("stuck")
		s.run("a", func(ctx context.Context) error { <-ctx.Done(); return stuck })
		if err := s.stop(); !errors.Is(err, stuck) {
			t.Errorf("got %v", err)
		}
	})
}
