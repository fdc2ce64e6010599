package coordinator

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// watchOnce reads a watch until what it has told satisfies done.
func (r *running) watchOnce(i int, revision string, done func(told string, resyncs int) bool) (told string, resyncs int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	stream, err := r.locks(i).Watch(ctx, &lockpb.WatchRequest{Revision: revision})
	check(r.t, err)
	for !done(told, resyncs) {
		m, err := stream.Recv()
		if err != nil {
			r.t.Fatalf("told %q: %v", told, err)
		}
		for _, c := range m.GetChanges() {
			told += fmt.Sprintf("%s %s %d\n", c.GetKind(), c.GetResource(), c.GetFencingToken())
		}
		if m.GetResync() {
			resyncs++
		}
	}
	return told, resyncs
}

// A node that was restarted applies its log again. That is not news to a new watch, and to one that goes on from before
// it is what it has missed, no more and no less.
func TestWatchOfARestartedNode(t *testing.T) {
	for _, groups := range []int{1, 3} {
		t.Run(fmt.Sprint(groups, " groups"), func(t *testing.T) {
			r := newGrouped(t, 1, groups)
			r.startAll()
			r.acquire(0, "a", "A")
			list, err := r.locks(0).List(r.context(), &lockpb.ListRequest{})
			check(t, err)
			revision := list.GetRevision()
			second := r.acquire(0, "b", "A")
			third := r.acquire(0, "c", "A")
			r.stop(0)
			r.start(0)
			r.awaitReady(0)
			fourth := r.acquire(0, "d", "A")
			told, resyncs := r.watchOnce(0, revision, func(told string, _ int) bool { return strings.Contains(told, " d ") })
			for _, l := range []*lockpb.AcquireResponse{second, third, fourth} {
				if line := fmt.Sprintf("GRANTED %s %d\n", l.GetResource(), l.GetFencingToken()); strings.Count(told, line) != 1 {
					t.Errorf("told %q, want %q once", told, line)
				}
			}
			if strings.Contains(told, " a ") || resyncs != 0 {
				t.Errorf("told %q with %d resyncs", told, resyncs)
			}
		})
	}
}

// Nothing that happened before a watch began is told as new, not even right after a restart.
func TestWatchBeginsNow(t *testing.T) {
	r := newRunning(t, 1)
	r.startAll()
	for i := range 20 {
		r.acquire(0, fmt.Sprint("old/", i), "A")
	}
	r.stop(0)
	r.start(0)
	r.awaitReady(0)
	began := make(chan string, 1)
	go func() {
		told, _ := r.watchOnce(0, "", func(told string, _ int) bool { return strings.Contains(told, " new/") })
		began <- told
	}()
	for i := 0; ; i++ {
		r.acquire(0, fmt.Sprint("new/", i), "A")
		select {
		case told := <-began:
			if strings.Contains(told, "old/") {
				t.Errorf("told %q", told)
			}
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}
