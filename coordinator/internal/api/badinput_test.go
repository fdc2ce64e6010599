package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func sharedOf(resource, client, request string, wait time.Duration) *lockpb.AcquireRequest {
	in := acquireOf(resource, client, request, wait)
	in.Mode = lockpb.Mode_SHARED
	return in
}

// A waits for B and C, which both wait for D: two ways from A to D are no circle, and all are granted in the end.
func TestDiamondOfWaitsHasNoVictim(t *testing.T) {
	c := newCluster(t, 3)
	n := c.followers()[0]
	rd := c.acquire(n, acquireOf("d", "D", "d", 0))
	rb, rc := c.acquire(n, sharedOf("bc", "B", "b", 0)), c.acquire(n, sharedOf("bc", "C", "c", 0))
	owned := func(client, request string) *lockpb.AcquireRequest {
		return sharedOf("d", client, request, 20*time.Second)
	}
	b := c.begin(n, owned("B", "b2"))
	c.untilWaiting("d", 1)
	cc := c.begin(n, owned("C", "c2"))
	c.untilWaiting("d", 2)
	a := c.begin(n, acquireOf("bc", "A", "a", 20*time.Second))
	c.untilWaiting("bc", 1)
	c.release(n, rd)
	for name, s := range map[string]*started{"B": b, "C": cc} {
		if out, err := s.wait(t); err != nil || out.GetFencingToken() <= rd.GetFencingToken() {
			t.Errorf("%s: %v, %v", name, out, err)
		}
	}
	c.release(n, rb)
	c.release(n, rc)
	if out, err := a.wait(t); err != nil || out.GetFencingToken() <= rb.GetFencingToken() {
		t.Errorf("A: %v, %v", out, err)
	}
}

// A shared request waits behind an exclusive one that waits, or is refused if it does not wait.
func TestSharedIsBehindAnExclusiveThatWaits(t *testing.T) {
	c := newCluster(t, 3)
	n := c.followers()[0]
	first := c.acquire(n, sharedOf("r", "A", "1", 0))
	exclusive := c.begin(n, acquireOf("r", "B", "1", 20*time.Second))
	c.untilWaiting("r", 1)
	_, err := n.locks.Acquire(c.context(), sharedOf("r", "C", "1", 0))
	if r := wantRefusal(t, err, lockpb.Reason_REASON_HELD, lockpb.Applied_NO); r.detail.GetHolder().GetClientId() != "A" {
		t.Errorf("held by %v", r.detail.GetHolder())
	}
	late := c.begin(n, sharedOf("r", "C", "2", 20*time.Second))
	c.untilWaiting("r", 2)
	c.release(n, first)
	second, err := exclusive.wait(t)
	check(t, err)
	if lock := c.look(c.leader(), "r"); lock.GetHolding() != 1 || lock.GetWaiting() != 1 {
		t.Errorf("%d hold it and %d wait", lock.GetHolding(), lock.GetWaiting())
	}
	c.release(n, second)
	third, err := late.wait(t)
	check(t, err)
	if first.GetFencingToken() >= second.GetFencingToken() || second.GetFencingToken() >= third.GetFencingToken() {
		t.Errorf("tokens %d, %d, %d", first.GetFencingToken(), second.GetFencingToken(), third.GetFencingToken())
	}
}

// Who holds a lock in one mode is not granted it in the other, nor queued behind itself; its lease stands.
func TestThereIsNoUpgrade(t *testing.T) {
	c := newCluster(t, 3)
	n := c.followers()[0]
	name := func(m lockpb.Mode) string { return strings.ToLower(m.String()) }
	for i, modes := range [][2]lockpb.Mode{
		{lockpb.Mode_SHARED, lockpb.Mode_EXCLUSIVE}, {lockpb.Mode_EXCLUSIVE, lockpb.Mode_SHARED},
	} {
		in := acquireOf(fmt.Sprintf("r%d", i), "A", fmt.Sprintf("%d-1", i), 0)
		in.Mode = modes[0]
		held := c.acquire(n, in)
		for _, wait := range []time.Duration{0, 20 * time.Second} {
			other := acquireOf(in.GetResource(), "A", fmt.Sprintf("%d-2", i), wait)
			other.Mode = modes[1]
			_, err := n.locks.Acquire(c.context(), other)
			r := wantRefusal(t, err, lockpb.Reason_ALREADY_HELD, lockpb.Applied_NO)
			if h := r.detail.GetHolder(); h.GetMode() != modes[0] || h.GetFencingToken() != held.GetFencingToken() {
				t.Errorf("%s, wait %v: held as %v", name(modes[0]), wait, h)
			}
			got := c.do(n, http.MethodPost, "/lock/acquire", fmt.Sprintf(`{"resource":%q,"client_id":"A","request_id":"%d-3","mode":%q,"wait_timeout":%d}`,
				in.GetResource(), i, name(modes[1]), wait.Milliseconds()))
			if got.code != http.StatusConflict || got.body["reason"] != "ALREADY_HELD" || got.body["applied"] != "no" {
				t.Errorf("%s over HTTP: %d %s", name(modes[0]), got.code, got.text)
			}
		}
		if lock := c.look(c.leader(), in.GetResource()); lock.GetHolding() != 1 || lock.GetWaiting() != 0 {
			t.Errorf("%d hold it and %d wait", lock.GetHolding(), lock.GetWaiting())
		}
		c.release(n, held)
	}
}

// cutting is a connection that breaks in the middle of what is written next, once it is told to.
type cutting struct {
	net.Conn
	cut *atomic.Bool
}

func (c *cutting) Write(b []byte) (int, error) {
	if !c.cut.Load() || len(b) < 60 { // a window or a ping is no message
		return c.Conn.Write(b)
	}
	n, _ := c.Conn.Write(b[:len(b)/2])
	_ = c.Close()
	return n, net.ErrClosed
}

// A message of which the connection brings half has no effect, and leaves nothing behind; what came before it counts, and
// others go on.
func TestStreamThatStopsInTheMiddleOfAMessage(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	other := c.talk(n)
	var cut atomic.Bool
	conn, err := grpc.NewClient("passthrough:///"+n.server.peers.address(n.id), grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			raw, err := new(net.Dialer).DialContext(ctx, "tcp", address)
			return &cutting{raw, &cut}, err
		}))
	check(t, err)
	defer func() { _ = conn.Close() }()
	stream, err := lockpb.NewLocksClient(conn).Session(c.context())
	check(t, err)
	s := &talk{c: c, stream: stream, hangUp: func() {}, answers: map[uint64]*lockpb.Answer{}}
	s.answer(s.send(acquireCall(acquireOf("whole", "A", "1", 0))))
	cut.Store(true)
	var calls []*lockpb.Call
	for i := range 50 {
		call := acquireCall(acquireOf(fmt.Sprintf("half/%d", i), "A", fmt.Sprintf("half-%d", i), 0))
		call.Id = uint64(i + 2)
		calls = append(calls, call)
	}
	_ = stream.Send(&lockpb.SessionRequest{Calls: calls}) // the connection breaks in it
	if err := s.end(); err == nil {
		t.Error("the session outlived its connection")
	}
	c.until("nothing is left behind but the other session", func() bool { return n.server.calls.Load() == 1 })
	if info := n.server.shards[0].info(); info.Leases != 1 || info.Waiters != 0 {
		t.Errorf("%d leases and %d waiters, want those that came whole", info.Leases, info.Waiters)
	}
	held := other.answer(other.send(acquireCall(acquireOf("other", "B", "1", 0)))).GetAcquire()
	if other.answer(other.send(releaseCall(held.GetLeaseId()))).GetRelease() == nil {
		t.Error("the other session does not go on")
	}
}
