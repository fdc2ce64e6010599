package group

import (
	"cmp"
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// muzzle is the transport of a node that may not have its say. On, it lets nothing through. Loose, it lets the library be
// brought up to date by a leader of at least a given term, but neither vote nor stand for election. Off, it is not there,
// but for what fit does. Muted, it lets nothing through whatever it was before, until it is unmuted. Ended is muted for good.
type muzzle struct {
	raft.Transport
	covered  func() uint64 // the last entry that this node has in a snapshot
	contacts *contacts
	heard    atomic.Uint64 // the highest commit index that a leader has told
	out      chan raft.RPC
	done     chan struct{}
	close    sync.Once
	passer   sync.WaitGroup

	mu    sync.Mutex
	off   bool
	term  uint64 // loose from this term on; 0: on
	muted error  // why; nil: it is not
	ended error  // the same, and for good
}

var (
	errShut   = errors.New("this node has lost its memory, and takes no part before it has found the cluster")
	errNoVote = errors.New("this node has lost its memory, and does not stand for election before it has caught up")
)

// newMuzzle is on. covered is the last entry in this node's newest snapshot.
func newMuzzle(inner raft.Transport, covered func() uint64) *muzzle {
	m := &muzzle{
		Transport: inner, covered: covered, contacts: newContacts(),
		out: make(chan raft.RPC), done: make(chan struct{}),
	}
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

// mute lets nothing through, for a reason.
func (m *muzzle) mute(why error) {
	m.mu.Lock()
	m.muted = why
	m.mu.Unlock()
	m.contacts.release()
}

// end lets nothing through any more, for a reason.
func (m *muzzle) end(why error) {
	m.mu.Lock()
	m.ended = why
	m.mu.Unlock()
	m.contacts.release()
}

// unmute takes back what mute did.
func (m *muzzle) unmute() { m.mute(nil) }

func (m *muzzle) state() (off bool, term uint64, muted error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.off, m.term, cmp.Or(m.ended, m.muted)
}

// silent is why nothing goes through; nil: something does.
func (m *muzzle) silent() error {
	_, _, muted := m.state()
	return muted
}

// mayStand is why the node may not stand for election; nil: it may.
func (m *muzzle) mayStand() error {
	off, _, muted := m.state()
	switch {
	case muted != nil:
		return muted
	case !off:
		return errNoVote
	}
	return nil
}

// pass carries what comes in and is let through to the library.
func (m *muzzle) pass() {
	for {
		select {
		case rpc := <-m.Transport.Consumer():
			if m.refused(rpc) || m.fit(&rpc) {
				continue
			}
			select {
			case m.out <- rpc:
			case <-m.done:
				rpc.Respond(noAnswer(rpc.Command), raft.ErrTransportShutdown)
				return
			}
		case <-m.done:
			return
		}
	}
}

// stand has the library stand for election without a pre-vote, as an order of a leader would. It blocks until the library
// takes it.
func (m *muzzle) stand(ctx context.Context) error {
	if err := m.mayStand(); err != nil {
		return err
	}
	answer := make(chan raft.RPCResponse, 1)
	select {
	case m.out <- raft.RPC{Command: &raft.TimeoutNowRequest{RPCHeader: m.header()}, RespChan: answer}:
		return nil
	case <-m.done:
		return raft.ErrTransportShutdown
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// refused answers what may not come in.
func (m *muzzle) refused(rpc raft.RPC) bool {
	off, term, muted := m.state()
	if muted != nil {
		return m.refuse(rpc, muted)
	}
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
		return m.refuse(rpc, errNoVote) // TimeoutNow: an order to stand for election
	}
	return term == 0 && m.refuse(rpc, errShut)
}

// refuse answers with an error, and is true.
func (m *muzzle) refuse(rpc raft.RPC, why error) bool {
	if rpc.Reader != nil {
		_, _ = io.Copy(io.Discard, rpc.Reader) // the connection is used again
	}
	rpc.Respond(noAnswer(rpc.Command), why)
	return true
}

// noAnswer goes with an error. The library's transports look at it all the same: the one in memory copies it out.
func noAnswer(command any) any {
	switch command.(type) {
	case *raft.AppendEntriesRequest:
		return &raft.AppendEntriesResponse{}
	case *raft.RequestVoteRequest:
		return &raft.RequestVoteResponse{}
	case *raft.RequestPreVoteRequest:
		return &raft.RequestPreVoteResponse{}
	case *raft.InstallSnapshotRequest:
		return &raft.InstallSnapshotResponse{}
	case *raft.TimeoutNowRequest:
		return &raft.TimeoutNowResponse{}
	default:
		return nil
	}
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

// Close implements raft.WithClose: the library closes its transport when it ends. It leaves the transport behind the muzzle
// open, for the next start of the library.
func (m *muzzle) Close() error {
	m.close.Do(func() { close(m.done) })
	m.passer.Wait()
	return nil
}

// closeAll closes the transport behind the muzzle, too.
func (m *muzzle) closeAll() error {
	m.close.Do(func() { close(m.done) })
	err := closeTransport(m.Transport) // first, because a snapshot may be on its way in
	m.passer.Wait()
	return err
}
