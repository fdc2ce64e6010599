package client_test

import (
	"context"
	"errors"
	"slices"
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

func TestAcquireHoldsAndRenews(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		c := dial(t, s, client.Config{TTL: 9 * time.Second})
		l := acquire(t, c)
		if l.Token() != 1 || l.Resource() != resource || l.TTL() != 9*time.Second {
			t.Errorf("got token %v of %s for %v", l.Token(), l.Resource(), l.TTL())
		}
		first := l.Ticket()
		time.Sleep(time.Minute)
		if got := l.State(); got != client.Held {
			t.Errorf("after a minute: got %v, want held", got)
		}
		if first == "" || l.Ticket() == "" {
			t.Error("no ticket")
		}
		// At a third of the TTL, up to a tenth earlier.
		if n := len(renewals(s)); n < 20 || n > 23 {
			t.Errorf("got %d renewals in a minute, want 20 to 23", n)
		}
	})
}

func TestTryAcquireOfAHeldLock(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		acquire(t, dial(t, s, client.Config{ClientID: "a"}))
		_, err := dial(t, s, client.Config{ClientID: "b"}).TryAcquire(t.Context(), resource)
		if !errors.Is(err, client.ErrHeld) {
			t.Fatalf("got %v, want ErrHeld", err)
		}
		e, ok := errors.AsType[*client.Error](err)
		if !ok || e.Holder.GetClientId() != "a" || e.Applied != lockpb.Applied_NO || e.Temporary() {
			t.Errorf("got %+v, want the holder a, not applied, not temporary", e)
		}
	})
}

func TestAcquireRefusesBadInputUnsent(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		c := dial(t, s, client.Config{})
		for _, tt := range []struct {
			name, resource, field string
			opt                   client.Option
		}{
			{"empty name", "", "resource", client.Wait(0)},
			{"not normalised", "a//b", "resource", client.Wait(0)},
			{"not UTF-8", "a\xff", "resource", client.Wait(0)},
			{"TTL 0", resource, "ttl", client.TTL(0)},
			{"negative TTL", resource, "ttl", client.TTL(-time.Second)},
			{"TTL below a millisecond", resource, "ttl", client.TTL(time.Microsecond)},
			{"TTL that the API cannot carry", resource, "ttl", client.TTL(10000 * time.Hour)},
			{"negative wait", resource, "wait_timeout", client.Wait(-1)},
			{"request id", resource, "request_id", client.RequestID("a b")},
		} {
			_, err := c.Acquire(t.Context(), tt.resource, tt.opt)
			e, ok := errors.AsType[*client.Error](err)
			if !ok || !errors.Is(err, client.ErrInvalid) || e.Field != tt.field || e.Applied != lockpb.Applied_NO {
				t.Errorf("%s: got %+v, want %s invalid", tt.name, err, tt.field)
			}
		}
		if n := len(s.Calls("")); n != 0 {
			t.Errorf("got %d calls, want none", n)
		}
	})
}

func TestAcquireWaitTimesOut(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		acquire(t, dial(t, s, client.Config{}))
		start := time.Now()
		_, err := dial(t, s, client.Config{}).Acquire(t.Context(), resource, client.Wait(7*time.Second))
		if !errors.Is(err, client.ErrWaitTimeout) {
			t.Errorf("got %v, want ErrWaitTimeout", err)
		}
		if d := time.Since(start); d != 7*time.Second {
			t.Errorf("got an answer after %v, want 7s", d)
		}
	})
}

func TestRetryWaitsForWhatIsLeft(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		acquire(t, dial(t, s, client.Config{}))
		var calls atomic.Int32
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			if call.Method == "Acquire" && calls.Add(1) == 1 {
				time.Sleep(3 * time.Second)
				return nil, status.Error(codes.Unavailable, "connection reset")
			}
			return next(ctx)
		})
		start := time.Now()
		_, err := dial(t, s, client.Config{}).Acquire(t.Context(), resource, client.Wait(10*time.Second))
		if d := time.Since(start); !errors.Is(err, client.ErrWaitTimeout) || d.Round(10*time.Millisecond) != 10*time.Second {
			t.Errorf("got %v after %v, want ErrWaitTimeout after 10s", err, d)
		}
	})
}

func TestEndlessAcquireAsksAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		first := acquire(t, dial(t, s, client.Config{}))
		time.AfterFunc(12*time.Minute, func() { _ = first.Release(context.Background()) })
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			if m, ok := call.Request.(*lockpb.AcquireRequest); ok && m.GetWaitTimeout() > 90_000 {
				return nil, clienttest.Refuse(lockpb.Reason_WAIT_TOO_LONG, lockpb.Applied_NO)
			}
			return next(ctx)
		})
		start := time.Now()
		l := acquire(t, dial(t, s, client.Config{}))
		if d := time.Since(start); d < 12*time.Minute || d > 12*time.Minute+time.Second {
			t.Errorf("got the lock after %v, want 12m", d)
		}
		if l.Token() != 2 {
			t.Errorf("got token %v, want 2", l.Token())
		}
	})
}

func TestAcquireOnceThoughAnswersAreLost(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		var lost atomic.Int32
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			answer, err := next(ctx)
			if call.Method == "Acquire" && lost.Add(1) <= 3 {
				return nil, status.Error(codes.Unavailable, "connection reset")
			}
			return answer, err
		})
		l := acquire(t, dial(t, s, client.Config{}))
		if l.Token() != 1 || len(s.Grants()) != 1 {
			t.Errorf("got token %v of %d grants, want 1 of 1", l.Token(), len(s.Grants()))
		}
		var first *lockpb.AcquireRequest
		for _, call := range s.Calls("Acquire") {
			m := call.Request.(*lockpb.AcquireRequest)
			if first == nil {
				first = m
			}
			if m.GetRequestId() != first.GetRequestId() || m.GetAsOf() != first.GetAsOf() || m.GetAsOf() == 0 ||
				m.GetSequence() != first.GetSequence() || m.GetAcknowledged() != first.GetAcknowledged() {
				t.Errorf("a retry differs:\n got %v\nwant %v", m, first)
			}
		}
	})
}

// The deadline counts from the attempt that was answered: neither from the answer, nor from an attempt whose
// answer was lost, nor from the grant.
func TestDeadlineOfARetriedAcquire(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		var calls atomic.Int32
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			if call.Method != "Acquire" {
				return next(ctx)
			}
			nth := calls.Add(1)
			answer, err := next(ctx)
			if nth == 1 {
				time.Sleep(2 * time.Second)
				return nil, status.Error(codes.Unavailable, "connection reset")
			}
			time.Sleep(300 * time.Millisecond) // the answer is under way
			return answer, err
		})
		l := acquire(t, dial(t, s, client.Config{TTL: 10 * time.Second}))
		server := s.Deadline(resource)
		if early := server.Sub(l.Deadline()); early < 20*time.Millisecond || early > 100*time.Millisecond {
			t.Errorf("the client holds until %v before the server's deadline, want the margin of 20ms", early)
		}
		if len(renewals(s)) != 1 {
			t.Error("a grant with 8 s left of 10 was not confirmed")
		}
	})
}

// A grant at once, whose answer takes long but not so long that it is confirmed.
func TestDeadlineOfASlowAcquire(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			answer, err := next(ctx)
			if call.Method == "Acquire" {
				time.Sleep(400 * time.Millisecond)
			}
			return answer, err
		})
		l := acquire(t, dial(t, s, client.Config{TTL: 30 * time.Second}))
		if early := s.Deadline(resource).Sub(l.Deadline()); early != 40*time.Millisecond {
			t.Errorf("the client holds until %v before the server's deadline, want the margin of 40ms", early)
		}
		if len(renewals(s)) != 0 {
			t.Error("the grant was confirmed: this test is of one that is not")
		}
	})
}

// The client that gave up may try again at once, though its first request is still being cancelled.
func TestAcquireAfterAnAbandonedOne(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			answer, err := next(ctx)
			if call.Method == "Acquire" || call.Method == "Cancel" {
				time.Sleep(2 * time.Second)
			}
			return answer, err
		})
		c := dial(t, s, client.Config{})
		if _, err := c.Acquire(bounded(t, time.Second), resource); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("got %v, want the context's end", err)
		}
		if l := acquire(t, c); l.Token() != 2 {
			t.Errorf("got token %v, want 2", l.Token())
		}
	})
}

func TestLateGrantIsConfirmed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		first := acquire(t, dial(t, s, client.Config{}))
		time.AfterFunc(25*time.Second, func() { _ = first.Release(context.Background()) })
		l := acquire(t, dial(t, s, client.Config{TTL: 20 * time.Second}))
		want := 20*time.Second - (20*time.Millisecond + 10*time.Millisecond)
		if got := l.Remaining(); got != want {
			t.Errorf("got %v left, want %v: a whole TTL less the margin", got, want)
		}
		renewals := renewals(s)
		if m := renewals[len(renewals)-1].Request.(*lockpb.RenewRequest); m.GetLeaseId() != l.ID().String() {
			t.Error("the grant was not confirmed before it was reported")
		}
		if server := s.Deadline(resource); !l.Deadline().Before(server) {
			t.Errorf("the client holds until %v, the server until %v", l.Deadline(), server)
		}
	})
}

// The grant's answer is under way for so long that the claim window closes.
func TestLateGrantThatLapsedIsAskedForAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		first := acquire(t, dial(t, s, client.Config{}))
		time.AfterFunc(time.Second, func() { _ = first.Release(context.Background()) })
		var slow atomic.Bool
		slow.Store(true)
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			answer, err := next(ctx)
			if call.Method == "Acquire" && slow.Swap(false) {
				time.Sleep(clienttest.ClaimWindow + time.Second)
			}
			return answer, err
		})
		l := acquire(t, dial(t, s, client.Config{}))
		if l.Token() != 3 || l.State() != client.Held {
			t.Errorf("got token %v, %v, want 3, held: the second grant lapsed", l.Token(), l.State())
		}
		if _, token, _ := s.Holder(resource); token != l.Token() {
			t.Errorf("the server says that token %v holds", token)
		}
	})
}

func TestAcquireSurvivesLeaderChange(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		c := dial(t, s, client.Config{Addrs: []string{"n1", "n2", "n3"}})
		s.SetAvailable(false)
		time.AfterFunc(6*time.Second, func() { s.SetAvailable(true) })
		if l := acquire(t, c); l.State() != client.Held {
			t.Errorf("got %v, want held", l.State())
		}
		var addrs []string
		for _, call := range s.Calls("") {
			addrs = append(addrs, call.Addr)
		}
		for _, want := range []string{"n1", "n2", "n3"} {
			if !slices.Contains(addrs, want) {
				t.Errorf("%s was never asked: %v", want, addrs)
			}
		}
	})
}

func TestTryAcquireGivesUpWithoutAQuorum(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		s.SetAvailable(false)
		start := time.Now()
		_, err := dial(t, s, client.Config{Patience: 4 * time.Second}).TryAcquire(t.Context(), resource)
		if !errors.Is(err, client.ErrNoLeader) {
			t.Errorf("got %v, want ErrNoLeader", err)
		}
		if d := time.Since(start); d > 4*time.Second {
			t.Errorf("gave up after %v, want 4s at most", d)
		}
	})
}

func TestNumbersAndLeaseTime(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		c := dial(t, s, client.Config{})
		for range 2 {
			if err := acquire(t, c).Release(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		acquire(t, c)
		named := dial(t, s, client.Config{ClientID: "named"})
		if _, err := named.TryAcquire(t.Context(), "other"); err != nil {
			t.Fatal(err)
		}
		calls := s.Calls("Acquire")
		for i, want := range []struct{ sequence, acknowledged uint64 }{{1, 0}, {2, 1}, {3, 2}, {0, 0}} {
			m := calls[i].Request.(*lockpb.AcquireRequest)
			if m.GetSequence() != want.sequence || m.GetAcknowledged() != want.acknowledged {
				t.Errorf("request %d: got number %d, acknowledged %d, want %v", i+1, m.GetSequence(), m.GetAcknowledged(), want)
			}
		}
		if m := calls[2].Request.(*lockpb.AcquireRequest); m.GetAsOf() < int64(time.Hour) {
			t.Errorf("after an hour: as_of is %v, stale", time.Duration(m.GetAsOf()))
		}
	})
}

func TestTooOldIsAskedAgainWithFreshLeaseTime(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		var statuses atomic.Int32
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			if call.Method == "Status" && statuses.Add(1) == 1 { // a node that lags
				return &lockpb.StatusResponse{AsOf: 1}, nil
			}
			if m, ok := call.Request.(*lockpb.AcquireRequest); ok && m.GetAsOf() == 1 {
				return nil, clienttest.Refuse(lockpb.Reason_REQUEST_TOO_OLD, lockpb.Applied_NO)
			}
			return next(ctx)
		})
		time.Sleep(time.Minute)
		if l := acquire(t, dial(t, s, client.Config{})); l.Token() != 1 {
			t.Errorf("got token %v, want 1", l.Token())
		}
	})
}

// A cluster that was restored from a backup has an earlier lease time than its clients remember.
func TestLeaseTimeThatWentBack(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		c := dial(t, s, client.Config{})
		time.Sleep(time.Hour)
		if err := acquire(t, c).Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		const restored = time.Hour - time.Minute
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			switch m := call.Request.(type) {
			case *lockpb.StatusRequest:
				return &lockpb.StatusResponse{AsOf: int64(restored)}, nil
			case *lockpb.AcquireRequest:
				if m.GetAsOf() > int64(restored) {
					st, err := status.New(codes.InvalidArgument, "as_of is ahead").WithDetails(
						&lockpb.Refusal{Reason: lockpb.Reason_INVALID, Applied: lockpb.Applied_NO, Field: "as_of"})
					if err != nil {
						return nil, err
					}
					return nil, st.Err()
				}
			}
			return next(ctx)
		})
		acquire(t, c)
	})
}

func TestRequestIDFindsTheFirstEffect(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		a := acquire(t, dial(t, s, client.Config{ClientID: "job-7"}), client.RequestID("r1"))
		b := acquire(t, dial(t, s, client.Config{ClientID: "job-7"}), client.RequestID("r1"))
		if a.ID() != b.ID() || a.Token() != b.Token() {
			t.Errorf("got tokens %v and %v, want one lease", a.Token(), b.Token())
		}
		if err := b.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		_, err := dial(t, s, client.Config{ClientID: "job-7"}).Acquire(t.Context(), resource, client.RequestID("r1"))
		if !errors.Is(err, client.ErrRequestEnded) {
			t.Errorf("a retry after the end: got %v, want ErrRequestEnded", err)
		}
	})
}

// A request that its caller has named is the caller's to repeat.
func TestNamedRequestIsNotCancelled(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		var lost atomic.Bool
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			answer, err := next(ctx)
			if call.Method == "Acquire" && !lost.Swap(true) {
				time.Sleep(2 * time.Second)
			}
			return answer, err
		})
		c := dial(t, s, client.Config{ClientID: "job-7"})
		if _, err := c.Acquire(bounded(t, time.Second), resource, client.RequestID("r1")); err == nil {
			t.Fatal("the answer was not lost")
		}
		if l := acquire(t, c, client.RequestID("r1")); l.Token() != 1 || len(s.Calls("Cancel")) != 0 {
			t.Errorf("got token %v after %d cancels, want 1 after none", l.Token(), len(s.Calls("Cancel")))
		}
	})
}

// Whatever an acquire has reached when its caller gives up, nothing stays behind.
func TestCancelledAcquireLeavesNothing(t *testing.T) {
	type interceptor = func(context.Context, clienttest.Call, clienttest.Handler) (any, error)
	slow := func(method string, before, after time.Duration) interceptor {
		return func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			if call.Method != method {
				return next(ctx)
			}
			time.Sleep(before)
			answer, err := next(context.WithoutCancel(ctx)) // the call is executed though its caller is gone
			time.Sleep(after)
			return answer, err
		}
	}
	for _, tt := range []struct {
		name      string
		held      bool // by somebody else, for the first second
		intercept interceptor
	}{
		{"before it arrives", false, slow("Acquire", 3*time.Second, 0)},
		{"after the grant", false, slow("Acquire", 0, 3*time.Second)},
		{"in the queue", true, nil},
		{"granted late, answer under way", true, slow("Acquire", 0, 3*time.Second)},
		{"confirming", true, slow("Renew", 0, 3*time.Second)},
		{"cancel is refused at first", false, func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			answer, err := next(ctx)
			switch call.Method {
			case "Acquire":
				time.Sleep(3 * time.Second)
			case "Cancel":
				if time.Now().UnixMilli()%1000 < 600 {
					return nil, clienttest.Refuse(lockpb.Reason_OUTCOME_UNKNOWN, lockpb.Applied_MAYBE)
				}
			}
			return answer, err
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *clienttest.Server) {
				if tt.held {
					first := acquire(t, dial(t, s, client.Config{}))
					wait := time.Second
					if tt.intercept == nil {
						wait = time.Minute
					}
					time.AfterFunc(wait, func() { _ = first.Release(context.Background()) })
				}
				s.Intercept(tt.intercept)
				c := dial(t, s, client.Config{})
				start := time.Now()
				_, err := c.Acquire(bounded(t, 2*time.Second), resource)
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Fatalf("got %v, want the context's end", err)
				}
				if d := time.Since(start); d != 2*time.Second {
					t.Errorf("returned after %v, want at once after 2s", d)
				}
				if err := c.Close(); err != nil { // waits for the cancel
					t.Error(err)
				}
				time.Sleep(5 * time.Second) // late copies arrive
				synctest.Wait()
				if holder, token, held := s.Holder(resource); held && (!tt.held || token != 1) {
					t.Errorf("%s holds token %v, abandoned", holder, token)
				}
				if n := s.Waiting(resource); n != 0 {
					t.Errorf("%d requests wait, abandoned", n)
				}
			})
		})
	}
}
