package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/client/clienttest"
)

func TestDo(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		c := dial(t, s, client.Config{})
		mine := errors.New("mine")
		for _, want := range []error{nil, mine} {
			err := c.Do(t.Context(), resource, func(ctx context.Context, l *client.Lease) error {
				if _, token, held := s.Holder(resource); !held || token != l.Token() {
					t.Errorf("token %v holds, not ours", token)
				}
				if ctx.Err() != nil {
					t.Errorf("the context has ended: %v", context.Cause(ctx))
				}
				return want
			})
			if !errors.Is(err, want) || errors.Is(err, client.ErrLost) {
				t.Errorf("got %v, want %v", err, want)
			}
			if _, _, held := s.Holder(resource); held {
				t.Error("not released")
			}
		}
	})
}

// The context of the work ends before anybody else can be granted the lock.
func TestDoEndsTheWorkOfALostLease(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		c := dial(t, s, client.Config{TTL: 10 * time.Second, Addrs: []string{"holder"}})
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			if call.Addr == "holder" && renews(call) {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return next(ctx)
		})
		var ended time.Time
		go func() {
			time.Sleep(time.Second)
			_, _ = dial(t, s, client.Config{Addrs: []string{"next"}}).Acquire(t.Context(), resource)
		}()
		err := c.Do(t.Context(), resource, func(ctx context.Context, l *client.Lease) error {
			<-ctx.Done()
			ended = time.Now()
			if cause := context.Cause(ctx); !errors.Is(cause, client.ErrExpired) {
				t.Errorf("the cause is %v, want ErrExpired", cause)
			}
			return nil
		})
		if !errors.Is(err, client.ErrLost) {
			t.Errorf("got %v, want ErrLost though the work returned nil", err)
		}
		time.Sleep(time.Second)
		grants := s.Grants()
		if len(grants) != 2 || ended.After(grants[1].At) {
			t.Errorf("the work ended at %v, grants %v", ended, grants)
		}
	})
}

func TestDoTellsOfALossItHadNotNoticed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		err := dial(t, s, client.Config{}).Do(t.Context(), resource, func(context.Context, *client.Lease) error {
			s.Expire(resource)
			return nil
		})
		if !errors.Is(err, client.ErrLost) {
			t.Errorf("got %v, want ErrLost", err)
		}
	})
}

func TestDoReleasesAfterItsContextAndAfterAPanic(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		c := dial(t, s, client.Config{})
		ctx, cancel := context.WithCancel(t.Context())
		err := c.Do(ctx, resource, func(ctx context.Context, _ *client.Lease) error {
			cancel()
			<-ctx.Done()
			return ctx.Err()
		})
		if !errors.Is(err, context.Canceled) || errors.Is(err, client.ErrLost) {
			t.Errorf("got %v, want the context's end", err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = c.Do(t.Context(), resource, func(context.Context, *client.Lease) error { panic("mine") })
		}()
		if _, _, held := s.Holder(resource); held || len(s.Grants()) != 2 {
			t.Errorf("held %v after %d grants, want free after 2", held, len(s.Grants()))
		}
	})
}

// The work is done; that nobody can be told of it is no failure of the work.
func TestDoWithoutAQuorumAtTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		c := dial(t, s, client.Config{TTL: time.Minute})
		err := c.Do(t.Context(), resource, func(context.Context, *client.Lease) error {
			s.SetAvailable(false)
			return nil
		})
		if err != nil {
			t.Errorf("got %v, want nil", err)
		}
	})
}
