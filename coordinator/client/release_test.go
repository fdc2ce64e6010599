package client_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/client/clienttest"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func TestNoRenewalAfterRelease(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		l := acquire(t, dial(t, s, client.Config{TTL: 9 * time.Second}))
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			if renews(call) {
				time.Sleep(time.Second) // in flight when the release comes
			}
			return next(ctx)
		})
		time.Sleep(3*time.Second + time.Millisecond)
		if len(renewals(s)) != 1 {
			t.Fatal("no renewal is in flight")
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if l.State() != client.Released || l.Err() != client.ErrReleased || l.Token() != 0 || l.Ticket() != "" { //nolint:errorlint // it is the value itself
			t.Errorf("got %v, error %v, token %v, want released", l.State(), l.Err(), l.Token())
		}
		within(t, 0, "done", l.Done())
		time.Sleep(time.Minute)
		if n := len(renewals(s)); n != 1 {
			t.Errorf("%d renewals left after the release", n-1)
		}
		if _, _, held := s.Holder(resource); held {
			t.Error("still held at the server")
		}
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("a second release: %v", err)
		}
		if n := len(s.Calls("Release")); n != 1 {
			t.Errorf("%d releases were sent, want 1", n)
		}
	})
}

// A renewal in flight is called off before the release is sent, and does not hold it up.
func TestReleaseCallsOffTheRenewalInFlight(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		l := acquire(t, dial(t, s, client.Config{TTL: 9 * time.Second}))
		var calledOff, inTime atomic.Bool
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			switch call.Method {
			case "Renew", "Heartbeat":
				<-ctx.Done()
				calledOff.Store(true)
				return nil, ctx.Err()
			case "Release":
				time.Sleep(time.Millisecond)
				inTime.Store(calledOff.Load())
			}
			return next(ctx)
		})
		time.Sleep(3*time.Second + time.Millisecond)
		start := time.Now()
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(start); d > 10*time.Millisecond || !inTime.Load() {
			t.Errorf("released after %v, the renewal called off before: %v", d, inTime.Load())
		}
	})
}

// The answer to a release is lost; the retry finds no lease, which is what it wanted.
func TestRetriedReleaseConverges(t *testing.T) {
	for _, lose := range []error{
		status.Error(codes.Unavailable, "connection reset"),
		clienttest.Refuse(lockpb.Reason_OUTCOME_UNKNOWN, lockpb.Applied_MAYBE),
	} {
		inBubble(t, func(t *testing.T, s *clienttest.Server) {
			l := acquire(t, dial(t, s, client.Config{}))
			var lost atomic.Bool
			s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
				answer, err := next(ctx)
				if call.Method == "Release" && !lost.Swap(true) {
					return nil, lose
				}
				return answer, err
			})
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
			if n := len(s.Calls("Release")); n != 2 {
				t.Errorf("%d releases were sent, want 2", n)
			}
		})
	}
}

func TestReleaseGoesOnWhereItStopped(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		l := acquire(t, dial(t, s, client.Config{TTL: 30 * time.Second}))
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			if call.Method == "Release" {
				_, _ = next(ctx)
				return nil, status.Error(codes.Unavailable, "connection reset")
			}
			return next(ctx)
		})
		err := l.Release(bounded(t, time.Nanosecond))
		e, ok := errors.AsType[*client.Error](err)
		if !ok || e.Applied != lockpb.Applied_MAYBE {
			t.Fatalf("got %v, want an unknown outcome", err)
		}
		if l.State() != client.Released {
			t.Errorf("got %v, want released though nothing is confirmed", l.State())
		}
		s.Intercept(nil)
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("the next call: %v", err)
		}
	})
}

func TestReleaseGivesUpWithoutAQuorum(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		l := acquire(t, dial(t, s, client.Config{TTL: 30 * time.Second, Patience: 3 * time.Second}))
		s.SetAvailable(false)
		start := time.Now()
		if err := l.Release(t.Context()); !errors.Is(err, client.ErrNoLeader) {
			t.Errorf("got %v, want ErrNoLeader", err)
		}
		if d := time.Since(start); d > 3*time.Second {
			t.Errorf("gave up after %v, want 3s at most", d)
		}
		s.SetAvailable(true)
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("with a quorum again: %v", err)
		}
	})
}

func TestReleaseOfALostLease(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		clk := newClock()
		l := acquire(t, dial(t, s, client.Config{TTL: 10 * time.Second, Clock: clk}))
		clk.jump(time.Minute)
		if err := l.Release(t.Context()); !errors.Is(err, client.ErrLost) || !errors.Is(err, client.ErrExpired) {
			t.Errorf("got %v, want ErrLost and ErrExpired", err)
		}
		if _, _, held := s.Holder(resource); held {
			t.Error("the coordinator was not told")
		}
		if l.State() != client.Lost {
			t.Errorf("got %v, want lost", l.State())
		}
	})
}

// The lease was broken and its holder had not noticed: that must not look like an ordinary release.
func TestReleaseOfABrokenLease(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		l := acquire(t, dial(t, s, client.Config{}))
		s.Expire(resource)
		if err := l.Release(t.Context()); !errors.Is(err, client.ErrLeaseEnded) {
			t.Errorf("got %v, want ErrLeaseEnded", err)
		}
	})
}

func TestReleaseWhileAnotherReleases(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		l := acquire(t, dial(t, s, client.Config{}))
		s.Intercept(func(ctx context.Context, _ clienttest.Call, next clienttest.Handler) (any, error) {
			time.Sleep(time.Second)
			return next(ctx)
		})
		errs := make(chan error, 2)
		for range 2 {
			go func() { errs <- l.Release(t.Context()) }()
		}
		synctest.Wait()
		if err := l.Release(bounded(t, time.Millisecond)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's end while another call has the turn", err)
		}
		for range 2 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}
