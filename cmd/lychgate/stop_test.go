package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestAServerThatDoesNotStopIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		release := make(chan struct{})
		begin := time.Now()
		err := stopsWithin(ctx, time.Minute, func(context.Context) error { <-release; return nil })
		if err == nil || !strings.Contains(err.Error(), "not stopped within 1m0s") || time.Since(begin) != time.Minute {
			t.Errorf("got %v after %v", err, time.Since(begin))
		}
		close(release)
		broken := errors.New("broken")
		err = stopsWithin(t.Context(), time.Minute, func(context.Context) error { return broken })
		if !errors.Is(err, broken) {
			t.Errorf("got %v, want why it ended", err)
		}
	})
}
