package client_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/client/clienttest"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Calls go to the leader that a session tells of, and follow it.
func TestCallsFollowTheLeader(t *testing.T) {
	inSessions(t, func(t *testing.T, s *clienttest.Server) {
		s.SetLeader("n2")
		c := dial(t, s, client.Config{Addrs: []string{"n1", "n2", "n3"}})
		cycle := func(name string) {
			t.Helper()
			l, err := c.Acquire(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			if err := l.Release(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		asked := func(what, want string) {
			t.Helper()
			before := len(s.Calls(""))
			cycle("r")
			for _, call := range s.Calls("")[before:] {
				if call.Addr != want {
					t.Errorf("%s: %s went to %s, want %s", what, call.Method, call.Addr, want)
				}
			}
		}
		cycle("first") // any node; its session tells
		cycle("second")
		asked("the leader is known", "n2")
		s.SetLeader("elsewhere") // not in the configuration
		synctest.Wait()
		cycle("third") // opens the session
		asked("the leader has changed", "elsewhere")
		s.SetLeader("")
		synctest.Wait()
		asked("nobody leads", "n1")
	})
}

// A leader that cannot be reached, or does not answer, costs its calls a detour and nothing else.
func TestLeaderThatDoesNotAnswer(t *testing.T) {
	inSessions(t, func(t *testing.T, s *clienttest.Server) {
		s.SetLeader("n2")
		c := dial(t, s, client.Config{Addrs: []string{"n1"}, TTL: 10 * time.Second})
		l := acquire(t, c)
		var mute atomic.Bool
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			if call.Addr == "n2" && mute.Load() {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return next(ctx)
		})
		time.Sleep(30 * time.Second)
		if !slices.Contains(s.OpenSessions(), "n2") {
			t.Fatalf("sessions are open to %v", s.OpenSessions())
		}
		mute.Store(true)
		for range 60 {
			time.Sleep(time.Second)
			if err := l.Err(); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		if _, err := c.TryAcquire(t.Context(), "other"); err != nil || time.Since(start) > 2*client.DefaultAttemptTimeout {
			t.Errorf("got %v after %v", err, time.Since(start))
		}
	})
}

// A stream that breaks, at whatever point of whatever call, is like an answer that is lost: one effect, nothing left
// behind, and a lease that is held all the while.
func TestBrokenStreamAtEachPoint(t *testing.T) {
	for _, method := range []string{"Acquire", "Heartbeat", "Release", "Cancel"} {
		for _, point := range []string{"before", "after", "while others wait"} {
			t.Run(method+" "+point, func(t *testing.T) {
				inSessions(t, func(t *testing.T, s *clienttest.Server) {
					c := dial(t, s, client.Config{TTL: 9 * time.Second, Addrs: []string{"n1", "n2"}})
					kept, err := c.Acquire(t.Context(), "kept")
					if err != nil {
						t.Fatal(err)
					}
					if point == "while others wait" {
						holder := dial(t, s, client.Config{Addrs: []string{"other"}})
						busy, err := holder.Acquire(t.Context(), "busy")
						if err != nil {
							t.Fatal(err)
						}
						time.AfterFunc(time.Minute, func() { _ = busy.Release(context.Background()) })
						go func() {
							if _, err := c.Acquire(t.Context(), "busy"); err != nil {
								t.Errorf("the waiting one: %v", err)
							}
						}()
						synctest.Wait()
					}
					var breaks atomic.Int32
					s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
						if call.Method != method || call.Addr == "other" || breaks.Add(1) > 3 {
							return next(ctx)
						}
						if point == "before" {
							s.BreakSessions()
							return next(context.WithoutCancel(ctx)) // it arrives, and is executed after the break
						}
						answer, err := next(ctx)
						s.BreakSessions()
						return answer, err
					})
					l := acquire(t, c)
					time.Sleep(20 * time.Second)
					if err := l.Release(t.Context()); err != nil {
						t.Errorf("release: %v", err)
					}
					if method == "Cancel" {
						s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
							answer, err := next(ctx)
							switch {
							case call.Method == "Acquire":
								time.Sleep(2 * time.Second)
							case call.Method == method && breaks.Add(1) <= 3:
								s.BreakSessions()
							}
							return answer, err
						})
						if _, err := c.Acquire(bounded(t, time.Second), resource); err == nil {
							t.Error("the acquire was not abandoned")
						}
					}
					time.Sleep(2 * time.Minute)
					if err := kept.Err(); err != nil {
						t.Errorf("the lease beside it: %v", err)
					}
					if holder, _, held := s.Holder(resource); held {
						t.Errorf("%s still holds", holder)
					}
					grants := make(map[string]int)
					for _, g := range s.Grants() {
						grants[g.Resource]++
					}
					if grants["kept"] != 1 || grants["busy"] > 2 || grants[resource] > 2 {
						t.Errorf("granted %v: some request took effect more than once", grants)
					}
					if breaks.Load() == 0 {
						t.Error("nothing was broken")
					}
				})
			})
		}
	}
}

// Answers that come half a minute late, or twice as slowly as anybody waits, lose no certainty: whoever believes that
// it holds is the one whom the coordinator says.
func TestDelaysInASession(t *testing.T) {
	inSessions(t, func(t *testing.T, s *clienttest.Server) {
		var calls atomic.Int32
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			n := calls.Add(1)
			if n%7 == 0 {
				time.Sleep(30 * time.Second) // on its way there
			}
			answer, err := next(context.WithoutCancel(ctx))
			if n%5 == 0 {
				time.Sleep(30 * time.Second) // and back
			}
			return answer, err
		})
		end := time.Now().Add(20 * time.Minute)
		var working sync.WaitGroup
		var holding sync.Map
		for i := range 5 {
			c := dial(t, s, client.Config{TTL: 10 * time.Second, Addrs: []string{fmt.Sprintf("a%d", i), fmt.Sprintf("b%d", i)}})
			working.Go(func() {
				for time.Now().Before(end) {
					l, err := c.Acquire(bounded(t, time.Minute), resource)
					if err != nil {
						continue
					}
					if other, held := holding.LoadOrStore(resource, c.ClientID()); held {
						t.Errorf("%s and %v hold at once", c.ClientID(), other)
					}
					select {
					case <-l.Done():
					case <-time.After(15 * time.Second):
					}
					holding.Delete(resource)
					_ = l.Release(bounded(t, time.Second))
				}
			})
		}
		working.Wait()
		if n := len(s.Grants()); n < 20 {
			t.Errorf("%d grants in 20 minutes", n)
		}
	})
}

// A session that nobody uses is closed, and opened again when it is needed.
func TestIdleSessionIsClosed(t *testing.T) {
	inSessions(t, func(t *testing.T, s *clienttest.Server) {
		c := dial(t, s, client.Config{})
		if err := acquire(t, c).Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if n := len(s.OpenSessions()); n != 1 {
			t.Errorf("%d sessions are open, want 1", n)
		}
		time.Sleep(3 * time.Minute)
		if open := s.OpenSessions(); len(open) != 0 {
			t.Errorf("sessions are still open to %v", open)
		}
		acquire(t, c)
		time.Sleep(3 * time.Minute)
		if n := len(s.OpenSessions()); n != 1 {
			t.Errorf("%d sessions are open while a lease is kept, want 1", n)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if open := s.OpenSessions(); len(open) != 0 {
			t.Errorf("after Close sessions are open to %v", open)
		}
	})
}

// More waits than a session carries go by themselves, and nobody is kept from renewing and releasing.
func TestMoreCallsThanASessionCarries(t *testing.T) {
	inSessions(t, func(t *testing.T, s *clienttest.Server) {
		acquire(t, dial(t, s, client.Config{Addrs: []string{"holder"}}))
		c := dial(t, s, client.Config{TTL: 9 * time.Second})
		kept, err := c.Acquire(t.Context(), "kept")
		if err != nil {
			t.Fatal(err)
		}
		s.Intercept(func(ctx context.Context, call clienttest.Call, next clienttest.Handler) (any, error) {
			if m, ok := call.Request.(*lockpb.AcquireRequest); ok && m.GetResource() == "never" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return next(ctx)
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		const beyond = 8200
		var waiting sync.WaitGroup
		for range beyond {
			waiting.Go(func() {
				if _, err := c.Locks().Acquire(ctx, &lockpb.AcquireRequest{Resource: "never", WaitTimeout: 1}); err == nil {
					t.Error("granted")
				}
			})
		}
		time.Sleep(30 * time.Second)
		if n := len(s.Calls("Acquire")); n < beyond {
			t.Errorf("%d of %d calls arrived", n, beyond)
		}
		if err := kept.Err(); err != nil {
			t.Error(err)
		}
		if err := kept.Release(t.Context()); err != nil {
			t.Error(err)
		}
		waiting.Wait()
	})
}

// What a queue does is told, and the lease comes at the end of it.
func TestProgressOfAWait(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		first := acquire(t, dial(t, s, client.Config{ClientID: "first"}))
		time.AfterFunc(time.Minute, func() { _ = first.Release(context.Background()) })
		var told []client.Progress
		l := acquire(t, dial(t, s, client.Config{}), client.OnProgress(func(p client.Progress) { told = append(told, p) }))
		if l.Token() != 2 {
			t.Errorf("got token %v, want 2", l.Token())
		}
		if s.Has(clienttest.Progress) && (len(told) == 0 || told[0].Position != 1 || told[0].Holder.GetClientId() != "first") {
			t.Errorf("told %+v", told)
		}
	})
}
