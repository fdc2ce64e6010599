package api

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// following is a Follow that is read in the background.
type following struct {
	*started
	quit context.CancelFunc

	mu   sync.Mutex
	news []*lockpb.Progress
}

func (c *cluster) follow(n *node, in *lockpb.AcquireRequest) *following {
	c.t.Helper()
	ctx, cancel := context.WithCancel(c.context())
	stream, err := n.locks.Follow(ctx, proto.CloneOf(in))
	check(c.t, err)
	f := &following{started: &started{done: make(chan struct{}), quit: cancel}, quit: cancel}
	go func() {
		defer close(f.done)
		for {
			m, err := stream.Recv()
			if err != nil {
				f.err = err
				return
			}
			if f.out = m.GetGranted(); f.out != nil {
				return
			}
			f.mu.Lock()
			f.news = append(f.news, m.GetProgress())
			f.mu.Unlock()
		}
	}()
	return f
}

// said is what a waiting call has been told: position and holder, news by news.
func (f *following) said() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []string
	for _, p := range f.news {
		all = append(all, fmt.Sprintf("%d behind %s", p.GetPosition(), p.GetHolder().GetClientId()))
	}
	return strings.Join(all, ", ")
}

func (f *following) untilSaid(c *cluster, want string) {
	c.t.Helper()
	deadline := time.Now().Add(patient)
	for f.said() != want {
		if time.Now().After(deadline) {
			c.t.Fatalf("told %q, want %q", f.said(), want)
		}
		time.Sleep(5 * time.Millisecond) // no signal is given
	}
}

// A call that waits is told its place at once and whenever it changes, through any node, and gets its lease last.
func TestFollowTellsHowTheQueueGoes(t *testing.T) {
	c := newCluster(t, 3)
	for i, n := range []*node{c.leader(), c.followers()[0]} {
		r := fmt.Sprintf("r/%d", i)
		ask := func(client string) *lockpb.AcquireRequest { return acquireOf(r, client, r, 20*time.Second) }
		a := c.acquire(n, ask("A"))
		b := c.begin(n, ask("B"))
		c.untilWaiting(r, 1)
		d := c.follow(n, ask("D"))
		d.untilSaid(c, "2 behind A")
		e := c.follow(n, ask("E"))
		e.untilSaid(c, "3 behind A")
		first := d.news[0]
		if first.GetRemaining() < 15_000 || first.GetHolder().GetFencingToken() != a.GetFencingToken() || first.GetIndex() == 0 {
			t.Errorf("the first news is %v", first)
		}
		c.release(n, a)
		b1, err := b.wait(t)
		check(t, err)
		d.untilSaid(c, "2 behind A, 1 behind B")
		e.untilSaid(c, "3 behind A, 2 behind B")
		c.release(n, b1)
		got, err := d.wait(t)
		check(t, err)
		if got.GetFencingToken() <= b1.GetFencingToken() || got.GetRemaining() != got.GetTtl() {
			t.Errorf("granted %v", got)
		}
		e.untilSaid(c, "3 behind A, 2 behind B, 1 behind D")
		e.quit()
		c.until("who left is detached", func() bool { return !c.look(n, r).GetWaiters()[0].GetAttached() })
	}
}

// A Follow goes on at the next leader by itself, like an Acquire.
func TestFollowOutlivesTheLeader(t *testing.T) {
	c := newCluster(t, 3)
	old, n := c.leader(), c.followers()[0]
	held := c.acquire(n, &lockpb.AcquireRequest{Resource: "r", ClientId: "A", RequestId: "1", Ttl: proto.Int32(60_000)})
	f := c.follow(n, acquireOf("r", "B", "1", 25*time.Second))
	f.untilSaid(c, "1 behind A")
	old.kill()
	f.untilSaid(c, "1 behind A, 1 behind A") // told again by the new leader
	c.release(n, held)
	got, err := f.wait(t)
	check(t, err)
	if got.GetFencingToken() <= held.GetFencingToken() {
		t.Errorf("token %d after %d", got.GetFencingToken(), held.GetFencingToken())
	}
}

// Refusals of a Follow are those of an Acquire, and say who holds the resource and how far the wait came.
func TestFollowIsRefusedLikeAcquire(t *testing.T) {
	c := newCluster(t, 3)
	n := c.followers()[0]
	held := c.acquire(n, acquireOf("r", "A", "1", 0))
	_, err := c.follow(n, acquireOf("r", "B", "1", 0)).wait(t)
	r := wantRefusal(t, err, lockpb.Reason_REASON_HELD, lockpb.Applied_NO)
	if r.detail.GetHolder().GetFencingToken() != held.GetFencingToken() {
		t.Errorf("the refusal names %v", r.detail.GetHolder())
	}
	c.begin(n, acquireOf("r", "C", "1", 20*time.Second))
	c.untilWaiting("r", 1)
	_, err = c.follow(n, acquireOf("r", "B", "2", 300*time.Millisecond)).wait(t)
	r = wantRefusal(t, err, lockpb.Reason_WAIT_TIMEOUT, lockpb.Applied_NO)
	if r.detail.GetHolder().GetFencingToken() != held.GetFencingToken() || r.detail.GetHolder().GetHeldFor() < 250 || r.detail.GetPosition() != 2 {
		t.Errorf("the refusal names %v at position %d", r.detail.GetHolder(), r.detail.GetPosition())
	}
	_, err = c.follow(n, acquireOf("/r", "B", "3", 0)).wait(t)
	wantRefusal(t, err, lockpb.Reason_INVALID, lockpb.Applied_NO)
}

func TestFollowOverHTTP(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	held := c.acquire(n, acquireOf("r", "A", "1", 0))
	request, err := http.NewRequestWithContext(c.context(), http.MethodPost, n.http.URL+"/lock/follow",
		strings.NewReader(`{"resource":"r","client_id":"B","request_id":"1","wait_timeout":20000}`))
	check(t, err)
	response, err := http.DefaultClient.Do(request)
	check(t, err)
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	next := func(want string) {
		t.Helper()
		if !lines.Scan() || !strings.HasPrefix(strings.ReplaceAll(lines.Text(), " ", ""), want) {
			t.Fatalf("got %s, %v; want %s", lines.Text(), lines.Err(), want)
		}
	}
	next(`{"result":{"progress":{"position":1,"holder":{"clientId":"A"`)
	c.release(n, held)
	next(`{"result":{"granted":{"leaseId":"`)
	refused := c.do(n, "POST", "/lock/follow", `{"resource":"r","client_id":"C","request_id":"1","wait_timeout":0}`)
	if refused.code != http.StatusConflict || refused.body["reason"] != "HELD" {
		t.Errorf("%d %s", refused.code, refused.text)
	}
	refused = c.do(n, "POST", "/lock/follow", `{"resource":"r","client_id":"C","request_id":"2","wait":1}`)
	if refused.code != http.StatusBadRequest || refused.body["field"] != "wait" {
		t.Errorf("%d %s", refused.code, refused.text)
	}
}

// A reader of a Follow that does not read loses old news, not the newest, and does not keep the acquire from ending.
func TestFollowOfASlowReader(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	held := c.acquire(n, acquireOf("r", "A", "1", 0))
	began, goOn := make(chan struct{}), make(chan struct{})
	begin := sync.OnceFunc(func() { close(began); <-goOn })
	var granted *lockpb.AcquireResponse
	done := make(chan error, 1)
	go func() {
		done <- n.server.followTo(c.context(), acquireOf("r", "B", "1", 20*time.Second), func(m *lockpb.FollowResponse) error {
			begin()
			granted = m.GetGranted()
			return nil
		})
	}()
	<-began
	c.release(n, held)
	c.until("the lease is confirmed although nobody reads", func() bool {
		h := c.look(n, "r").GetHolders()
		return len(h) == 1 && h[0].GetClientId() == "B" && duration(h[0].GetRemaining()) > testLockConfig().ClaimWindow
	})
	close(goOn)
	check(t, <-done)
	if granted == nil {
		t.Error("the lease was not sent")
	}
}

func TestFollowWhoseReaderIsGone(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	c.acquire(n, acquireOf("r", "A", "1", 0))
	gone := errors.New("gone")
	err := n.server.followTo(c.context(), acquireOf("r", "B", "1", 20*time.Second), func(*lockpb.FollowResponse) error { return gone })
	if !errors.Is(err, gone) {
		t.Errorf("got %v", err)
	}
	if l := c.look(n, "r"); l.GetWaiting() != 1 || l.GetWaiters()[0].GetAttached() {
		t.Errorf("left behind: %v", l)
	}
}

// crowd is a machine with a resource that one holds and many await, and the queues that tell them.
type crowd struct {
	machine *lock.Machine
	mu      sync.Mutex
	index   uint64
	queues  *queues
	places  []*place
	held    lease.ID
	looks   int
}

func newCrowd(t testing.TB, waiters int) *crowd {
	c := &crowd{machine: lock.New(), queues: newQueues()}
	config := testLockConfig()
	config.MaxWaiters = waiters
	c.apply(lock.Init{Cluster: "lg-test", Version: 1, Config: config})
	for i := range waiters + 1 {
		cmd := lock.Acquire{
			Identity: "i", Client: lease.ClientID(fmt.Sprint("c", i)), Request: "r", Resource: "hot", Mode: lease.Exclusive,
			Wait: time.Minute, Lease: lease.ID{15: byte(i), 14: byte(i >> 8), 13: 1}, Call: uint64(i + 1),
		}
		switch result := c.apply(cmd)[0].(type) {
		case lock.Granted:
			c.held = result.Lease
		case lock.Waiting:
			c.places = append(c.places, c.queues.join(cmd, result))
		default:
			t.Fatalf("got %v", result)
		}
	}
	return c
}

func (c *crowd) apply(commands ...lock.Command) []lock.Result {
	c.mu.Lock()
	c.index++
	results, events := c.machine.Apply(c.index, lock.Entry{Now: lock.LeaseTime(c.index), Commands: commands})
	c.mu.Unlock()
	c.queues.applied(events)
	for _, e := range events {
		if g, ok := e.(lock.LeaseGranted); ok {
			c.held = g.Lease
		}
	}
	return results
}

func (c *crowd) view(fn func(*lock.Machine)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.looks++
	fn(c.machine)
}

// However often a queue moves, each call is told at most so often, and the queue is walked once for all of them.
func TestProgressIsToldAtABoundedRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrowd(t, 200)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { c.queues.run(ctx, c.view); close(done) }()
		synctest.Wait()
		c.looks = 0
		last := c.places[len(c.places)-1]
		told := 0
		for range 100 { // in a second, one release each 10 ms
			c.apply(lock.Release{Identity: "i", Lease: c.held})
			time.Sleep(10 * time.Millisecond)
			select {
			case <-last.news:
				told++
			default:
			}
		}
		time.Sleep(progressEvery)
		synctest.Wait()
		if told < 9 || told > 11 || c.looks > 12 {
			t.Errorf("told %d times in a second, the queue was walked %d times", told, c.looks)
		}
		if last.position != 100 {
			t.Errorf("it was told that it is at %d", last.position)
		}
		for _, p := range c.places {
			p.leave()
		}
		if len(c.queues.places) != 0 || c.queues.count.Load() != 0 {
			t.Errorf("left behind: %v", c.queues.places)
		}
		cancel()
		<-done
	})
}

// BenchmarkProgress is the cost of telling 1,000 calls that wait for one resource that all of them have moved.
func BenchmarkProgress(b *testing.B) {
	c := newCrowd(b, 1000)
	c.queues.tell(c.view)
	b.ReportAllocs()
	for i := range b.N {
		c.queues.mu.Lock()
		for _, p := range c.places {
			p.position = -i // so that all have moved
		}
		c.queues.move("hot")
		c.queues.mu.Unlock()
		c.queues.tell(c.view)
	}
}
