package group

import (
	"testing"

	"github.com/hashicorp/raft"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// What the state amounts to is told while an entry is being applied, and is that of the entry before.
func TestGlanceDoesNotWaitForAnEntry(t *testing.T) {
	r := newReplica(newWaits(1), func(Applied) {}, func(uint64) {}, 1<<20)
	g := &Group{replica: r}
	if got := g.Glance(); got.Initialised || got.Index != 0 {
		t.Errorf("before the first entry: %+v", got)
	}
	config := testLockConfig()
	log, err := seal(1, lock.Entry{Now: 7, Commands: []lock.Command{lock.Init{Cluster: "c", Version: 2, Config: config}}})
	if err != nil {
		t.Fatal(err)
	}
	log.Index, log.Term, log.Type = 3, 1, raft.LogCommand
	if got, ok := r.Apply(&log).(applied); !ok || got.err != nil {
		t.Fatalf("applied: %+v", got)
	}
	r.mu.Lock() // as while an entry is being applied
	got := g.Glance()
	r.mu.Unlock()
	var want lock.Info
	g.View(func(m *lock.Machine) { want = m.Info() })
	if got != want || got.Version != 2 || got.Index != 3 || got.Now != 7 {
		t.Errorf("got %+v, want %+v", got, want)
	}
	r.reset()
	if got := g.Glance(); got.Initialised {
		t.Errorf("after a new start: %+v", got)
	}
}
