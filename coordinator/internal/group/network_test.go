package group

import (
	"errors"
	"io"
	"sync"
	"time"

	"github.com/hashicorp/raft"
)

// network joins in-memory transports and lets a test cut, delay and half-open every directed link.
// A request travels on the link from caller to callee, its answer on the one back; so an answer can be lost
// or late while the request took effect.
type network struct {
	mu    sync.Mutex
	nodes map[raft.ServerAddress]*raft.InmemTransport
	cut   map[link]bool
	delay map[link]time.Duration
}

type link struct{ from, to raft.ServerAddress }

// lostAfter is when a caller gives up on a message that was lost. No real time passes.
const lostAfter = 300 * time.Millisecond

var errLost = errors.New("the message was lost")

func newNetwork() *network {
	return &network{
		nodes: make(map[raft.ServerAddress]*raft.InmemTransport),
		cut:   make(map[link]bool),
		delay: make(map[link]time.Duration),
	}
}

// attach makes the transport of a node, and replaces the one it had before it was restarted.
func (n *network) attach(address raft.ServerAddress) *wire {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, own := raft.NewInmemTransportWithTimeout(address, 400*time.Millisecond)
	n.nodes[address] = own
	for other, transport := range n.nodes {
		own.Connect(other, transport)
		transport.Connect(address, own)
	}
	return &wire{InmemTransport: own, network: n, closed: make(chan struct{})}
}

// set cuts or heals one directed link.
func (n *network) set(from, to raft.ServerAddress, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut[link{from, to}] = cut
}

// isolate cuts or heals all links of a node.
func (n *network) isolate(node raft.ServerAddress, cut bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for other := range n.nodes {
		if other != node {
			n.cut[link{node, other}], n.cut[link{other, node}] = cut, cut
		}
	}
}

// slow delays what travels on one directed link.
func (n *network) slow(from, to raft.ServerAddress, by time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay[link{from, to}] = by
}

func (n *network) heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	clear(n.cut)
	clear(n.delay)
}

func (n *network) look(from, to raft.ServerAddress) (cut bool, delay time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cut[link{from, to}], n.delay[link{from, to}]
}

// wire is one node's transport.
type wire struct {
	*raft.InmemTransport
	network *network

	once   sync.Once
	closed chan struct{}
}

// exchange carries one request and its answer.
func (w *wire) exchange(to raft.ServerAddress, call func() error) error {
	if err := w.travel(w.LocalAddr(), to); err != nil {
		return err
	}
	if err := call(); err != nil {
		return err
	}
	return w.travel(to, w.LocalAddr())
}

func (w *wire) travel(from, to raft.ServerAddress) error {
	cut, delay := w.network.look(from, to)
	if cut {
		w.pause(lostAfter)
		return errLost
	}
	w.pause(delay)
	return nil
}

func (w *wire) pause(d time.Duration) {
	if d == 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.closed:
	}
}

func (w *wire) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	return w.exchange(to, func() error { return w.InmemTransport.AppendEntries(id, to, args, resp) })
}

func (w *wire) RequestVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	return w.exchange(to, func() error { return w.InmemTransport.RequestVote(id, to, args, resp) })
}

func (w *wire) RequestPreVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	return w.exchange(to, func() error { return w.InmemTransport.RequestPreVote(id, to, args, resp) })
}

func (w *wire) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	return w.exchange(to, func() error { return w.InmemTransport.InstallSnapshot(id, to, args, resp, data) })
}

func (w *wire) TimeoutNow(id raft.ServerID, to raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	return w.exchange(to, func() error { return w.InmemTransport.TimeoutNow(id, to, args, resp) })
}

// AppendEntriesPipeline is refused, so that all entries pass through AppendEntries.
func (*wire) AppendEntriesPipeline(raft.ServerID, raft.ServerAddress) (raft.AppendPipeline, error) {
	return nil, raft.ErrPipelineReplicationNotSupported
}

func (w *wire) Close() error {
	w.once.Do(func() { close(w.closed) })
	return w.InmemTransport.Close()
}
