package group

import (
	"errors"
	"io"

	"github.com/hashicorp/raft"
)

// What the library sends goes through the muzzle, too.

// AppendEntries implements raft.Transport.
func (m *muzzle) AppendEntries(id raft.ServerID, to raft.ServerAddress, args *raft.AppendEntriesRequest, resp *raft.AppendEntriesResponse) error {
	if err := m.silent(); err != nil {
		return err
	}
	err := m.Transport.AppendEntries(id, to, args, resp)
	if err == nil {
		m.contacts.met(id, resp.LastLog)
	}
	return err
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
