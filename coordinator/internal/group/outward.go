package group

import (
	"errors"
	"io"
	"time"

	"github.com/hashicorp/raft"
)

// What the library sends goes through the muzzle, too.

// holdFor bounds how long a request for a node that is away is kept.
const holdFor = 30 * time.Second

// AppendEntries implements raft.Transport. After each failure the library waits for longer before it sends entries again, up to
// ten seconds, and it goes on with that wait when the node is back. Its heartbeats come at least twice in a heartbeat timeout. So
// entries that could not be sent are kept here, and sent again as soon as the node answers a heartbeat: who was restarted has
// caught up, and may stand in for the next that fails, at once.
func (m *muzzle) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if err := m.silent(); err != nil {
		return err
	}
	err := m.Transport.AppendEntries(id, to, args, resp)
	if err != nil && !isHeartbeat(args) && m.answers(id) {
		*resp = raft.AppendEntriesResponse{}
		err = m.Transport.AppendEntries(id, to, args, resp)
	}
	if err == nil {
		m.contacts.met(id, resp.LastLog)
	}
	return err
}

// isHeartbeat tells heartbeats as the library's transport does.
func isHeartbeat(a *raft.AppendEntriesRequest) bool {
	return a.PrevLogEntry == 0 && a.PrevLogTerm == 0 && len(a.Entries) == 0 && a.LeaderCommitIndex == 0
}

// answers waits for the next answer of a node, and reports whether it came in time, and something may still be sent.
func (m *muzzle) answers(id raft.ServerID) bool {
	next := m.contacts.next(id)
	if m.silent() != nil {
		return false
	}
	timer := time.NewTimer(holdFor)
	defer timer.Stop()
	select {
	case <-next:
		return m.silent() == nil
	case <-timer.C:
	case <-m.done:
	}
	return false
}

// AppendEntriesPipeline implements raft.Transport.
func (m *muzzle) AppendEntriesPipeline(id raft.ServerID, to raft.ServerAddress) (raft.AppendPipeline, error) {
	if err := m.silent(); err != nil {
		return nil, err
	}
	inner, err := m.Transport.AppendEntriesPipeline(id, to)
	if err != nil {
		return nil, err
	}
	return muzzledPipeline{inner, m}, nil
}

type muzzledPipeline struct {
	raft.AppendPipeline
	muzzle *muzzle
}

// AppendEntries implements raft.AppendPipeline.
func (p muzzledPipeline) AppendEntries(args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) (raft.AppendFuture, error) {
	if err := p.muzzle.silent(); err != nil {
		return nil, err
	}
	return p.AppendPipeline.AppendEntries(args, resp)
}

// InstallSnapshot implements raft.Transport.
func (m *muzzle) InstallSnapshot(id raft.ServerID, to raft.ServerAddress, args *raft.InstallSnapshotRequest, resp *raft.InstallSnapshotResponse, data io.Reader) error {
	if err := m.silent(); err != nil {
		return err
	}
	return m.Transport.InstallSnapshot(id, to, args, resp, data)
}

// TimeoutNow implements raft.Transport.
func (m *muzzle) TimeoutNow(id raft.ServerID, to raft.ServerAddress, args *raft.TimeoutNowRequest, resp *raft.TimeoutNowResponse) error {
	if err := m.silent(); err != nil {
		return err
	}
	return m.Transport.TimeoutNow(id, to, args, resp)
}

// RequestVote implements raft.Transport.
func (m *muzzle) RequestVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestVoteRequest, resp *raft.RequestVoteResponse) error {
	if err := m.mayStand(); err != nil {
		return err
	}
	return m.Transport.RequestVote(id, to, args, resp)
}

// RequestPreVote implements raft.WithPreVote.
func (m *muzzle) RequestPreVote(id raft.ServerID, to raft.ServerAddress, args *raft.RequestPreVoteRequest, resp *raft.RequestPreVoteResponse) error {
	if err := m.mayStand(); err != nil {
		return err
	}
	inner, ok := m.Transport.(raft.WithPreVote)
	if !ok {
		return errors.New("the transport has no pre-vote")
	}
	return inner.RequestPreVote(id, to, args, resp)
}
