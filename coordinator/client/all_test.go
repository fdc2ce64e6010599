package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/client/clienttest"
)

func TestAcquireAllTakesInOrder(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		c := dial(t, s, client.Config{TTL: 9 * time.Second})
		all, err := c.AcquireAll(t.Context(), []string{"c", "a", "b", "a"})
		if err != nil {
			t.Fatal(err)
		}
		var order []string
		for _, g := range s.Grants() {
			order = append(order, g.Resource)
		}
		if want := []string{"a", "b", "c"}; !slices.Equal(order, want) || len(all) != 3 || all[0].Resource() != "a" {
			t.Errorf("taken in the order %v, want %v", order, want)
		}
		ctx, stop := all.Context(t.Context())
		defer stop()
		time.Sleep(time.Minute)
		if all.Err() != nil || ctx.Err() != nil {
			t.Errorf("after a minute: %v", all.Err())
		}
		s.Expire("b")
		within(t, 10*time.Second, "the context of all", ctx.Done())
		if cause := context.Cause(ctx); !errors.Is(cause, client.ErrLost) || !errors.Is(all.Err(), client.ErrLost) {
			t.Errorf("got %v, want the loss of one", cause)
		}
		if err := all.Release(t.Context()); !errors.Is(err, client.ErrLost) {
			t.Errorf("release: got %v, want that one was lost", err)
		}
		for _, name := range order {
			if _, _, held := s.Holder(name); held {
				t.Errorf("%s is still held", name)
			}
		}
	})
}

// One that is not to be had within the whole time leaves nothing behind.
func TestAcquireAllOrNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		other := dial(t, s, client.Config{})
		for _, name := range []string{"b", "d"} {
			if _, err := other.Acquire(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		c := dial(t, s, client.Config{})
		gone := func(when string) {
			t.Helper()
			for _, name := range []string{"a", "c"} {
				if _, _, held := s.Holder(name); held {
					t.Errorf("%s: %s is held", when, name)
				}
			}
			if n := s.Waiting("b") + s.Waiting("d"); n != 0 {
				t.Errorf("%s: %d wait", when, n)
			}
		}
		time.AfterFunc(6*time.Second, func() { s.Expire("b") })
		start := time.Now()
		if _, err := c.AcquireAll(t.Context(), []string{"d", "c", "b", "a"}, client.Wait(10*time.Second)); !errors.Is(err, client.ErrWaitTimeout) {
			t.Errorf("got %v, want ErrWaitTimeout", err)
		}
		if took := time.Since(start).Round(100 * time.Millisecond); took != 10*time.Second {
			t.Errorf("took %v, want 10s for all together", took)
		}
		gone("after the time")
		if _, err := c.AcquireAll(t.Context(), []string{"a", "d"}, client.Wait(0)); !errors.Is(err, client.ErrHeld) {
			t.Errorf("got %v, want ErrHeld", err)
		}
		gone("without waiting")
		if _, err := c.AcquireAll(bounded(t, time.Second), []string{"a", "d"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's end", err)
		}
		time.Sleep(time.Second) // the abandoned wait is being cancelled
		gone("after the context")
		for _, bad := range [][]string{nil, {"a//b"}} {
			if _, err := c.AcquireAll(t.Context(), bad); err == nil {
				t.Errorf("%q was accepted", bad)
			}
		}
		if _, err := c.AcquireAll(t.Context(), []string{"a"}, client.RequestID("r")); err == nil {
			t.Error("a request id was accepted")
		}
	})
}
