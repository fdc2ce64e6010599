package coordinator

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// patient bounds what a test waits for.
const patient = 60 * time.Second

// running is a set of nodes on loopback ports and temporary directories, all in this process.
type running struct {
	t       testing.TB
	configs []Config
	nodes   []*runningNode

	releases []uint32 // the cluster version that each node's program knows; empty: the newest

	downMu sync.Mutex
	down   map[int]bool // nodes that are being restarted
}

type runningNode struct {
	node  *Node
	stop  context.CancelFunc
	ended chan error
}

func newRunning(t testing.TB, n int) *running {
	t.Helper()
	r := &running{t: t, nodes: make([]*runningNode, n)}
	var members []Member
	for i := range n {
		addresses := freeAddresses(t, 3)
		members = append(members, Member{ID: fmt.Sprintf("n%d", i+1), Peer: addresses[0], GRPC: addresses[1], HTTP: addresses[2]})
	}
	for i := range n {
		c := DefaultConfig()
		c.Node, c.Dir, c.Members = members[i].ID, filepath.Join(t.TempDir(), members[i].ID), members
		c.Timing.Heartbeat, c.Timing.Election, c.Timing.LeaderLease = 200*time.Millisecond, 200*time.Millisecond, 100*time.Millisecond
		c.Lease.MinTTL, c.Lease.DefaultTTL = 2*time.Second, 10*time.Second
		r.configs = append(r.configs, c)
	}
	t.Cleanup(func() {
		for i := range r.nodes {
			r.stop(i)
		}
	})
	return r
}

// calm gives the nodes the timing that they have by default, for tests in which no election may happen that they did not
// ask for: on a busy machine a leader is silent for 100 ms now and then.
func (r *running) calm() {
	usual := DefaultConfig()
	for i := range r.configs {
		r.configs[i].Timing, r.configs[i].Lease.MinTTL = usual.Timing, usual.Lease.MinTTL
	}
}

// freeAddresses finds ports that nobody listens on. Another process can take one before the node does; then the test
// fails with the node's error, which says so.
func freeAddresses(t testing.TB, n int) (addresses []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		check(t, err)
		defer l.Close()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *running) start(i int) {
	r.t.Helper()
	var deps Deps
	if os.Getenv("LYCHGATE_TEST_LOG") != "" {
		deps.Logger = slog.New(slog.NewTextHandler(os.Stderr, nil)).With("node", r.configs[i].Node)
	}
	if i < len(r.releases) {
		deps.release = r.releases[i]
	}
	node, err := New(r.configs[i], deps)
	check(r.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	n := &runningNode{node: node, stop: cancel, ended: make(chan error, 1)}
	r.nodes[i] = n
	go func() { n.ended <- node.Run(ctx) }()
}

func (r *running) startAll() {
	r.t.Helper()
	for i := range r.configs {
		r.start(i)
	}
	for i := range r.configs {
		r.awaitReady(i)
	}
}

func (r *running) awaitReady(i int) {
	r.t.Helper()
	select {
	case <-r.nodes[i].node.Ready():
	case err := <-r.nodes[i].ended:
		r.t.Fatalf("node %d ended: %v", i+1, err)
	case <-time.After(patient):
		r.t.Fatalf("node %d is not ready", i+1)
	}
}

// stop ends a node in an orderly way, and may be called again.
func (r *running) stop(i int) {
	r.t.Helper()
	n := r.nodes[i]
	if n == nil {
		return
	}
	r.nodes[i] = nil
	n.stop()
	select {
	case err := <-n.ended:
		if err != nil {
			r.t.Errorf("node %d: %v", i+1, err)
		}
	case <-time.After(patient):
		r.t.Fatalf("node %d does not stop", i+1)
	}
}

func (r *running) locks(i int) lockpb.LocksClient {
	r.t.Helper()
	conn, err := grpc.NewClient(r.nodes[i].node.GRPCAddr(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(r.t, err)
	r.t.Cleanup(func() { _ = conn.Close() })
	return lockpb.NewLocksClient(conn)
}

func (r *running) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	r.t.Cleanup(cancel)
	return ctx
}

func (r *running) get(i int, path string) (int, string) {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.context(), http.MethodGet, "http://"+r.nodes[i].node.HTTPAddr()+path, nil)
	check(r.t, err)
	response, err := http.DefaultClient.Do(request)
	check(r.t, err)
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	check(r.t, err)
	return response.StatusCode, string(text)
}

func (r *running) leader() int {
	r.t.Helper()
	looks := time.NewTicker(20 * time.Millisecond)
	defer looks.Stop()
	for deadline := time.Now().Add(patient); time.Now().Before(deadline); <-looks.C {
		for i, n := range r.nodes {
			if n == nil {
				continue
			}
			if _, text := r.get(i, "/metrics"); strings.Contains(text, `lychgate_leader{group="0"} 1`) {
				return i
			}
		}
	}
	r.t.Fatal("nobody leads")
	return 0
}

// Three nodes in one process, on real ports and disks: leases outlive the planned stop of the leader and a restart of
// everything, tokens grow, and every node's audit log tells the same without a gap.
func TestThreeNodesInOneProcess(t *testing.T) {
	r := newRunning(t, 3)
	r.startAll()
	first := r.leader()
	other := (first + 1) % 3
	held, err := r.locks(other).Acquire(r.context(), &lockpb.AcquireRequest{Resource: "ledger/eu", ClientId: "A", RequestId: "1"})
	check(t, err)

	r.stop(first)
	second := r.leader()
	if _, err := r.locks(other).Renew(r.context(), &lockpb.RenewRequest{LeaseId: held.GetLeaseId()}); err != nil {
		t.Errorf("renewal under the next leader: %v", err)
	}
	r.start(first)
	r.awaitReady(first)

	for i := range 3 {
		r.stop(i)
	}
	r.startAll()
	renewed, err := r.locks(first).Renew(r.context(), &lockpb.RenewRequest{LeaseId: held.GetLeaseId()})
	if err != nil || renewed.GetFencingToken() != held.GetFencingToken() {
		t.Errorf("renewal after a restart of all: %v, %v", renewed, err)
	}
	_, err = r.locks(first).Release(r.context(), &lockpb.ReleaseRequest{LeaseId: held.GetLeaseId()})
	check(t, err)
	next, err := r.locks(second).Acquire(r.context(), &lockpb.AcquireRequest{Resource: "ledger/eu", ClientId: "B", RequestId: "1"})
	check(t, err)
	if next.GetFencingToken() <= held.GetFencingToken() {
		t.Errorf("token %d after %d", next.GetFencingToken(), held.GetFencingToken())
	}
	for i := range 3 {
		if code, text := r.get(i, "/.well-known/jwks.json"); code != http.StatusOK || !strings.Contains(text, `"Ed25519"`) {
			t.Errorf("keys of node %d: %d %s", i+1, code, text)
		}
	}
	for i := range 3 {
		r.stop(i)
	}
	var told []string
	for _, c := range r.configs {
		told = append(told, checkAudit(t, filepath.Join(c.Dir, "audit.jsonl"), held.GetLeaseId()))
	}
	// A node that stopped first has not heard the end; what it has is the beginning of what the others have.
	longest := told[0]
	for _, s := range told[1:] {
		if len(s) > len(longest) {
			longest = s
		}
	}
	for i, s := range told {
		if !strings.HasPrefix(longest, s) || !strings.Contains(s, "granted ledger/eu A") {
			t.Errorf("node %d's audit log:\n%s\nanother's:\n%s", i+1, s, longest)
		}
	}
}

// A leader that is stopped hands over before it ends its connections: one that takes its time costs nobody a lease.
func TestStopHandsOverFirst(t *testing.T) {
	r := newRunning(t, 3)
	r.startAll()
	old := r.leader()
	held, err := r.locks((old+1)%3).Acquire(r.context(), &lockpb.AcquireRequest{Resource: "r", ClientId: "A", RequestId: "1"})
	check(t, err)

	// Half a request: its connection is not idle, so the server waits for it when it stops.
	conn, err := net.Dial("tcp", r.nodes[old].node.HTTPAddr())
	check(t, err)
	defer conn.Close()
	_, err = io.WriteString(conn, "POST /lock/renew HTTP/1.1\r\nHost: x\r\nContent-Length: 20\r\n\r\n{")
	check(t, err)

	leaving := r.nodes[old]
	leaving.stop()
	r.nodes[old] = nil
	if next := r.leader(); next == old {
		t.Fatal("the leader still leads")
	}
	_, err = r.locks((old+1)%3).Renew(r.context(), &lockpb.RenewRequest{LeaseId: held.GetLeaseId()})
	check(t, err)
	select {
	case err := <-leaving.ended:
		t.Errorf("the old leader had ended before the next one served (%v): it did not hand over first", err)
	default:
	}
	check(t, conn.Close())
	check(t, <-leaving.ended)
}

// checkAudit reads an audit log by the one rule, each line begins where the one before it ended, and returns its
// decisions in short.
func checkAudit(t *testing.T, path, secret string) string {
	t.Helper()
	f, err := os.Open(path)
	check(t, err)
	defer f.Close()
	var told strings.Builder
	covered := uint64(0)
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if strings.Contains(lines.Text(), secret) {
			t.Errorf("%s shows a lease id: %s", path, lines.Text())
		}
		var l struct {
			From, Index                       uint64
			Decision, Resource, Client, Cause string
		}
		check(t, json.Unmarshal(lines.Bytes(), &l))
		if l.From != covered+1 && (l.From != covered || l.Index != covered) {
			t.Errorf("%s: a gap between %d and %s", path, covered, lines.Text())
		}
		if l.Decision == "lost" {
			t.Errorf("%s: %s", path, lines.Text())
		}
		covered = l.Index
		if l.Decision != "none" {
			fmt.Fprintf(&told, "%d %s %s %s %s\n", l.Index, l.Decision, l.Resource, l.Client, l.Cause)
		}
	}
	return told.String()
}

func TestTakenPortIsAClearError(t *testing.T) {
	for _, port := range []struct {
		name  string
		take  func(c *Config, address string)
		wants string
	}{
		{"gRPC", func(c *Config, a string) { c.Listen.GRPC = a }, "listen for gRPC"},
		{"HTTP", func(c *Config, a string) { c.Listen.HTTP = a }, "listen for HTTP"},
		{"peers", func(c *Config, a string) { c.Listen.Peer = a }, "peer"},
	} {
		r := newRunning(t, 1)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		check(t, err)
		port.take(&r.configs[0], l.Addr().String())
		node, err := New(r.configs[0], Deps{})
		check(t, err)
		err = node.Run(r.context())
		if err == nil || !strings.Contains(err.Error(), port.wants) || !strings.Contains(err.Error(), l.Addr().String()) ||
			!strings.Contains(err.Error(), "address already in use") {
			t.Errorf("%s: %v", port.name, err)
		}
		_ = l.Close()
		if err := node.Run(r.context()); err == nil || !strings.Contains(err.Error(), "before") {
			t.Errorf("%s: Run again: %v", port.name, err)
		}
	}
}

// What was opened before a later step failed is closed again: the same directory and ports serve a second node.
func TestFailedStartLetsGo(t *testing.T) {
	r := newRunning(t, 1)
	good := r.configs[0]
	l, err := net.Listen("tcp", good.Members[0].Peer)
	check(t, err)
	node, err := New(good, Deps{})
	check(t, err)
	if err := node.Run(r.context()); err == nil {
		t.Fatal("ran on a taken port")
	}
	_ = l.Close()
	r.startAll()
}

func TestConnectionsAreBounded(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	defer inner.Close()
	l := newLimited(inner, 1)
	accepted := make(chan net.Conn, 3)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- conn
		}
	}()
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", inner.Addr().String())
		check(t, err)
		return conn
	}
	first := dial()
	defer first.Close()
	kept := <-accepted
	second := dial()
	defer second.Close()
	check(t, second.SetReadDeadline(time.Now().Add(patient)))
	if _, err := second.Read(make([]byte, 1)); err == nil || os.IsTimeout(err) {
		t.Errorf("the connection over the bound: %v, want it closed", err)
	}
	check(t, kept.Close())
	_ = kept.Close() // counted once
	third := dial()
	defer third.Close()
	select {
	case conn := <-accepted:
		_ = conn.Close()
	case <-time.After(patient):
		t.Error("no room after a connection was closed")
	}
	if open := l.open.Load(); open != 0 {
		t.Errorf("%d counted as open", open)
	}
}
