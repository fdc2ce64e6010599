package group

import (
	"errors"
	"io"
	"sync"

	"github.com/hashicorp/raft"
)

// muzzle is the transport of a node that may not have its say. On, it lets nothing through. Loose, it lets the library be
// brought up to date by a leader of at least a given term, but neither vote nor stand for election. Off, it is not there.
type muzzle struct {
	raft.Transport
	out    chan raft.RPC
	done   chan struct{}
	close  sync.Once
	passer sync.WaitGroup

	mu   sync.Mutex
	off  bool
	term uint64 // loose from this term on; 0: on
}

var (
	errShut   = errors.New("this node has lost its memory, and takes no part before it has found the cluster")
	errNoVote = errors.New("this node has lost its memory, and does not stand for election before it has caught up")
)

// newMuzzle is on.
func newMuzzle(inner raft.Transport) *muzzle {
	m := &muzzle{Transport: inner, out: make(chan raft.RPC), done: make(chan struct{})}
	m.passer.Go(m.pass)
	return m
}

// admit loosens it, for leaders of term and later.
func (m *muzzle) admit(term uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.term = term
}

// takeOff lets everything through from now on.
func (m *muzzle) takeOff() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.off = true
}

func (m *muzzle) state() (off bool, term uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.off, m.term
}

// pass carries what comes in and is let through to the library.
func (m *muzzle) pass() {
	for {
		select {
		case rpc := <-m.Transport.Consumer():
			if m.refused(rpc) {
				continue
			}
			select {
			case m.out <- rpc:
			case <-m.done:
				rpc.Respond(nil, raft.ErrTransportShutdown)
				return
			}
		case <-m.done:
			return
		}
	}
}

// refused answers what may not come in.
func (m *muzzle) refused(rpc raft.RPC) bool {
	off, term := m.state()
	if off {
		return false
	}
	switch cmd := rpc.Command.(type) {
	case *raft.RequestVoteRequest:
		rpc.Respond(&raft.RequestVoteResponse{RPCHeader: m.header(), Term: cmd.Term}, nil)
		return true
	case *raft.RequestPreVoteRequest:
		rpc.Respond(&raft.RequestPreVoteResponse{RPCHeader: m.header(), Term: cmd.Term}, nil)
		return true
	case *raft.AppendEntriesRequest:
		if term == 0 || cmd.Term >= term {
			break
		}
		// A leader that was deposed while this node was away. The term tells it so.
		rpc.Respond(&raft.AppendEntriesResponse{RPCHeader: m.header(), Term: term}, nil)
		return true
	case *raft.InstallSnapshotRequest:
		if term != 0 && cmd.Term >= term {
			break
		}
		_, _ = io.Copy(io.Discard, rpc.Reader) // the connection is used again
		rpc.Respond(&raft.InstallSnapshotResponse{RPCHeader: m.header(), Term: max(term, cmd.Term)}, nil)
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

func (m *muzzle) header() raft.RPCHeader {
	return raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}
}

// Consumer implements raft.Transport.
func (m *muzzle) Consumer() <-chan raft.RPC { return m.out }

// SetHeartbeatHandler implements raft.Transport. Heartbeats may come past Consumer.
func (m *muzzle) SetHeartbeatHandler(handle func(raft.RPC)) {
	if handle == nil {
		m.Transport.SetHeartbeatHandler(nil)
		return
	}
	m.Transport.SetHeartbeatHandler(func(rpc raft.RPC) {
		if !m.refused(rpc) {
			handle(rpc)
		}
	})
}

// RequestVote implements raft.Transport.
func (m *muzzle) RequestVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if off, _ := m.state(); !off {
		return errNoVote
	}
	return m.Transport.RequestVote(id, to, args, resp)
}

// RequestPreVote implements raft.WithPreVote.
func (m *muzzle) RequestPreVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if off, _ := m.state(); !off {
		return errNoVote
	}
	inner, ok := m.Transport.(raft.WithPreVote)
	if !ok {
		return errors.New("the transport has no pre-vote")
	}
	return inner.RequestPreVote(id, to, args, resp)
}

// Close implements raft.WithClose.
func (m *muzzle) Close() error {
	m.close.Do(func() { close(m.done) })
	err := closeTransport(m.Transport) // first, because a snapshot may be on its way in
	m.passer.Wait()
	return err
}
