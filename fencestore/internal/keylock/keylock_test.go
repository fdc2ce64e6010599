package keylock

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

func TestOneNameIsHeldOnceAndForgottenAfterwards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l Locks
		unlock, err := l.Lock(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		other, err := l.Lock(t.Context(), "b")
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		given := make(chan error, 2)
		for _, ctx := range []context.Context{ctx, t.Context()} {
			go func() {
				unlock, err := l.Lock(ctx, "a")
				given <- err
				if err == nil {
					unlock()
				}
			}()
		}
		synctest.Wait()
		if len(given) != 0 {
			t.Fatal("a held name was given again")
		}
		gone := errors.New("caller gone")
		cancel(gone)
		if err := <-given; !errors.Is(err, gone) {
			t.Errorf("cancelled wait: got %v, want %v", err, gone)
		}
		unlock()
		if err := <-given; err != nil {
			t.Errorf("wait after the unlock: got %v", err)
		}
		other()
		synctest.Wait()
		if len(l.names) != 0 {
			t.Errorf("names kept after the last unlock: %v", l.names)
		}
	})
}

func TestACallerThatHasGoneGetsNoLock(t *testing.T) {
	var locks Locks
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	for range 100 { // the lock is free: a select would choose it now and then
		if _, err := locks.Lock(ctx, "a"); !errors.Is(err, gone) {
			t.Fatalf("got %v, want %v", err, gone)
		}
	}
}
