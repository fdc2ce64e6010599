package group

import (
	"bytes"
	"io"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// sealed is the log of a cluster's first entries: it is created, and a lease is granted at lease time now.
func sealed(t *testing.T, index, term, stampedIn uint64, now lock.LeaseTime, commands ...lock.Command) *raft.Log {
	t.Helper()
	log, err := seal(stampedIn, lock.Entry{Now: now, Commands: commands})
	if err != nil {
		t.Fatal(err)
	}
	log.Index, log.Term, log.Type = index, term, raft.LogCommand
	return &log
}

func newTestReplica() *replica {
	return newReplica(newWaits(10), func(Applied) {}, func(uint64) {}, 1<<20)
}

func initial() lock.Command {
	return lock.Init{Cluster: "test", Version: 1, Config: testLockConfig()}
}

// A leader that lost and won its leadership between the stamp and the log stamped on a clock that another
// leader has overtaken.
func TestAStampOfAnotherTermCarriesNoTime(t *testing.T) {
	r := newTestReplica()
	r.Apply(sealed(t, 1, 3, 3, at(time.Second), initial()))
	if got := r.leaseTime(); got != at(time.Second) {
		t.Fatalf("a stamp of its own term sets lease time to %d", got)
	}
	got := r.Apply(sealed(t, 2, 5, 3, at(time.Hour), testAcquire("a", "1", "x", 1))).(applied)
	if got.now != at(time.Second) {
		t.Errorf("a stamp of term 3 in term 5 sets lease time to %d", got.now)
	}
	if granted, ok := got.results[0].(lock.Granted); !ok || granted.Since != at(time.Second) {
		t.Errorf("its command gives %+v", got.results[0])
	}
	r.Apply(sealed(t, 3, 5, 5, at(2*time.Second), lock.Tick{}))
	if got := r.leaseTime(); got != at(2*time.Second) {
		t.Errorf("lease time does not go on: %d", got)
	}
}

func TestReplicaStopsAtWhatItCannotRead(t *testing.T) {
	good := sealed(t, 2, 1, 1, at(time.Second), initial())
	for name, spoil := range map[string]func(*raft.Log){
		"no envelope":         func(l *raft.Log) { l.Extensions = nil },
		"a newer envelope":    func(l *raft.Log) { l.Extensions = append([]byte{envelopeVersion + 1}, l.Extensions[1:]...) },
		"a cut envelope":      func(l *raft.Log) { l.Extensions = l.Extensions[:5] },
		"a flipped bit":       func(l *raft.Log) { l.Data = append([]byte{l.Data[0] ^ 0xff}, l.Data[1:]...) },
		"a cut entry":         func(l *raft.Log) { l.Data = l.Data[:len(l.Data)-1] },
		"no entry":            func(l *raft.Log) { l.Data = nil },
		"something after it":  func(l *raft.Log) { l.Data = append(bytes.Clone(l.Data), 0xff) },
		"an entry of garbage": func(l *raft.Log) { l.Data = []byte("garbage") },
	} {
		calls := 0
		r := newReplica(newWaits(10), func(Applied) { calls++ }, func(uint64) {}, 1<<20)
		bad := *good
		spoil(&bad)
		if got := r.Apply(&bad).(applied); got.err == nil {
			t.Errorf("%s: the replica applies it", name)
			continue
		}
		if r.healthy() {
			t.Errorf("%s: the replica does not report its failure", name)
		}
		if got := r.Apply(good).(applied); got.err == nil || calls != 0 {
			t.Errorf("%s: the replica goes on behind it", name)
		}
		if _, err := r.Snapshot(); err == nil {
			t.Errorf("%s: the replica takes a snapshot behind it", name)
		}
	}
}

func TestSnapshotAndRestore(t *testing.T) {
	r := newTestReplica()
	r.Apply(sealed(t, 1, 1, 1, at(time.Second), initial()))
	r.Apply(sealed(t, 2, 1, 1, at(2*time.Second), testAcquire("a", "1", "x", 1)))
	frozenAt, err := r.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	var before [32]byte
	r.view(func(m *lock.Machine) { before = m.Digest() })
	r.Apply(sealed(t, 3, 1, 1, at(3*time.Second), testAcquire("b", "1", "y", 2))) // while it is written

	store := &snapshots{}
	sink, err := store.Create(1, 2, 1, raft.Configuration{}, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := frozenAt.Persist(sink); err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	_, from, err := store.Open(sink.ID())
	if err != nil {
		t.Fatal(err)
	}
	restored := newTestReplica()
	if err := restored.Restore(from); err != nil {
		t.Fatal(err)
	}
	restored.view(func(m *lock.Machine) {
		if m.Digest() != before {
			t.Error("the restored state is not the one that was frozen")
		}
	})
	if got := restored.leaseTime(); got != at(2*time.Second) {
		t.Errorf("the restored lease time is %d", got)
	}
	if err := restored.Restore(io.NopCloser(bytes.NewReader([]byte("garbage")))); err == nil {
		t.Error("garbage is restored")
	}
	restored.view(func(m *lock.Machine) {
		if m.Digest() != before {
			t.Error("a failed restore changes the state")
		}
	})
}

// Tells its owner when the entries since the last snapshot weigh too much, and again only after the next.
func TestReplicaAsksForASnapshotByWeight(t *testing.T) {
	r := newReplica(newWaits(10), func(Applied) {}, func(uint64) {}, 1000)
	grown := func() bool {
		select {
		case <-r.grown:
			return true
		default:
			return false
		}
	}
	r.Apply(sealed(t, 1, 1, 1, at(time.Second), initial()))
	if grown() {
		t.Error("a snapshot is asked for after one entry")
	}
	for i := uint64(2); i < 40; i++ {
		r.Apply(sealed(t, i, 1, 1, at(time.Second), testAcquire("a", "1", "x", 1)))
	}
	if !grown() {
		t.Error("no snapshot is asked for")
	}
	if _, err := r.Snapshot(); err != nil {
		t.Fatal(err)
	}
	r.Apply(sealed(t, 40, 1, 1, at(time.Second), lock.Tick{}))
	if grown() {
		t.Error("another snapshot is asked for at once")
	}
}

// Freezing changes the machine, so it waits for those who look at it, and they for it.
func TestFreezeWaitsForReaders(t *testing.T) {
	r := newTestReplica()
	r.Apply(sealed(t, 1, 1, 1, at(time.Second), initial()))
	r.Apply(sealed(t, 2, 1, 1, at(2*time.Second), testAcquire("a", "1", "x", 1)))
	done := make(chan struct{})
	var want, got [32]byte
	r.view(func(m *lock.Machine) {
		go func() {
			defer close(done)
			frozen, info := r.freeze()
			if got = frozen.Digest(); info.Index != 2 {
				t.Errorf("the copy is of entry %d", info.Index)
			}
		}()
		for r.mu.TryRLock() { // until a writer stands in line
			r.mu.RUnlock()
			select {
			case <-done:
				t.Error("frozen while somebody looked at the state")
				return
			case <-time.After(time.Millisecond):
			}
		}
		want = m.Digest()
	})
	<-done
	if got != want {
		t.Error("the copy is not the state")
	}
}
