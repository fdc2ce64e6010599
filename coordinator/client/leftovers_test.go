package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/client/clienttest"
)

// What an outage left behind at the coordinator in this client's name does not fail its next acquire, which waits until
// that has run out. Whoever really holds the lock already is told so.
func TestAcquireOutlivesItsOwnLeftovers(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		c := dial(t, s, client.Config{TTL: 9 * time.Second, Patience: 2 * time.Second})
		l := acquire(t, c)
		if _, err := c.Acquire(t.Context(), resource); !errors.Is(err, client.ErrAlreadyHeld) {
			t.Fatalf("a second acquire beside a live lease: got %v, want ErrAlreadyHeld", err)
		}
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			if call.Method == "Release" {
				return nil, status.Error(codes.Unavailable, "cut off")
			}
			return next(ctx)
		})
		if err := l.Release(t.Context()); err == nil {
			t.Fatal("the release was confirmed")
		}
		if _, err := c.TryAcquire(t.Context(), resource); !errors.Is(err, client.ErrAlreadyHeld) {
			t.Errorf("an acquire that does not wait: got %v, want ErrAlreadyHeld", err)
		}
		if _, err := c.Acquire(t.Context(), resource, client.Wait(time.Second)); !errors.Is(err, client.ErrAlreadyHeld) {
			t.Errorf("an acquire that does not wait for long enough: got %v, want ErrAlreadyHeld", err)
		}
		if again := acquire(t, c); again.Token() <= 1 {
			t.Errorf("got token %v, want a new one", again.Token())
		}
	})
}
