package group

import (
	"errors"
	"io"
	"sync"

	"github.com/hashicorp/raft"
)

// gate is the transport of a node without memory. Shut, it lets nothing through. Half open, it lets the library be
// brought up to date by a leader of at least a given term, but neither vote nor stand for election. Open, it is not there.
type gate struct {
	raft.Transport
	out    chan raft.RPC
	done   chan struct{}
	close  sync.Once
	passer sync.WaitGroup

	mu   sync.Mutex
	open bool
	term uint64 // half open from this term on; 0: shut
}

var (
	errShut   = errors.New("this node has lost its memory, and takes no part before it has found the cluster")
	errNoVote = errors.New("this node has lost its memory, and does not stand for election before it has caught up")
)

// newGate is shut.
func newGate(inner raft.Transport) *gate {
	g := &gate{Transport: inner, out: make(chan raft.RPC), done: make(chan struct{})}
	g.passer.Go(g.pass)
	return g
}

// admit opens the gate half, for leaders of term and later.
func (g *gate) admit(term uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.term = term
}

// openWide lets everything through from now on.
func (g *gate) openWide() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = true
}

func (g *gate) state() (open bool, term uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.open, g.term
}

// pass carries what comes in and is let through to the library.
func (g *gate) pass() {
	for {
		select {
		case rpc := <-g.Transport.Consumer():
			if g.refused(rpc) {
				continue
			}
			select {
			case g.out <- rpc:
			case <-g.done:
				rpc.Respond(nil, raft.ErrTransportShutdown)
				return
			}
		case <-g.done:
			return
		}
	}
}

// refused answers what may not come in.
func (g *gate) refused(rpc raft.RPC) bool {
	open, term := g.state()
	if open {
		return false
	}
	switch cmd := rpc.Command.(type) {
	case *raft.RequestVoteRequest:
		rpc.Respond(&raft.RequestVoteResponse{RPCHeader: g.header(), Term: cmd.Term}, nil)
		return true
	case *raft.RequestPreVoteRequest:
		rpc.Respond(&raft.RequestPreVoteResponse{RPCHeader: g.header(), Term: cmd.Term}, nil)
		return true
	case *raft.AppendEntriesRequest:
		if term == 0 || cmd.Term >= term {
			break
		}
		// A leader that was deposed while this node was away. The term tells it so.
		rpc.Respond(&raft.AppendEntriesResponse{RPCHeader: g.header(), Term: term}, nil)
		return true
	case *raft.InstallSnapshotRequest:
		if term != 0 && cmd.Term >= term {
			break
		}
		_, _ = io.Copy(io.Discard, rpc.Reader) // the connection is used again
		rpc.Respond(&raft.InstallSnapshotResponse{RPCHeader: g.header(), Term: max(term, cmd.Term)}, nil)
		return true
	default:
		rpc.Respond(nil, errNoVote) // TimeoutNow: an order to stand for election
		return true
	}
	if term == 0 {
		rpc.Respond(nil, errShut)
		return true
	}
	return false
}

func (g *gate) header() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}
}

// Consumer implements raft.Transport.
func (g *gate) Consumer() <-chan raft.RPC { return g.out }

// SetHeartbeatHandler implements raft.Transport. Heartbeats may come past Consumer.
func (g *gate) SetHeartbeatHandler(handle func(raft.RPC)) {
	if handle == nil {
		g.Transport.SetHeartbeatHandler(nil)
		return
	}
	g.Transport.SetHeartbeatHandler(func(rpc raft.RPC) {
		if !g.refused(rpc) {
			handle(rpc)
		}
	})
}

// RequestVote implements raft.Transport.
func (g *gate) RequestVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if open, _ := g.state(); !open {
		return errNoVote
	}
	return g.Transport.RequestVote(id, to, args, resp)
}

// RequestPreVote implements raft.WithPreVote.
func (g *gate) RequestPreVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if open, _ := g.state(); !open {
		return errNoVote
	}
	inner, ok := g.Transport.(raft.WithPreVote)
	if !ok {
		return errors.New("the transport has no pre-vote")
	}
	return inner.RequestPreVote(id, to, args, resp)
}

// Close implements raft.WithClose.
func (g *gate) Close() error {
	g.close.Do(func() { close(g.done) })
	err := closeTransport(g.Transport) // first, because a snapshot may be on its way in
	g.passer.Wait()
	return err
}
