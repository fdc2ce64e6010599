package client_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/client/clienttest"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// address listens on a port of this machine.
func address(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Nobody listens at these.
const dead1, dead2 = "127.0.0.1:1", "127.0.0.1:2"

func dialReal(t *testing.T, patience time.Duration, addrs ...string) *client.Client {
	t.Helper()
	c, err := client.Dial(client.Config{Addrs: addrs, Patience: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// One node of three is up and says that there is no quorum. That is the news, not that the others are down; and what
// was never sent has not taken effect and needs no cancelling, so the bound is kept.
func TestAnAnswerCountsMoreThanSilence(t *testing.T) {
	s := clienttest.New()
	defer s.Close()
	s.SetAvailable(false)
	up := address(t)
	if err := s.Serve(up); err != nil {
		t.Fatal(err)
	}
	c := dialReal(t, 700*time.Millisecond, dead1, up.Addr().String(), dead2)
	start := time.Now()
	_, err := c.TryAcquire(t.Context(), resource)
	e, ok := errors.AsType[*client.Error](err)
	if !ok || !errors.Is(err, client.ErrNoLeader) || e.Applied != lockpb.Applied_NO {
		t.Errorf("got %+v, want NO_LEADER without effect", err)
	}
	if !strings.Contains(err.Error(), "gave up after 700ms") {
		t.Errorf("%q does not say for how long it was tried", err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took > 4*time.Second { // DefaultCancelTimeout is longer
		t.Errorf("took %v", took)
	}
}

func TestNobodyListening(t *testing.T) {
	c := dialReal(t, 200*time.Millisecond, dead1, dead2)
	_, err := c.TryAcquire(t.Context(), resource)
	e, ok := errors.AsType[*client.Error](err)
	if !ok || !errors.Is(err, client.ErrUnreachable) || e.Applied != lockpb.Applied_NO {
		t.Errorf("got %+v, want unreachable without effect", err)
	}
	_, err = c.Break(t.Context(), resource)
	if e, ok := errors.AsType[*client.Error](err); !ok || e.Applied != lockpb.Applied_NO {
		t.Errorf("got %+v, want a break that was not sent", err)
	}
}

// A read that failed took no effect, whatever became of the call.
func TestReadsAreNeverUnknown(t *testing.T) {
	inBubble(t, func(t *testing.T, s *clienttest.Server) {
		s.Intercept(func(context.Context, clienttest.Call, clienttest.Handler) (any, error) {
			return nil, status.Error(codes.Unavailable, "connection reset")
		})
		_, err := dial(t, s, client.Config{}).Get(t.Context(), resource)
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Applied != lockpb.Applied_NO {
			t.Errorf("got %+v", err)
		}
	})
}

func TestTheHTTPPortIsNamed(t *testing.T) {
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	addr := strings.TrimPrefix(web.URL, "http://")
	start := time.Now()
	_, err := dialReal(t, time.Minute, addr).Get(t.Context(), resource)
	if !errors.Is(err, client.ErrNotCoordinator) || !strings.Contains(err.Error(), addr) {
		t.Errorf("got %v, want that %s is no coordinator's port", err, addr)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("tried for %v, though there is no other address", took)
	}

	s := clienttest.New()
	defer s.Close()
	up := address(t)
	if err := s.Serve(up); err != nil {
		t.Fatal(err)
	}
	if _, err := dialReal(t, time.Minute, addr, up.Addr().String()).Get(t.Context(), resource); err != nil {
		t.Errorf("with a good address beside it: %v", err)
	}
}
