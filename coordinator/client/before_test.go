package client_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/client/clienttest"
)

// What Before names runs with the lease held, in order, and ends before the work starts.
func TestBeforeRunsBeforeTheWork(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		c := dial(t, s, client.Config{})
		var steps []string
		step := func(name string) func(context.Context, *client.Lease) error {
			return func(ctx context.Context, l *client.Lease) error {
				if _, token, held := s.Holder(resource); !held || token != l.Token() || l.Ticket() == "" || ctx.Err() != nil {
					t.Errorf("%s: token %v is held by %v, context %v", name, l.Token(), token, ctx.Err())
				}
				steps = append(steps, name)
				return nil
			}
		}
		err := c.Do(t.Context(), resource, step("work"), client.Before(step("first")), client.Before(step("second")))
		if err != nil || len(steps) != 3 || steps[0] != "first" || steps[1] != "second" || steps[2] != "work" {
			t.Errorf("got %v, %v, want first, second, work", steps, err)
		}
		for name, acquire := range map[string]func() (*client.Lease, error){
			"Acquire":    func() (*client.Lease, error) { return c.Acquire(t.Context(), resource, client.Before(step("a"))) },
			"TryAcquire": func() (*client.Lease, error) { return c.TryAcquire(t.Context(), resource, client.Before(step("t"))) },
		} {
			n := len(steps)
			l, err := acquire()
			if err != nil || len(steps) != n+1 || l.State() != client.Held {
				t.Fatalf("%s: got %v, %d steps more, want one and a held lease", name, err, len(steps)-n)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// If it is refused, nothing after it runs, and the lock is free again at once.
func TestBeforeThatIsRefused(t *testing.T) {
	refused := errors.New("refused")
	for _, tt := range []struct {
		name string
		fn   func(context.Context, *clienttest.Server, *client.Lease) error
		want error
	}{
		{"error", func(context.Context, *clienttest.Server, *client.Lease) error { return refused }, refused},
		{"lost meanwhile", func(ctx context.Context, s *clienttest.Server, _ *client.Lease) error {
			s.Expire(resource)
			<-ctx.Done() // at the next renewal
			return nil
		}, client.ErrLost},
		{"lost and an error", func(ctx context.Context, s *clienttest.Server, _ *client.Lease) error {
			s.Expire(resource)
			<-ctx.Done()
			return ctx.Err()
		}, client.ErrLost},
		{"released by itself", func(ctx context.Context, _ *clienttest.Server, l *client.Lease) error {
			return l.Release(ctx)
		}, client.ErrReleased},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *clienttest.Server) {
				c := dial(t, s, client.Config{})
				var l *client.Lease
				before := client.Before(func(ctx context.Context, got *client.Lease) error {
					l = got
					return tt.fn(ctx, s, got)
				})
				never := func(context.Context, *client.Lease) error {
					t.Error("went on behind a refusal")
					return nil
				}
				if err := c.Do(t.Context(), resource, never, before, client.Before(never)); !errors.Is(err, tt.want) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
				if _, _, held := s.Holder(resource); held || l.State() < client.Lost {
					t.Errorf("held: %v, state %v, want it released", held, l.State())
				}
			})
		})
	}
}

// The caller's context bounds it, and the lease is given back also then, and after a panic.
func TestBeforeEndsWithTheCaller(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		c := dial(t, s, client.Config{TTL: time.Minute})
		_, err := c.Acquire(bounded(t, time.Second), resource, client.Before(func(ctx context.Context, _ *client.Lease) error {
			<-ctx.Done()
			return ctx.Err()
		}))
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, client.ErrLost) {
			t.Errorf("got %v, want the context's end", err)
		}
		if _, _, held := s.Holder(resource); held {
			t.Error("not released after the context's end")
		}
		func() {
			defer func() { _ = recover() }()
			_, _ = c.Acquire(t.Context(), resource, client.Before(func(context.Context, *client.Lease) error { panic("mine") }))
		}()
		if _, _, held := s.Holder(resource); held || len(s.Grants()) != 2 {
			t.Errorf("held %v after %d grants, want free after 2", held, len(s.Grants()))
		}
	})
}
