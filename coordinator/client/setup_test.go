package client_test

import (
	"context"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/client/clienttest"
)

// resource is what the tests lock.
const resource = "ledger/eu"

// clock is the bubble's time, and can jump ahead of its timers as a clock does that runs in suspend.
type clock struct {
	start time.Time
	skip  atomic.Int64
}

func newClock() *clock { return &clock{start: time.Now()} }

func (c *clock) Now() time.Duration { return time.Since(c.start) + time.Duration(c.skip.Load()) }

func (c *clock) jump(d time.Duration) { c.skip.Add(int64(d)) }

// ways are how a client's calls may travel. Whatever it promises it promises in each of them.
var ways = []struct {
	name     string
	features clienttest.Features
}{
	{"in sessions", clienttest.AllFeatures},
	{"call by call", clienttest.Heartbeats | clienttest.Progress},
	{"at an old coordinator", 0},
}

// inBubble runs a test in virtual time against a fake coordinator, in each of the ways.
func inBubble(t *testing.T, test func(t *testing.T, s *clienttest.Server)) {
	t.Helper()
	for _, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := clienttest.New()
				defer s.Close()
				s.SetFeatures(way.features)
				test(t, s)
			})
		})
	}
}

// inSessions runs a test of what only sessions have.
func inSessions(t *testing.T, test func(t *testing.T, s *clienttest.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := clienttest.New()
		defer s.Close()
		test(t, s)
	})
}

// renews reports whether a call keeps leases.
func renews(call clienttest.Call) bool {
	return slices.Contains([]string{"Renew", "Heartbeat"}, call.Method)
}

// renewals lists the calls that kept leases so far.
func renewals(s *clienttest.Server) []clienttest.Call {
	return slices.DeleteFunc(s.Calls(""), func(c clienttest.Call) bool { return !renews(c) })
}

// dial makes a client that is closed at the end of the test.
func dial(t *testing.T, s *clienttest.Server, cfg client.Config) *client.Client {
	t.Helper()
	if cfg.Clock == nil {
		cfg.Clock = newClock()
	}
	c, err := s.Dial(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// acquire takes the test's resource.
func acquire(t *testing.T, c *client.Client, opts ...client.Option) *client.Lease {
	t.Helper()
	l, err := c.Acquire(t.Context(), resource, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// within fails the test if ch is not closed before d has passed.
func within(t *testing.T, d time.Duration, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
		return
	default: // with both ready the other select could choose the timer
	}
	select {
	case <-ch:
	case <-time.After(d):
		t.Fatalf("%s: not within %v", what, d)
	}
}

// open fails the test if ch is closed.
func open(t *testing.T, what string, ch <-chan struct{}) {
	t.Helper()
	select {
	case <-ch:
		t.Fatalf("%s: closed", what)
	default:
	}
}

func bounded(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}
