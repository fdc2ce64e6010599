package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
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

// A missing quorum makes a lease uncertain, not lost: nobody else can be granted it either.
func TestNoQuorumIsNotLoss(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		l := acquire(t, dial(t, s, client.Config{TTL: 30 * time.Second}))
		token, warning := l.Token(), l.Warning()
		s.SetAvailable(false)
		time.Sleep(12 * time.Second)
		if got := l.State(); got != client.Uncertain {
			t.Errorf("after a failed renewal: got %v, want uncertain", got)
		}
		open(t, "warning 18 s before the deadline", warning)
		if l.Token() != token || l.Ticket() == "" || l.Err() != nil {
			t.Errorf("uncertain, but got token %v, error %v", l.Token(), l.Err())
		}
		within(t, 12*time.Second+time.Millisecond, "warning a fifth of the TTL before the deadline", warning)
		open(t, "lease with a sixth of its TTL left", l.Done())
		s.SetAvailable(true)
		time.Sleep(2 * time.Second)
		if got := l.State(); got != client.Held {
			t.Errorf("after the quorum came back: got %v, want held", got)
		}
		open(t, "warning of the new deadline", l.Warning())
		if left := l.Remaining(); left < 25*time.Second {
			t.Errorf("got %v left, want nearly 30s", left)
		}
	})
}

// Done must be closed before the server grants the lock to somebody else, however the holder was cut off.
func TestDoneBeforeTheNextGrant(t *testing.T) {
	for _, tt := range []struct {
		name      string
		atMost    time.Duration // from done to the next grant
		intercept func(ctx context.Context, next clienttest.Handler) (any, error)
	}{
		{"renewals do not arrive", 21 * time.Millisecond, func(ctx context.Context, _ clienttest.Handler) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}},
		{"renewals are refused", 21 * time.Millisecond, func(context.Context, clienttest.Handler) (any, error) {
			return nil, status.Error(codes.Unavailable, "connection reset")
		}},
		{"renewals arrive, answers come too late", 15 * time.Second, func(ctx context.Context, next clienttest.Handler) (any, error) {
			time.Sleep(4 * time.Second)
			return next(ctx)
		}},
		{"nothing but permission denied", 21 * time.Millisecond, func(context.Context, clienttest.Handler) (any, error) {
			return nil, clienttest.Refuse(lockpb.Reason_PERMISSION_DENIED, lockpb.Applied_NO)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *clienttest.Server) {
				l := acquire(t, dial(t, s, client.Config{TTL: 10 * time.Second, Addrs: []string{"holder"}}))
				var lost atomic.Int64
				go func() {
					<-l.Done()
					lost.Store(time.Now().UnixNano())
				}()
				var cutOff atomic.Bool
				s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
					if renews(call) && call.Addr == "holder" && cutOff.Load() {
						return tt.intercept(ctx, next)
					}
					return next(ctx)
				})
				time.Sleep(25 * time.Second) // renewed some times
				cutOff.Store(true)
				acquire(t, dial(t, s, client.Config{Addrs: []string{"waiter"}}))
				grants := s.Grants()
				next := grants[len(grants)-1].At.UnixNano()
				synctest.Wait()
				if lost.Load() == 0 || lost.Load() >= next {
					t.Fatalf("done at %d, the next grant at %d", lost.Load(), next)
				}
				if ahead := time.Duration(next - lost.Load()); ahead < 20*time.Millisecond || ahead > tt.atMost {
					t.Errorf("done %v before the next grant", ahead)
				}
				if !errors.Is(l.Err(), client.ErrLost) || !errors.Is(l.Err(), client.ErrExpired) {
					t.Errorf("got %v, want ErrLost and ErrExpired", l.Err())
				}
				if l.State() != client.Lost || l.Token() != 0 || l.Ticket() != "" || l.Remaining() != 0 {
					t.Errorf("got %v with token %v, %v left, want nothing", l.State(), l.Token(), l.Remaining())
				}
				if cause := context.Cause(l.Context()); !errors.Is(cause, client.ErrExpired) {
					t.Errorf("the context's cause is %v, want ErrExpired", cause)
				}
				sent := len(renewals(s))
				time.Sleep(time.Minute)
				for _, call := range renewals(s)[sent:] {
					if call.Addr == "holder" {
						t.Fatal("a renewal after the loss")
					}
				}
			})
		})
	}
}

func TestEndedLeaseIsLostAtOnce(t *testing.T) {
	for _, reason := range []lockpb.Reason{lockpb.Reason_LEASE_ENDED, lockpb.Reason_NOT_OWNER} {
		inBubble(t, func(t *testing.T, s *clienttest.Server) {
			l := acquire(t, dial(t, s, client.Config{TTL: 30 * time.Second}))
			s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
				if renews(call) {
					return nil, clienttest.Refuse(reason, lockpb.Applied_NO)
				}
				return next(ctx)
			})
			warning := l.Warning()
			within(t, 10*time.Second+time.Millisecond, reason.String(), l.Done())
			within(t, 0, "warning", warning)
			if err := l.Err(); !errors.Is(err, client.ErrLost) || errors.Is(err, client.ErrExpired) {
				t.Errorf("%v: got %v, want ErrLost, not ErrExpired", reason, err)
			}
		})
	}
}

// The deadline counts from the sending of a renewal, whether the time went by before or after the server's stamp.
func TestDeadlineOfASlowRenewal(t *testing.T) {
	for _, tt := range []struct {
		name                 string
		before, after, early time.Duration
	}{
		{"slow there", 400 * time.Millisecond, 0, 440 * time.Millisecond},
		{"slow back", 0, 400 * time.Millisecond, 40 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *clienttest.Server) {
				s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
					if !renews(call) {
						return next(ctx)
					}
					time.Sleep(tt.before)
					answer, err := next(ctx)
					time.Sleep(tt.after)
					return answer, err
				})
				l := acquire(t, dial(t, s, client.Config{TTL: 30 * time.Second}))
				time.Sleep(10*time.Second + 500*time.Millisecond)
				if early := s.Deadline(resource).Sub(l.Deadline()); early != tt.early {
					t.Errorf("the client holds until %v before the server's deadline, want %v", early, tt.early)
				}
			})
		})
	}
}

// Renewals are idempotent: though three of four get no answer, the lease is not lost.
func TestLostAnswersLoseNoLease(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		l := acquire(t, dial(t, s, client.Config{TTL: 10 * time.Second}))
		var renewals atomic.Int32
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			if !renews(call) {
				return next(ctx)
			}
			switch renewals.Add(1) % 4 {
			case 0:
				return nil, status.Error(codes.Unavailable, "question lost")
			case 1:
				_, _ = next(ctx)
				return nil, status.Error(codes.Unavailable, "answer lost")
			case 2:
				_, _ = next(ctx)
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return next(ctx)
		})
		for range 600 {
			time.Sleep(time.Second)
			if err := l.Err(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// One node that stops answering, without closing its connections, costs no lease while another answers.
func TestDeadNodeLosesNoLease(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		c := dial(t, s, client.Config{TTL: 5 * time.Second, Addrs: []string{"n1", "n2", "n3"}})
		l := acquire(t, c)
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			if call.Addr != "n3" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return next(ctx)
		})
		time.Sleep(time.Minute)
		if got := l.State(); got != client.Held {
			t.Errorf("got %v, want held", got)
		}
	})
}

// 10,000 leases of a client cost a handful of messages.
func TestLeasesAreRenewedTogether(t *testing.T) {
	inSessions(t, func(t *testing.T, s *clienttest.Server) {
		c := dial(t, s, client.Config{TTL: 30 * time.Second})
		const n = 10_000
		var acquiring sync.WaitGroup
		for worker := range 100 {
			acquiring.Go(func() {
				for i := range n / 100 {
					if _, err := c.Acquire(t.Context(), fmt.Sprintf("r/%d/%d", worker, i)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		acquiring.Wait()
		time.Sleep(10*time.Second + time.Millisecond)
		renewed := make(map[string]int)
		for _, call := range s.Calls("Heartbeat") {
			for _, id := range call.Request.(*lockpb.HeartbeatRequest).GetLeaseIds() {
				renewed[id]++
			}
		}
		if messages := len(s.Calls("Heartbeat")); len(renewed) != n || messages > n/1000+3 {
			t.Errorf("%d of %d leases were renewed in %d messages", len(renewed), n, messages)
		}
		time.Sleep(30 * time.Second)
		if messages := len(s.Calls("Heartbeat")); messages > 5*(n/1000+3) {
			t.Errorf("%d messages in 40 s", messages)
		}
	})
}

// Clients that began together do not renew together.
func TestClientsRenewAtTheirOwnInstants(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h"} {
			if _, err := dial(t, s, client.Config{TTL: 30 * time.Second}).Acquire(t.Context(), name); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(10*time.Second + time.Millisecond)
		instants := make(map[time.Time]bool)
		for _, call := range renewals(s) {
			instants[call.At] = true
		}
		if len(instants) != 8 {
			t.Errorf("8 clients renewed at %d instants, want 8", len(instants))
		}
	})
}

// What is refused of one lease in a heartbeat is that lease's affair.
func TestOneEndedLeaseInAHeartbeat(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		c := dial(t, s, client.Config{TTL: 30 * time.Second})
		var leases []*client.Lease
		for _, name := range []string{"a", "b", "c"} {
			l, err := c.Acquire(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			leases = append(leases, l)
		}
		s.Expire("b")
		time.Sleep(time.Minute)
		for i, want := range []client.State{client.Held, client.Lost, client.Held} {
			if got := leases[i].State(); got != want {
				t.Errorf("lease %d: got %v, want %v", i, got, want)
			}
		}
		if !errors.Is(leases[1].Err(), client.ErrLeaseEnded) {
			t.Errorf("got %v, want ErrLeaseEnded", leases[1].Err())
		}
	})
}

// A ticket stays as it is while its key is good, and one that was not asked for can be fetched.
func TestTicketsAreSignedOnDemand(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		c := dial(t, s, client.Config{TTL: 9 * time.Second})
		l := acquire(t, c, client.NoTicket())
		if m := s.Calls("Acquire")[0].Request.(*lockpb.AcquireRequest); !m.GetNoTicket() {
			t.Error("a ticket was asked for")
		}
		time.Sleep(time.Minute)
		first, err := l.FetchTicket(t.Context())
		if err != nil || first == "" || l.Ticket() != first {
			t.Fatalf("got %q, %v, and then %q", first, err, l.Ticket())
		}
		sent := len(renewals(s))
		if again, err := l.FetchTicket(t.Context()); err != nil || again != first || len(renewals(s)) != sent {
			t.Errorf("again: got %q, %v, after %d questions more", again, err, len(renewals(s))-sent)
		}
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got, err := l.FetchTicket(t.Context()); got != "" || !errors.Is(err, client.ErrReleased) {
			t.Errorf("after the release: got %q, %v", got, err)
		}
		broken := acquire(t, c, client.NoTicket())
		s.Expire(resource)
		if got, err := broken.FetchTicket(t.Context()); got != "" || !errors.Is(err, client.ErrLost) || broken.State() != client.Lost {
			t.Errorf("of a lease that has ended: got %q, %v", got, err)
		}
	})
}

// A loss is told to the holder, who alone knows what it means. The client does not log it as well.
func TestLossIsToldOnce(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		var log bytes.Buffer
		l := acquire(t, dial(t, s, client.Config{TTL: 10 * time.Second, Logger: slog.New(slog.NewTextHandler(&log, nil))}))
		s.Expire(resource)
		<-l.Done()
		synctest.Wait() // whoever noticed has gone on
		if !errors.Is(l.Err(), client.ErrLost) || log.Len() > 0 {
			t.Errorf("got %v and the log %q, want ErrLost and nothing logged", l.Err(), log.String())
		}
	})
}
