package api

import (
	"context"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// A caller who sends the headers of a call and nothing more does not keep what was begun for it.
func TestACallWithoutItsRequestEnds(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	n.server.requestTimeout = 100 * time.Millisecond // before the first call
	conn := n.dial(t)
	for _, method := range []string{
		lockpb.Locks_Acquire_FullMethodName, lockpb.Locks_Renew_FullMethodName, lockpb.Locks_Watch_FullMethodName,
		lockpb.Locks_Follow_FullMethodName, lockpb.Cluster_Status_FullMethodName,
		"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch",
	} {
		stream, err := conn.NewStream(c.context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
		check(t, err)
		if err = stream.RecvMsg(&lockpb.StatusResponse{}); err == nil || c.context().Err() != nil {
			t.Errorf("%s: %v", method, err)
		}
	}
	// What has come is not cut off by that bound.
	watch, err := n.locks.Watch(c.context(), &lockpb.WatchRequest{})
	check(t, err)
	_, err = watch.Recv()
	check(t, err)
	wait := c.begin(n, acquireOf("ledger/eu", "A", "1", 0))
	_, err = wait.wait(t)
	check(t, err)
	waiter := c.begin(n, acquireOf("ledger/eu", "B", "1", time.Second))
	if _, err = waiter.wait(t); received(err, "?").reason() != lockpb.Reason_WAIT_TIMEOUT {
		t.Errorf("a wait longer than the bound: %v", err)
	}
}

// One connection of a client takes three quarters of a node's calls at most, and can still give back what it holds.
func TestOneConnectionDoesNotTakeAllCalls(t *testing.T) {
	c := (&cluster{t: t, calls: 7}).begun(1) // 5 for one connection
	n := c.nodes[0]
	held := c.acquire(n, acquireOf("ledger/eu", "holder", "1", 0))
	var waiting []*started
	for i := range 5 {
		waiting = append(waiting, c.begin(n, acquireOf("ledger/eu", string(rune('a'+i)), "1", time.Minute)))
	}
	c.untilHolding(n, 5)
	defer func() {
		for _, w := range waiting {
			w.quit()
		}
	}()
	_, err := n.locks.Get(c.context(), &lockpb.GetRequest{Resource: "ledger/eu"})
	wantRefusal(t, err, lockpb.Reason_OVERLOADED, lockpb.Applied_NO)
	other := lockpb.NewClusterClient(n.dial(t))
	if _, err := other.Status(c.context(), &lockpb.StatusRequest{}); err != nil {
		t.Errorf("another connection: %v", err)
	}
	c.release(n, held)
}

// untilHolding waits until so many calls are in progress.
func (c *cluster) untilHolding(n *node, want int64) {
	c.t.Helper()
	c.until("calls are in progress", func() bool { return n.server.calls.Load() == want })
}

func TestMetadataIsBounded(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	ctx := metadata.AppendToOutgoingContext(c.context(), "x-long", strings.Repeat("x", maxHeaders))
	if _, err := n.locks.List(ctx, &lockpb.ListRequest{}); err == nil || status.Code(err) == codes.OK {
		t.Error("a call with 16 KiB of metadata was answered")
	}
	if _, err := n.locks.List(c.context(), &lockpb.ListRequest{}); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

// Whoever connects and dawdles is cut off, on either port.
func TestSlowCallersAreCutOff(t *testing.T) {
	t.Parallel() // it takes as long as the bounds do
	c := newCluster(t, 1)
	n := c.nodes[0]
	web := NewHTTPServer(n.http.Config.Handler, n.server.config.Logger)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	var serving sync.WaitGroup
	serving.Go(func() { _ = web.Serve(l) })
	defer serving.Wait()
	defer web.Close()
	grpcAddr, httpAddr := n.server.peers.address(n.id), l.Addr().String()
	var all sync.WaitGroup
	for name, dawdler := range map[string]struct{ addr, says string }{
		"gRPC, silent":              {grpcAddr, ""},
		"gRPC, half a preface":      {grpcAddr, "PRI * HTTP/2.0\r\n"},
		"HTTP, silent":              {httpAddr, ""},
		"HTTP, half a header":       {httpAddr, "POST /lock/acquire HTTP/1.1\r\nHost: x\r\nX-Slow: "},
		"HTTP, a body that is late": {httpAddr, "POST /lock/acquire HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{"},
	} {
		all.Go(func() {
			conn, err := net.Dial("tcp", dawdler.addr)
			if err != nil {
				t.Errorf("%s: %v", name, err)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, dawdler.says)
			_ = conn.SetReadDeadline(time.Now().Add(patient))
			if _, err := io.Copy(io.Discard, conn); err != nil && strings.Contains(err.Error(), "timeout") {
				t.Errorf("%s: still connected after %v", name, patient)
			}
		})
	}
	all.Wait()
	_, err = n.cluster.Status(context.Background(), &lockpb.StatusRequest{})
	check(t, err)
}
