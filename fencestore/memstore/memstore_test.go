package memstore_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/fencestore/fencestoretest"
	"github.com/lychgate/lychgate/fencestore/memstore"
)

// sessions are what a database would keep.
type sessions struct {
	mu    sync.Mutex
	last  int64
	alive map[fencestore.Session]bool
}

func (s *sessions) open(testing.TB) fencestore.Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last++
	session := fencestore.Session{PID: s.last, Started: s.last * 10}
	s.alive[session] = true
	return session
}

func (s *sessions) isAlive(session fencestore.Session) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.alive[session]
}

func (s *sessions) end(_ context.Context, session fencestore.Session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.alive, session)
	return nil
}

func TestConformance(t *testing.T) {
	fencestoretest.Run(t, func(t *testing.T) fencestoretest.Fixture {
		s := &sessions{alive: map[fencestore.Session]bool{}}
		store := memstore.New(memstore.Config{Alive: s.isAlive, End: s.end})
		return fencestoretest.Fixture{
			Stores: []fencestore.Store{store},
			Open:   s.open,
			End:    func(_ testing.TB, session fencestore.Session) { _ = s.end(t.Context(), session) },
			Alive:  func(_ testing.TB, session fencestore.Session) bool { return s.isAlive(session) },
		}
	})
}

func TestTakeoverThatTimesOutLeavesTheFloor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Config{
			Timeout: time.Second,
			End:     func(ctx context.Context, _ fencestore.Session) error { <-ctx.Done(); return ctx.Err() },
		})
		claim := fencestore.Claim{Cluster: "c", Resource: "a", Token: 41}
		if _, err := store.Bind(t.Context(), claim, fencestore.Session{PID: 1}); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		claim.Token = 42
		_, err := store.Raise(t.Context(), claim)
		var refusal *fencestore.Refusal
		if !errors.As(err, &refusal) || refusal.Reason != fencestore.TakeoverTimeout || time.Since(begun) != time.Second {
			t.Errorf("got %v after %v, want a takeover timeout after 1s", err, time.Since(begun))
		}
		if floor, err := store.Floor(t.Context(), "c", "a"); err != nil || floor.Token != 41 {
			t.Errorf("floor: got %+v, %v, want 41", floor, err)
		}
	})
}
