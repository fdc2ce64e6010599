package group

import (
	"io"

	"github.com/hashicorp/raft"
)

// fit makes a request of a leader fit what the library can answer. It reports whether it has answered it itself.
func (m *muzzle) fit(rpc *raft.RPC) (answered bool) {
	switch cmd := rpc.Command.(type) {
	case *raft.AppendEntriesRequest:
		if cmd.LeaderCommitIndex > m.heard.Load() { // only pass comes here
			m.heard.Store(cmd.LeaderCommitIndex)
		}
		rpc.Command = fitted(cmd, m.covered())
	case *raft.InstallSnapshotRequest:
		if covered := m.covered(); covered == 0 || cmd.LastLogIndex > covered {
			return false
		}
		// It is here already: the answer to the first one was lost. Restored again, an older one would take the state back.
		_, _ = io.Copy(io.Discard, rpc.Reader)
		rpc.Respond(&raft.InstallSnapshotResponse{RPCHeader: m.header(), Term: cmd.Term, Success: true}, nil)
		return true
	}
	return false
}

// fitted is a request whose beginning is in this node's newest snapshot without that beginning. What is in a snapshot was
// committed, so every leader of a term that is not over has it, and there is nothing to compare: the Raft paper, section 7. The library
// compares with its log, which has none of it, or what a deposed leader left there.
//
// The commit index is at most the end of the request, as in the paper, figure 2: the library takes the end of the
// log, behind which entries of a deposed leader may stand.
func fitted(cmd *raft.AppendEntriesRequest, covered uint64) *raft.AppendEntriesRequest {
	end := cmd.PrevLogEntry + uint64(len(cmd.Entries))
	before := cmd.PrevLogEntry > 0 && cmd.PrevLogEntry <= covered
	first := cmd.PrevLogEntry == 0 && len(cmd.Entries) > 0 && covered > 0
	if !before && !first && cmd.LeaderCommitIndex <= end {
		return cmd
	}
	c := *cmd // the sender's own, in memory
	c.LeaderCommitIndex = min(c.LeaderCommitIndex, end)
	if before || first {
		c.Entries = c.Entries[min(uint64(len(c.Entries)), covered-c.PrevLogEntry):]
		c.PrevLogEntry, c.PrevLogTerm = 0, 0
	}
	return &c
}
