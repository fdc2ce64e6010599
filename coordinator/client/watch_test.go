package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/client/clienttest"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// watchNodes are coordinators that serve nothing but watches, each as it is told to.
type watchNodes struct {
	lockpb.UnimplementedLocksServer
	addr  string
	serve func(addr, revision string, send func(revision string)) error
}

func (n watchNodes) Watch(in *lockpb.WatchRequest, stream lockpb.Locks_WatchServer) error {
	return n.serve(n.addr, in.GetRevision(), func(revision string) {
		_ = stream.Send(&lockpb.WatchResponse{Revision: revision}) // who is gone hears nothing
	})
}

// dialWatchNodes makes a client of nodes a and b.
func dialWatchNodes(t *testing.T, serve func(addr, revision string, send func(string)) error) *client.Client {
	t.Helper()
	listeners := map[string]*bufconn.Listener{}
	var running sync.WaitGroup
	t.Cleanup(running.Wait) // last
	for _, addr := range []string{"a:1", "b:1"} {
		l := bufconn.Listen(1 << 16)
		server := grpc.NewServer()
		lockpb.RegisterLocksServer(server, watchNodes{addr: addr[:1], serve: serve})
		running.Go(func() { _ = server.Serve(l) })
		listeners[addr] = l
		t.Cleanup(server.Stop)
	}
	c, err := client.Dial(client.Config{
		Addrs: []string{"a:1", "b:1"}, Patience: time.Minute, Clock: newClock(),
		Dialer: func(ctx context.Context, addr string) (net.Conn, error) { return listeners[addr].DialContext(ctx) },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// A watch goes on at another coordinator from its last revision: after a refusal, after a loss, and after silence.
func TestWatchGoesOnElsewhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var asked []string
		step := 0
		c := dialWatchNodes(t, func(addr, revision string, send func(string)) error {
			mu.Lock()
			asked = append(asked, addr+" from "+revision)
			step++
			n := step
			mu.Unlock()
			switch n {
			case 1:
				send("r1")
				send("r2")
				return status.Error(codes.Unavailable, "gone")
			case 2:
				return clienttest.Refuse(lockpb.Reason_NO_LEADER, lockpb.Applied_NO)
			case 3:
				send("r3")
				time.Sleep(time.Hour) // silent
			}
			send("r4")
			send("end")
			time.Sleep(time.Hour)
			return nil
		})
		ended := errors.New("ended")
		var told []string
		began := time.Now()
		err := c.Watch(t.Context(), "p", "r0", func(m *lockpb.WatchResponse) error {
			told = append(told, m.GetRevision())
			if m.GetRevision() == "end" {
				return ended
			}
			return nil
		})
		if !errors.Is(err, ended) || fmt.Sprint(told) != "[r1 r2 r3 r4 end]" {
			t.Errorf("told %v, ended with %v", told, err)
		}
		if want := "[a from r0 b from r2 a from r2 b from r3]"; fmt.Sprint(asked) != want {
			t.Errorf("asked %v, want %s", asked, want)
		}
		if took := time.Since(began); took < 20*time.Second || took > 25*time.Second {
			t.Errorf("it took %v", took)
		}
		synctest.Wait()
		time.Sleep(2 * time.Hour) // for the handlers
	})
}

// A refusal that no other coordinator would take back ends a watch, as does the end of its context or its client.
func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := dialWatchNodes(t, func(_, revision string, send func(string)) error {
			if revision == "bad" {
				return clienttest.Refuse(lockpb.Reason_INVALID, lockpb.Applied_NO)
			}
			if revision == "never" {
				return clienttest.Refuse(lockpb.Reason_NO_LEADER, lockpb.Applied_NO)
			}
			send("r1")
			time.Sleep(30 * time.Second)
			return nil
		})
		nothing := func(*lockpb.WatchResponse) error { return nil }
		if err := c.Watch(t.Context(), "", "bad", nothing); !errors.Is(err, client.ErrInvalid) {
			t.Errorf("got %v, want ErrInvalid", err)
		}
		began := time.Now()
		if err := c.Watch(t.Context(), "", "never", nothing); !errors.Is(err, client.ErrNoLeader) {
			t.Errorf("got %v, want ErrNoLeader", err)
		}
		if took := time.Since(began); took < time.Minute || took > time.Minute+5*time.Second {
			t.Errorf("gave up after %v", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := c.Watch(ctx, "", "", nothing); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the context's error", err)
		}
		time.AfterFunc(time.Second, func() { c.Close() })
		if err := c.Watch(t.Context(), "", "", nothing); !errors.Is(err, client.ErrClosed) {
			t.Errorf("got %v, want ErrClosed", err)
		}
		time.Sleep(time.Hour)
	})
}
