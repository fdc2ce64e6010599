package group

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// quay joins the peer ports of nodes by connections in memory, which end as those of real processes do: a process that is
// killed leaves closed connections behind and a port that refuses, a network that is cut leaves silence.
type quay struct {
	mu    sync.Mutex
	lines map[string]*pipes            // by address; a node that listens
	ends  map[string]map[*end]struct{} // by address of the node that has the end
	cut   map[string]bool              // nothing goes to or comes from this address
	shut  map[string]bool              // the port refuses, whatever else its node does
}

// end is one end of a connection.
type end struct {
	net.Conn
	quay     *quay
	from, to string
}

func newQuay() *quay {
	return &quay{
		lines: make(map[string]*pipes), ends: make(map[string]map[*end]struct{}), cut: make(map[string]bool), shut: make(map[string]bool),
	}
}

// port opens the peer port of a node.
func (q *quay) port(t *testing.T, node, address string, members []Member) *Port {
	t.Helper()
	line := newPipes()
	port := NewPort(PortConfig{
		Node: node, Members: members, Listener: line,
		Dial: func(ctx context.Context, _, to string) (net.Conn, error) { return q.dial(ctx, address, to) },
	})
	if err := port.Listen(); err != nil {
		t.Fatal(err)
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lines[address] = line
	return port
}

func (q *quay) dial(ctx context.Context, from, to string) (net.Conn, error) {
	q.mu.Lock()
	line, cut, shut, alive := q.lines[to], q.cut[from] || q.cut[to], q.shut[to], q.lines[from] != nil
	q.mu.Unlock()
	switch {
	case cut:
		<-ctx.Done()
		return nil, ctx.Err()
	case !alive:
		return nil, errors.New("a dead process dials")
	case line == nil || shut:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	a, b := net.Pipe()
	ours, theirs := &end{a, q, from, to}, &end{b, q, to, from}
	q.mu.Lock()
	for _, e := range []*end{ours, theirs} {
		if q.ends[e.from] == nil {
			q.ends[e.from] = make(map[*end]struct{})
		}
		q.ends[e.from][e] = struct{}{}
	}
	q.mu.Unlock()
	select {
	case line.conns <- theirs:
		return ours, nil
	case <-line.done:
	case <-ctx.Done():
	}
	return nil, errors.Join(errors.New("not accepted"), ours.Close(), theirs.Close())
}

// hangUp ends the connections of a node.
func (q *quay) hangUp(address string) {
	q.mu.Lock()
	ends := q.ends[address]
	delete(q.ends, address)
	q.mu.Unlock()
	for e := range ends {
		_ = e.Conn.Close()
	}
}

// kill does to a node's connections what the end of its process does.
func (q *quay) kill(address string) {
	q.mu.Lock()
	line := q.lines[address]
	delete(q.lines, address)
	q.mu.Unlock()
	_ = line.Close()
	q.hangUp(address)
}

// set cuts a node off, or has its port refuse.
func (q *quay) set(what map[string]bool, address string, on bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	what[address] = on
}

// Write implements net.Conn. What a cut connection is given is lost.
func (e *end) Write(p []byte) (int, error) {
	e.quay.mu.Lock()
	cut := e.quay.cut[e.from] || e.quay.cut[e.to]
	e.quay.mu.Unlock()
	if cut {
		return len(p), nil
	}
	return e.Conn.Write(p)
}

func (e *end) Close() error {
	e.quay.mu.Lock()
	delete(e.quay.ends[e.from], e)
	e.quay.mu.Unlock()
	return e.Conn.Close()
}

// onQuay has the nodes of a cluster speak over ports.
func (c *cluster) onQuay(q *quay) {
	adjust := c.adjust
	c.adjust = func(config *Config) {
		if adjust != nil {
			adjust(config)
		}
		self, _ := config.member(config.Node)
		config.Port = q.port(c.t, config.Node, self.Peer, config.Members)
	}
}

// killOn ends a node as SIGKILL would, for the others; the node itself is told afterwards.
func (c *cluster) killOn(q *quay, m *member) {
	q.kill(string(m.address))
	m.cancel()
}

// serving waits for one of the nodes to lead and serve, and says how long that took.
func serving(t *testing.T, nodes []*member) (*member, time.Duration) {
	t.Helper()
	for began := time.Now(); time.Since(began) < 30*time.Second; time.Sleep(time.Millisecond) {
		for _, m := range nodes {
			if _, self := m.node().Leader(); !self {
				continue
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_, err := m.node().Read(ctx, func(*lock.Machine) {})
			cancel()
			if err == nil {
				return m, time.Since(began)
			}
		}
	}
	t.Fatal("nobody leads within 30s")
	return nil, 0
}
