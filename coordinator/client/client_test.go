package client_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/client/clienttest"
)

func TestDialRefusesBadConfigs(t *testing.T) {
	for _, tt := range []struct {
		want string
		cfg  client.Config
	}{
		{"address", client.Config{Addrs: []string{"127.0.0.1:7600", ""}}},
		{"client_id", client.Config{ClientID: "a b"}},
		{"TTL", client.Config{TTL: -1}},
		{"TTL", client.Config{TTL: time.Microsecond}},
		{"Patience", client.Config{Patience: -1}},
		{"WarnBefore", client.Config{TTL: time.Second, WarnBefore: time.Second}},
	} {
		c, err := client.Dial(tt.cfg)
		if err == nil {
			c.Close()
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%+v: got %v, want an error about %s", tt.cfg, err, tt.want)
		}
	}
}

func TestGeneratedClientIDsDiffer(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		a, b := dial(t, s, client.Config{}), dial(t, s, client.Config{})
		if a.ClientID() == b.ClientID() {
			t.Errorf("both are %s", a.ClientID())
		}
	})
}

func TestClose(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		c := dial(t, s, client.Config{TTL: 9 * time.Second})
		l := acquire(t, c)
		blocked := make(chan error, 1)
		other := dial(t, s, client.Config{Addrs: []string{"other"}})
		if _, err := other.Acquire(t.Context(), "taken"); err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := c.Acquire(context.Background(), "taken")
			blocked <- err
		}()
		synctest.Wait()
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-blocked; !errors.Is(err, client.ErrClosed) {
			t.Errorf("a call in progress: got %v, want ErrClosed", err)
		}
		if s.Waiting("taken") != 0 {
			t.Error("the call in progress was not cancelled at the server")
		}
		if l.State() != client.Lost || !errors.Is(l.Err(), client.ErrLost) || !errors.Is(l.Err(), client.ErrClosed) {
			t.Errorf("got %v, error %v, want lost by ErrClosed", l.State(), l.Err())
		}
		within(t, 0, "done", l.Done())
		if _, _, held := s.Holder(resource); !held {
			t.Error("Close has released the lease")
		}
		sent := len(s.Calls(""))
		time.Sleep(time.Minute)
		for _, call := range s.Calls("")[sent:] {
			if call.Addr != "other" {
				t.Errorf("%s after Close", call.Method)
			}
		}
		if _, err := c.TryAcquire(t.Context(), resource); !errors.Is(err, client.ErrClosed) {
			t.Errorf("acquire: got %v, want ErrClosed", err)
		}
		if err := l.Release(t.Context()); !errors.Is(err, client.ErrClosed) {
			t.Errorf("release: got %v, want ErrClosed", err)
		}
		if err := c.Close(); err != nil {
			t.Errorf("a second Close: %v", err)
		}
	})
}

// A process that was stopped, or a machine that slept, learns at its first look that its time is over, before
// any timer has run.
func TestClockThatJumpedIsSeenAtOnce(t *testing.T) {
	for _, tt := range []struct {
		name string
		look func(*client.Lease) bool
	}{
		{"state", func(l *client.Lease) bool { return l.State() == client.Lost }},
		{"token", func(l *client.Lease) bool { return l.Token() == 0 }},
		{"ticket", func(l *client.Lease) bool { return l.Ticket() == "" }},
		{"error", func(l *client.Lease) bool { return errors.Is(l.Err(), client.ErrExpired) }},
		{"remaining", func(l *client.Lease) bool { return l.Remaining() == 0 }},
		{"deadline", func(l *client.Lease) bool { return !l.Deadline().After(time.Now()) }},
	} {
		inBubble(t, func(t *testing.T, s *clienttest.Server) {
			clk := newClock()
			l := acquire(t, dial(t, s, client.Config{TTL: 30 * time.Second, Clock: clk}))
			clk.jump(29 * time.Second)
			if tt.look(l) {
				t.Errorf("%s: over too early", tt.name)
			}
			clk.jump(time.Second)
			if !tt.look(l) {
				t.Errorf("%s: the lease looks held after its deadline", tt.name)
			}
			within(t, 0, tt.name+": done", l.Done())
		})
	}
}

// Nobody looks; the timers stood still while the machine slept.
func TestClockThatJumpedIsNoticed(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		clk := newClock()
		l := acquire(t, dial(t, s, client.Config{TTL: 10 * time.Minute, Clock: clk}))
		synctest.Wait() // the loop has set its timer
		clk.jump(time.Hour)
		within(t, time.Second+time.Millisecond, "done", l.Done())
	})
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		clk := newClock()
		l := acquire(t, dial(t, s, client.Config{TTL: 10 * time.Minute, Clock: clk}))
		synctest.Wait()
		clk.jump(5 * time.Minute)
		time.Sleep(2 * time.Second)
		if len(renewals(s)) != 1 || l.State() != client.Held {
			t.Errorf("got %d renewals, %v, want one soon after waking, held", len(renewals(s)), l.State())
		}
	})
}

func TestLookAndBreak(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		c := dial(t, s, client.Config{ClientID: "a"})
		l := acquire(t, c)
		got, err := c.Get(t.Context(), resource)
		if err != nil {
			t.Fatal(err)
		}
		if h := got.GetLock().GetHolders(); len(h) != 1 || h[0].GetClientId() != "a" || h[0].GetLeaseHash() != l.ID().Hash().String() {
			t.Errorf("got holders %v, want a", h)
		}
		list, err := c.List(t.Context(), "ledger/", "", 0)
		if err != nil || len(list.GetLocks()) != 1 {
			t.Errorf("got %v, %v, want one lock", list, err)
		}
		broken, err := c.Break(t.Context(), resource)
		if err != nil || broken.GetFencingToken() <= uint64(l.Token()) {
			t.Errorf("got %v, %v, want a larger token", broken, err)
		}
		within(t, 11*time.Second, "done", l.Done())
	})
}

// The tools' calls for a lease that is known by its id.
func TestLeaseByID(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		c := dial(t, s, client.Config{})
		l := acquire(t, dial(t, s, client.Config{TTL: 10 * time.Second}))
		renewed, err := c.RenewLease(t.Context(), l.ID(), time.Minute)
		if err != nil || renewed.GetTtl() != 60_000 || renewed.GetResource() != resource {
			t.Errorf("got %v, %v, want a TTL of a minute", renewed, err)
		}
		if _, err := c.ReleaseLease(t.Context(), l.ID()); err != nil {
			t.Error(err)
		}
		if _, err := c.ReleaseLease(t.Context(), l.ID()); !errors.Is(err, client.ErrLeaseEnded) {
			t.Errorf("again: got %v, want ErrLeaseEnded", err)
		}
		if _, err := c.RenewLease(t.Context(), l.ID(), 0); !errors.Is(err, client.ErrLeaseEnded) {
			t.Errorf("renew: got %v, want ErrLeaseEnded", err)
		}
	})
}
