package group

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"pgregory.net/rapid"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// A leader is deposed with a tail of entries of its own, and the others commit so much meanwhile that it is sent a snapshot.
// Its tail ends before, at, or after the snapshot's last entry. Without the seam it restores the snapshot again and again
// where the tail reaches that far; with it, it is brought up to date by one.
func TestASnapshotOverAConflictingTail(t *testing.T) {
	for _, c := range []struct {
		name   string
		beyond int  // the tail's end, counted from the snapshot's last entry
		noSeam bool // the library's own way
		stuck  bool
	}{
		{"tail ends before", -3, false, false},
		{"tail ends there", 0, false, false},
		{"tail ends after", 40, false, false},
		{"tail ends before, without the seam", -3, true, false},
		{"tail ends there, without the seam", 0, true, true},
		{"tail ends after, without the seam", 40, true, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, time.Minute, func(t *testing.T) {
				restores := make(map[string]int)
				cl := newCluster(t, 3, func(config *Config) {
					config.Limits.SnapshotEvery, config.Limits.TrailingLogs = 1000, 1 // snapshots when the test asks
					config.noSeam = c.noSeam
					config.OnRestore = func(uint64) { restores[config.Node]++ }
				})
				cl.start()
				defer cl.stopAll()
				old := cl.leader()
				mustGrant(t, old.node(), testAcquire("a", "1", "x", 1))
				cl.crash(old)
				end, err := old.disk.LastIndex()
				if err != nil {
					t.Fatal(err)
				}

				next := cl.leader()
				for i := range byte(50) {
					mustGrant(t, next.node(), testAcquire("b", fmt.Sprint(i), fmt.Sprint(i), i+2))
				}
				if err := next.node().raft.Load().Snapshot().Error(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * holdFor) // no request from before the snapshot is kept for the old leader any more
				snapshot := next.snapshots.latest.meta.Index
				if first, err := next.disk.FirstIndex(); err != nil || first <= end+1 {
					t.Fatalf("the log of the new leader begins at %d, %v", first, err)
				}
				var last raft.Log
				if err := old.disk.GetLog(end, &last); err != nil {
					t.Fatal(err)
				}
				for i := end + 1; i <= snapshot+uint64(c.beyond); i++ { // what it logged in its own term, and nobody else
					if err := old.disk.StoreLog(&raft.Log{Index: i, Term: last.Term, Type: raft.LogNoop}); err != nil {
						t.Fatal(err)
					}
				}

				cl.startNode(old)
				for _, other := range cl.others(old) { // or it would be sent snapshots without any time going by
					cl.network.slow(other.address, old.address, 20*time.Millisecond)
				}
				for i := range byte(20) {
					mustGrant(t, cl.leader().node(), testAcquire("c", fmt.Sprint(i), "c"+fmt.Sprint(i), 100+i))
					time.Sleep(time.Second)
				}
				outcome := mustPropose(t, cl.leader().node(), lock.Tick{})
				time.Sleep(time.Second)
				index := old.node().appliedIndex()
				if stuck := index < outcome.Index; stuck != c.stuck {
					t.Errorf("the old leader has applied %d of %d", index, outcome.Index)
				}
				if s := old.node().Status(); (s.Pending != "") != c.stuck {
					t.Errorf("the old leader says %+v", s)
				}
				if c.noSeam {
					return
				}
				cl.network.heal()
				if n := len(restores); n != 1 || restores[old.id] != 1 {
					t.Errorf("restores: %v, want one of %s", restores, old.id)
				}
				old.wantLogOf(t, cl.leader())

				// It remembers the same after a restart, and may lead.
				cl.crash(old)
				cl.startNode(old)
				outcome = mustPropose(t, cl.leader().node(), lock.Tick{})
				if !polled(20*time.Second, func() bool { return old.node().appliedIndex() >= outcome.Index }) {
					t.Errorf("after a restart it has applied %d of %d", old.node().appliedIndex(), outcome.Index)
				}
				other := cl.others(old)[0]
				if other == cl.leader() {
					other = cl.others(old)[1]
				}
				cl.crash(other)
				if err := cl.leader().node().Transfer(context.Background(), ""); err != nil && cl.leader() != old {
					t.Errorf("it cannot lead: %v", err)
				}
				mustGrant(t, cl.leader().node(), testAcquire("d", "1", "d", 200))
				cl.startNode(other)
			})
		})
	}
}

// wantLogOf fails if the member's log has an entry of another term than the leader's.
func (m *member) wantLogOf(t *testing.T, leader *member) {
	t.Helper()
	first, err := m.disk.FirstIndex()
	if err != nil {
		t.Fatal(err)
	}
	last, err := m.disk.LastIndex()
	if err != nil {
		t.Fatal(err)
	}
	for i := first; i <= last && first > 0; i++ {
		var own, theirs raft.Log
		if err := m.disk.GetLog(i, &own); err != nil {
			t.Errorf("the log of %s from %d to %d has no entry %d: %v", m.id, first, last, i, err)
			continue
		}
		err := leader.disk.GetLog(i, &theirs)
		if err == nil && own.Term != theirs.Term {
			t.Errorf("entry %d of %s is of term %d, that of %s of term %d", i, m.id, own.Term, leader.id, theirs.Term)
		}
	}
}

// Whatever log a snapshot meets, afterwards nothing is left of another history, no entry is missing before one that is
// there, and what came after the snapshot in its own history is kept.
func TestSeamAdopts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		logs := raft.NewInmemStore()
		first := rapid.Uint64Range(1, 10).Draw(t, "first")
		last := rapid.Uint64Range(first-1, 30).Draw(t, "last")
		turn := rapid.Uint64Range(first, 31).Draw(t, "from here on another history")
		for i := first; i <= last; i++ {
			term := uint64(5)
			if i >= turn {
				term = 3
			}
			if err := logs.StoreLog(&raft.Log{Index: i, Term: term}); err != nil {
				t.Fatal(err)
			}
		}
		index := rapid.Uint64Range(max(first-1, 1), 35).Draw(t, "snapshot")
		s := &seam{LogStore: logs, SnapshotStore: raft.NewDiscardSnapshotStore()}
		if err := s.adopt(index, 5); err != nil {
			t.Fatal(err)
		}
		if s.covered.Load() != index {
			t.Errorf("covered is %d", s.covered.Load())
		}
		var entry raft.Log
		for i := uint64(1); i <= 40; i++ {
			err := logs.GetLog(i, &entry)
			had := first <= i && i <= last
			fits := index <= last && index < turn && index >= first // the log has the snapshot's last entry
			want := had && (i > index || fits)
			if got := err == nil; got != want {
				t.Errorf("entry %d is there: %v, want %v (%v)", i, got, want, err)
			}
		}
	})
}

// Requests that begin within the newest snapshot are cut to what is behind it, and none commits beyond its own end.
func TestRequestsAreFitted(t *testing.T) {
	entries := func(from, to uint64) (all []*raft.Log) {
		for i := from; i <= to; i++ {
			all = append(all, &raft.Log{Index: i})
		}
		return all
	}
	for _, c := range []struct {
		name                string
		prev, commit        uint64
		entries             []*raft.Log
		covered             uint64
		wantPrev, wantFirst uint64 // wantFirst 0: no entries
		wantCommit          uint64
	}{
		{"a heartbeat", 0, 0, nil, 70, 0, 0, 0},
		{"behind the snapshot", 80, 75, entries(81, 85), 70, 80, 81, 75},
		{"right behind the snapshot", 70, 70, entries(71, 75), 70, 0, 71, 70},
		{"across the snapshot's end", 65, 71, entries(66, 75), 70, 0, 71, 71},
		{"within the snapshot", 40, 95, entries(41, 60), 70, 0, 0, 60},
		{"from the beginning", 0, 95, entries(1, 75), 70, 0, 71, 75},
		{"from the beginning, without a snapshot", 0, 3, entries(1, 5), 0, 0, 1, 3},
		{"a commit index further than the request", 80, 95, entries(81, 85), 0, 80, 81, 85},
		{"a commit index alone", 80, 95, nil, 70, 80, 0, 80},
	} {
		t.Run(c.name, func(t *testing.T) {
			request := &raft.AppendEntriesRequest{PrevLogEntry: c.prev, PrevLogTerm: 7, Entries: c.entries, LeaderCommitIndex: c.commit}
			got := fitted(request, c.covered)
			first := uint64(0)
			if len(got.Entries) > 0 {
				first = got.Entries[0].Index
			}
			if got.PrevLogEntry != c.wantPrev || first != c.wantFirst || got.LeaderCommitIndex != c.wantCommit || (got.PrevLogEntry > 0) != (got.PrevLogTerm > 0) && c.prev > 0 {
				t.Errorf("got %+v, first entry %d", got, first)
			}
			if request.PrevLogEntry != c.prev || len(request.Entries) != len(c.entries) || request.LeaderCommitIndex != c.commit {
				t.Error("the sender's request was changed")
			}
		})
	}
}

// A snapshot that this node has already is not restored again, whoever sends it: its state would go back.
func TestAnOldSnapshotIsNotRestored(t *testing.T) {
	outerAddr, outer := raft.NewInmemTransport("outer")
	innerAddr, inner := raft.NewInmemTransport("inner")
	outer.Connect(innerAddr, inner)
	inner.Connect(outerAddr, outer)
	m := newMuzzle(inner, func() uint64 { return 70 })
	m.takeOff()
	defer func() {
		if err := m.closeAll(); err != nil && !errors.Is(err, raft.ErrTransportShutdown) {
			t.Error(err)
		}
	}()
	var answer raft.InstallSnapshotResponse
	request := &raft.InstallSnapshotRequest{Term: 5, LastLogIndex: 60, LastLogTerm: 4, Size: 1 << 20}
	if err := outer.InstallSnapshot("inner", innerAddr, request, &answer, endless{}); err != nil || !answer.Success {
		t.Errorf("got %+v, %v", answer, err)
	}
}

// endless is a megabyte of zeros.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), errors.New("enough") }
