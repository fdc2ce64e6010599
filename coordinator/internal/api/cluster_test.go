package api

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"net"
	"net/http/httptest"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/internal/feed"
	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
	"github.com/lychgate/lychgate/coordinator/ticket"
)

// patient bounds what a test waits for. It is long because the machine may be busy; nothing ever takes it.
const patient = 30 * time.Second

const (
	testHeartbeat = 500 * time.Millisecond // as by default: on a busy machine nodes are silent for a good part of it
	testBeat      = 200 * time.Millisecond
)

func testLockConfig() lock.Config {
	return lock.Config{
		DefaultTTL: 10 * time.Second, MinTTL: 2 * time.Second, MaxTTL: time.Minute, MaxWait: time.Minute,
		RetryWindow: time.Minute, Grace: 10 * time.Second, ClaimWindow: 3 * time.Second, HeadStart: 200 * time.Millisecond,
		MaxWaiters: 5, MaxRequests: 1000, MaxExpiries: 100,
	}
}

// node is one coordinator of a test cluster: a real Raft group in memory, and real gRPC and HTTP on loopback.
type node struct {
	id        string
	group     *faulty
	server    *Server
	registry  *prometheus.Registry
	grpc      *grpc.Server
	http      *httptest.Server
	locks     lockpb.LocksClient
	cluster   lockpb.ClusterClient
	transport *raft.InmemTransport
	kill      func()
}

type cluster struct {
	version uint32 // with which it is created; 0: the newest
	t       *testing.T
	nodes   []*node
	secure  func(node string) Security // nil: none, and calls say themselves who makes them
	feed    feed.Config                // of the journals; zero: as by default
	calls   int                        // of a node, in progress; 0: 1,000
	beat    time.Duration              // of the watches; zero: as by default, so that no slow election ends them
}

// faulty is a group whose answers can be taken away.
type faulty struct {
	*group.Group
	spoil atomic.Pointer[func(lock.Command, group.Outcome, error) error] // an error replaces the answer
}

func (f *faulty) Propose(ctx context.Context, cmd lock.Command) (group.Outcome, error) {
	out, err := f.Group.Propose(ctx, cmd)
	if spoil := f.spoil.Load(); spoil != nil {
		if lost := (*spoil)(cmd, out, err); lost != nil {
			return group.Outcome{}, lost
		}
	}
	return out, err
}

// Submit spoils as Propose does.
func (f *faulty) Submit(submissions ...*group.Submission) {
	for _, s := range submissions {
		s.Caller = &spoiled{f, s.Command, s.Caller}
	}
	f.Group.Submit(submissions...)
}

type spoiled struct {
	*faulty
	cmd    lock.Command
	caller group.Caller
}

func (s *spoiled) Answered(out group.Outcome, err error) {
	if spoil := s.spoil.Load(); spoil != nil {
		if lost := (*spoil)(s.cmd, out, err); lost != nil {
			out, err = group.Outcome{}, lost
		}
	}
	s.caller.Answered(out, err)
}

// loseAnswers makes the next n answered commands for which match is true look lost.
func (f *faulty) loseAnswers(n int32, match func(lock.Command) bool) {
	var left atomic.Int32
	left.Store(n)
	spoil := func(cmd lock.Command, _ group.Outcome, err error) error {
		if err == nil && match(cmd) && left.Add(-1) >= 0 {
			return &group.Error{Kind: group.Unknown}
		}
		return nil
	}
	f.spoil.Store(&spoil)
}

// newCluster starts n nodes and waits until all of them are ready.
func newCluster(t *testing.T, n int) *cluster { return newSecureCluster(t, n, nil) }

func newSecureCluster(t *testing.T, n int, secure func(node string) Security) *cluster {
	t.Helper()
	return (&cluster{t: t, secure: secure}).begun(n)
}

func (c *cluster) begun(n int) *cluster {
	t := c.t
	t.Helper()
	var listeners []net.Listener
	var members []Member
	var peers []group.Member
	for i := range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		listeners = append(listeners, l)
		id := fmt.Sprintf("n%d", i+1)
		members = append(members, Member{ID: id, Peer: id + ":7602", GRPC: l.Addr().String(), HTTP: "unused"})
		peers = append(peers, group.Member{ID: id, Peer: id + ":7602"})
	}
	for i := range n {
		c.nodes = append(c.nodes, c.start(members, peers, i, listeners[i]))
	}
	c.connect(c.nodes...)
	c.elect(c.nodes[0])
	for _, node := range c.nodes {
		c.until("node is ready", func() bool { return node.server.Ready() == nil })
	}
	return c
}

func (c *cluster) start(members []Member, peers []group.Member, i int, l net.Listener) *node {
	c.t.Helper()
	n := &node{id: members[i].ID, registry: prometheus.NewRegistry()}
	seed := [ed25519.SeedSize]byte{byte(i + 1)}
	signer, err := ticket.NewSigner(ed25519.NewKeyFromSeed(seed[:]))
	check(c.t, err)
	metrics := NewMetrics(n.registry)
	_, n.transport = raft.NewInmemTransportWithTimeout(raft.ServerAddress(members[i].Peer), time.Second)
	memory := raft.NewInmemStore()
	logger := slog.New(slog.DiscardHandler)
	if os.Getenv("LYCHGATE_TEST_LOG") != "" {
		logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug})).With("node", n.id)
	}
	journal := NewJournal(1, metrics)
	if c.feed != (feed.Config{}) {
		journal.feed = feed.New(c.feed)
	}
	g, err := group.New(group.Config{
		Node: n.id, Members: peers, Cluster: "lg-test", Version: c.version, Lock: testLockConfig(),
		Key:       lock.PutKey{Node: n.id, KeyID: signer.Key().ID, Public: signer.Key().Public},
		Timing:    group.Timing{Heartbeat: testHeartbeat, LeaderLease: testHeartbeat, Commit: 5 * time.Millisecond, Tick: 50 * time.Millisecond},
		Stores:    &group.Stores{Log: memory, Stable: memory, Snapshots: raft.NewInmemSnapshotStore()},
		Transport: n.transport, Observer: metrics.Group(0), Logger: logger,
		OnApply: func(a group.Applied) {
			metrics.Applied(a)
			journal.Applied(0, a)
		},
		OnRestore: func(index uint64) { journal.Restored(0, index) },
	})
	check(c.t, err)
	n.group = &faulty{Group: g}
	var security Security
	if c.secure != nil {
		security = c.secure(n.id)
	}
	n.server, err = New(Config{
		Security: security,
		Node:     n.id, Members: members, Patience: 3 * time.Second, Budget: 10 * time.Second, MaxCalls: cmp.Or(c.calls, 1000),
		Signer: signer, Metrics: metrics, Logger: logger, Journal: journal, Beat: c.beat,
	}, n.group)
	check(c.t, err)
	if c.secure == nil {
		n.server.callers = callers
	}
	handler, err := n.server.Handler(n.registry)
	check(c.t, err)
	n.http = httptest.NewServer(handler)
	n.grpc = n.server.NewGRPC()
	conn, err := grpc.NewClient(members[i].GRPC, grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(c.t, err)
	n.locks, n.cluster = lockpb.NewLocksClient(conn), lockpb.NewClusterClient(conn)

	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = n.grpc.Serve(l) })
	wg.Go(func() { n.server.Run(ctx) })
	wg.Go(func() { _ = g.Run(ctx) })
	n.kill = sync.OnceFunc(func() {
		n.transport.DisconnectAll()
		c.disconnect(n)
		n.grpc.Stop()
		n.http.CloseClientConnections()
		n.server.Stop()
		cancel()
		wg.Wait()
		n.http.Close()
		_ = conn.Close()
	})
	c.t.Cleanup(n.kill)
	return n
}

// testIdentityKey is metadata by which a call to a test cluster says who makes it.
const testIdentityKey = "test-identity"

func callers(ctx context.Context) lease.Identity {
	if said := metadata.ValueFromIncomingContext(ctx, testIdentityKey); len(said) > 0 {
		return lease.Identity(said[0])
	}
	return "anonymous"
}

// as makes the calls under a context those of another identity.
func as(ctx context.Context, identity string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, testIdentityKey, identity)
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) connect(nodes ...*node) {
	for _, a := range nodes {
		for _, b := range nodes {
			if a != b {
				a.transport.Connect(b.transport.LocalAddr(), b.transport)
			}
		}
	}
}

// elect has a node of a new cluster stand for election at once, which it would do a heartbeat later.
func (c *cluster) elect(n *node) {
	_, from := raft.NewInmemTransport("test")
	from.Connect(n.transport.LocalAddr(), n.transport)
	order := raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}
	var answer raft.TimeoutNowResponse
	c.until("the node stands for election", func() bool { // it refuses before it has begun
		return from.TimeoutNow(raft.ServerID(n.id), n.transport.LocalAddr(), &order, &answer) == nil
	})
}

// disconnect cuts a node off from the other nodes; its clients still reach it.
func (c *cluster) disconnect(n *node) {
	n.transport.DisconnectAll()
	for _, other := range c.nodes {
		other.transport.Disconnect(n.transport.LocalAddr())
	}
}

// until polls, because what it waits for gives no signal.
func (c *cluster) until(what string, done func() bool) {
	c.t.Helper()
	deadline := time.Now().Add(patient)
	looks := time.NewTicker(5 * time.Millisecond)
	defer looks.Stop()
	for !done() {
		if time.Now().After(deadline) {
			c.t.Fatalf("not after %v: %s", patient, what)
		}
		<-looks.C
	}
}

func (c *cluster) leader() (leader *node) {
	c.t.Helper()
	c.until("there is a leader", func() bool {
		for _, n := range c.nodes {
			if _, self := n.group.Leader(); self && n.server.Ready() == nil {
				leader = n
			}
		}
		return leader != nil
	})
	return leader
}

func (c *cluster) followers() (followers []*node) {
	leader := c.leader()
	for _, n := range c.nodes {
		if n != leader {
			followers = append(followers, n)
		}
	}
	return followers
}

func (c *cluster) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	c.t.Cleanup(cancel)
	return ctx
}

func acquireOf(resource, client, request string, wait time.Duration) *lockpb.AcquireRequest {
	return &lockpb.AcquireRequest{Resource: resource, ClientId: client, RequestId: request, WaitTimeout: milliseconds(wait)}
}

func (c *cluster) acquire(n *node, in *lockpb.AcquireRequest) *lockpb.AcquireResponse {
	c.t.Helper()
	out, err := n.locks.Acquire(c.context(), in)
	if err != nil {
		c.t.Fatalf("acquire %s by %s at %s: %v", in.GetResource(), in.GetClientId(), n.id, err)
	}
	return out
}

func (c *cluster) release(n *node, lease *lockpb.AcquireResponse) {
	c.t.Helper()
	if _, err := n.locks.Release(c.context(), &lockpb.ReleaseRequest{LeaseId: lease.GetLeaseId()}); err != nil {
		c.t.Fatalf("release at %s: %v", n.id, err)
	}
}

// look reads a lock as it stands.
func (c *cluster) look(n *node, resource string) *lockpb.Lock {
	c.t.Helper()
	out, err := n.locks.Get(c.context(), &lockpb.GetRequest{Resource: resource})
	if err != nil {
		c.t.Fatalf("get at %s: %v", n.id, err)
	}
	return out.GetLock()
}

// untilWaiting waits until so many requests are queued for a resource.
func (c *cluster) untilWaiting(resource string, want int32) {
	c.t.Helper()
	c.until(fmt.Sprintf("%d wait for %s", want, resource), func() bool { return c.look(c.leader(), resource).GetWaiting() == want })
}

// started is an acquire that runs on its own.
type started struct {
	done chan struct{}
	out  *lockpb.AcquireResponse
	err  error
	quit context.CancelFunc
}

func (c *cluster) begin(n *node, in *lockpb.AcquireRequest) *started {
	return c.beginAs(c.context(), n, in)
}

func (c *cluster) beginAs(ctx context.Context, n *node, in *lockpb.AcquireRequest) *started {
	ctx, cancel := context.WithCancel(ctx)
	s := &started{done: make(chan struct{}), quit: cancel}
	in = proto.CloneOf(in)
	go func() {
		defer close(s.done)
		s.out, s.err = n.locks.Acquire(ctx, in)
	}()
	return s
}

func (s *started) wait(t *testing.T) (*lockpb.AcquireResponse, error) {
	t.Helper()
	select {
	case <-s.done:
		return s.out, s.err
	case <-time.After(patient):
		t.Fatal("the acquire did not end")
		return nil, nil
	}
}

// wantRefusal checks an error's reason and what it says about having been applied.
func wantRefusal(t *testing.T, err error, reason lockpb.Reason, applied lockpb.Applied) *refusal {
	t.Helper()
	if err == nil {
		t.Fatalf("accepted, want %v", reason)
	}
	r := received(err, "?")
	if r.reason() != reason || r.detail.GetApplied() != applied {
		t.Fatalf("got %v, applied %v (%v), want %v, applied %v", r.reason(), r.detail.GetApplied(), err, reason, applied)
	}
	return r
}
