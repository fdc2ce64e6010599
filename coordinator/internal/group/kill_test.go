package group

import (
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"
)

// freeAddresses are addresses on the loopback, by name, that nobody listened on a moment ago.
func freeAddresses(t testing.TB, n int) []string {
	t.Helper()
	var addresses []string
	for range n {
		l, err := net.Listen("tcp", "localhost:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() //nolint:errcheck // nothing was sent
		addresses = append(addresses, fmt.Sprintf("localhost:%d", l.Addr().(*net.TCPAddr).Port))
	}
	return addresses
}

func testMembers(t testing.TB, n int) []Member {
	t.Helper()
	var members []Member
	for i, address := range freeAddresses(t, n) {
		members = append(members, Member{ID: fmt.Sprintf("n%d", i+1), Peer: address})
	}
	return members
}

// TestKillAndRestart runs three node processes on real files and sockets, kills the leader with SIGKILL time and
// again, then all of them at once: what was acknowledged is still there, tokens grow, and replicas agree.
func TestKillAndRestart(t *testing.T) {
	const kills = 4
	dir, members := t.TempDir(), testMembers(t, 3)
	nodes := make(map[string]*process)
	start := func(id string) {
		nodes[id] = startProcess(t, nodeSpec{Node: id, Dir: filepath.Join(dir, id), Members: members})
	}
	for _, m := range members {
		start(m.ID)
	}
	defer func() {
		for _, p := range nodes {
			p.kill()
		}
	}()
	history := &killHistory{t: t, nodes: nodes}
	slowest, fastest := time.Duration(0), time.Hour
	for range kills {
		for range 40 {
			history.grant()
		}
		nodes[history.leader].kill()
		dead := history.leader
		delete(nodes, dead)
		killed := time.Now()
		history.grant()
		took := time.Since(killed)
		slowest, fastest = max(slowest, took), min(fastest, took)
		history.retryLast()
		start(dead)
	}
	for id := range nodes {
		nodes[id].kill()
		start(id)
	}
	history.retryLast()
	history.grant()
	history.agree()
	for id, p := range nodes {
		p.stop()
		delete(nodes, id)
	}
	t.Logf("%d grants over %d kills of the leader and one of all; from the kill to the next grant it took %s to %s",
		history.grants, kills, fastest.Round(time.Millisecond), slowest.Round(time.Millisecond))
	if slowest > 5*time.Second {
		t.Errorf("from the kill of the leader to the next grant it took %s", slowest)
	}
	// By heartbeats alone it never takes less than the timeout. A busy machine may be late now and then.
	if heartbeat := DefaultTiming().Heartbeat; fastest > heartbeat*4/5 {
		t.Errorf("from the kill of the leader to the next grant it always took at least %s: the end of its process was not noticed", fastest)
	}
}

// polled looks every few milliseconds, for want of a signal, until done says so, and reports whether it did in time.
func polled(bound time.Duration, done func() bool) bool {
	looks := time.NewTicker(5 * time.Millisecond)
	defer looks.Stop()
	for deadline := time.Now().Add(bound); !done(); {
		if time.Now().After(deadline) {
			return false
		}
		<-looks.C
	}
	return true
}

// killHistory is what the clients of the killed nodes were told.
type killHistory struct {
	t      *testing.T
	nodes  map[string]*process
	leader string
	grants int
	last   uint64
}

func (h *killHistory) request(n int) question {
	return question{Op: "acquire", Resource: fmt.Sprintf("r/%d", n), Request: fmt.Sprintf("q%d", n), ID: byte(n)}
}

// ask tries all nodes until one answers.
func (h *killHistory) ask(q question) (answer reply) {
	h.t.Helper()
	answered := polled(30*time.Second, func() bool {
		for id, p := range h.nodes {
			if h.leader != "" && h.nodes[h.leader] != nil && id != h.leader {
				continue
			}
			if answer = p.ask(q); answer.Err == "" {
				h.leader = id
				return true
			}
			h.leader = answer.Leader
		}
		return false
	})
	if !answered {
		h.t.Fatal("no node answers within 30s")
	}
	return answer
}

func (h *killHistory) grant() {
	h.t.Helper()
	h.grants++
	r := h.ask(h.request(h.grants))
	if r.Token <= h.last {
		h.t.Errorf("grant %d has token %d after %d", h.grants, r.Token, h.last)
	}
	h.last = r.Token
}

// retryLast asks for the last grant again: it must be the same.
func (h *killHistory) retryLast() {
	h.t.Helper()
	if r := h.ask(h.request(h.grants)); !r.Retried || r.Token != h.last {
		h.t.Errorf("a retry of the grant with token %d is answered %+v", h.last, r)
	}
}

// agree waits until all nodes have applied the same entry, and compares their states.
func (h *killHistory) agree() {
	h.t.Helper()
	if !polled(30*time.Second, h.agreed) {
		h.t.Error("the nodes do not reach the same entry within 30s")
	}
}

func (h *killHistory) agreed() bool {
	h.t.Helper()
	byIndex := make(map[uint64]map[string]int)
	for _, p := range h.nodes {
		r := p.ask(question{Op: "digest"})
		if byIndex[r.Index] == nil {
			byIndex[r.Index] = make(map[string]int)
		}
		byIndex[r.Index][r.Digest]++
	}
	for index, digests := range byIndex {
		if len(digests) > 1 {
			h.t.Errorf("at entry %d the digests are %v", index, digests)
		}
		for _, n := range digests {
			if n == len(h.nodes) {
				return true
			}
		}
	}
	return false
}
