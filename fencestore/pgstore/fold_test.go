package pgstore_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/fencestore/pgstore"
	fencesql "github.com/lychgate/lychgate/sql"
	"github.com/lychgate/lychgate/sql/pgserver"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

func (d *database) records(t testing.TB) (n int) {
	t.Helper()
	if err := d.admin.QueryRow(t.Context(), "select count(*) from fence.floor").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func mustFold(t testing.TB, d *database, below fencestore.Token, want int) {
	t.Helper()
	folded, err := d.store(t, nil).Fold(t.Context(), cluster, below)
	if err != nil || folded != want {
		t.Fatalf("fold below %d: got %d, %v, want %d records", below, folded, err, want)
	}
}

func TestFoldedFloorRefusesTheDeadAndNobodyElse(t *testing.T) {
	d := newDatabase(t)
	store := d.store(t, nil)
	holder := d.client(t)
	for resource, token := range map[string]fencestore.Token{"old": 3, "older": 2, "live": 10, "newer": 12} {
		if _, err := store.Raise(t.Context(), claim(resource, token)); err != nil {
			t.Fatal(err)
		}
	}
	mustBind(t, store, "bound", 4, holder) // its lease has ended, its session has not
	mustFold(t, d, 10, 2)
	if got := d.records(t); got != 3 {
		t.Errorf("records: got %d, want live, newer and bound", got)
	}
	for _, resource := range []string{"old", "older", "bound", "never seen"} {
		_, err := store.Raise(t.Context(), claim(resource, 9))
		refused := wantReason(t, err, fencestore.StaleToken)
		if refused.Floor.Token != 10 {
			t.Errorf("%s: got floor %d, want the folded one", resource, refused.Floor.Token)
		}
		wantFloor(t, store, resource, 10)
	}
	_, err := store.Raise(t.Context(), claim("newer", 11))
	wantReason(t, err, fencestore.StaleToken)
	mustBind(t, store, "live", 10, d.client(t))
	mustBind(t, store, "old", 11, d.client(t))
	mustBind(t, store, "never seen", 10, d.client(t))
	if accepted := mustBind(t, store, "bound", 11, d.client(t)); accepted.Ended != 1 || d.alive(t, holder.session) {
		t.Errorf("takeover of the session that was bound under a folded token: got %+v", accepted)
	}
	mustFold(t, d, 9, 0) // an older answer of the coordinators
	wantFloor(t, store, "older", 10)
}

func TestFoldedFloorSurvivesACrash(t *testing.T) {
	s := pgtest.Start(t, pgserver.Config{})
	d := newDatabaseOn(t, s)
	store := d.store(t, nil)
	if _, err := store.Raise(t.Context(), claim("a", 3)); err != nil {
		t.Fatal(err)
	}
	mustFold(t, d, 10, 1)
	if err := s.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Both are gone, or neither is.
	await(t, func() bool { return store.Check(t.Context(), cluster) == nil })
	floor, err := store.Floor(t.Context(), cluster, "a")
	if err != nil || floor.Token != 3 && floor.Token != 10 {
		t.Errorf("floor after the crash: got %d, %v", floor.Token, err)
	}
}

// A claim that waits for a record while it is folded must neither fail nor come in below the folded floor.
func TestBindThatWaitsForARecordThatIsFolded(t *testing.T) {
	for name, c := range map[string]struct {
		token   fencestore.Token
		refused bool
	}{"live": {10, false}, "dead": {9, true}} {
		t.Run(name, func(t *testing.T) {
			d := newDatabase(t)
			store := d.store(t, nil)
			if _, err := store.Raise(t.Context(), claim("a", 3)); err != nil {
				t.Fatal(err)
			}
			folding := pgtest.Connect(t, d.dsn("postgres"))
			pgtest.Exec(t, folding, fmt.Sprintf("begin; select fence.fold('%s', 10, 100)", cluster))
			// Not by the store, which would ask again after a wrong answer.
			proxy := pgtest.Connect(t, d.dsn(fencesql.DefaultProxyRole)+"&application_name=binder")
			bound := make(chan error, 1)
			go func() {
				var takeover bool
				bound <- proxy.QueryRow(t.Context(), "select takeover from fence.bind($1, 'a', $2, 'hash', null, null, 5000, false)",
					cluster, int64(c.token)).Scan(&takeover)
			}()
			await(t, func() bool { return d.waiting(t, "binder", "Lock") })
			pgtest.Exec(t, folding, "commit")
			err := <-bound
			if c.refused {
				var stale *pgconn.PgError
				if !errors.As(err, &stale) || stale.Code != "LG001" {
					t.Errorf("got %v, want it stale", err)
				}
				wantFloor(t, store, "a", 10)
				return
			}
			if err != nil {
				t.Error(err)
			}
			wantFloor(t, store, "a", 10)
			if got := d.records(t); got != 1 {
				t.Errorf("records: got %d, want the claim's", got)
			}
		})
	}
}

// Two stores fold while others bind ever larger tokens: nobody under a live token is refused, no floor falls.
func TestFoldsAgainstBinds(t *testing.T) {
	d := newDatabase(t)
	folders := [2]*pgstore.Store{d.store(t, nil), d.store(t, nil)}
	binders := [2]fencestore.Store{d.store(t, nil), d.store(t, nil)}
	var all sync.WaitGroup
	done := make(chan struct{})
	var mu sync.Mutex
	live := [2]fencestore.Token{1, 2} // each binder's token; the next is larger than both
	smallest := func() fencestore.Token {
		mu.Lock()
		defer mu.Unlock()
		return min(live[0], live[1])
	}
	next := fencestore.Token(2)
	for i, store := range binders {
		all.Go(func() {
			for round := range 60 {
				mu.Lock()
				next++
				live[i] = next
				token := next
				mu.Unlock()
				resource := fmt.Sprintf("r%d-%d", i, round%3)
				for range 2 {
					if _, err := store.Raise(t.Context(), claim(resource, token)); err != nil {
						t.Errorf("live token %d: %v", token, err)
					}
				}
				if floor, err := store.Floor(t.Context(), cluster, resource); err != nil || floor.Token < token {
					t.Errorf("floor of %s: got %d, %v, want %d or more", resource, floor.Token, err, token)
				}
			}
		})
	}
	var folds sync.WaitGroup
	for _, folder := range folders {
		folds.Go(func() {
			pause := time.NewTicker(time.Millisecond)
			defer pause.Stop()
			for {
				select {
				case <-done:
					return
				case <-pause.C:
				}
				if _, err := folder.Fold(t.Context(), cluster, smallest()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	close(done)
	folds.Wait()
	mustFoldSome(t, d, next+1)
	if got := d.records(t); got != 0 {
		t.Errorf("records: got %d, want all folded", got)
	}
}

func mustFoldSome(t *testing.T, d *database, below fencestore.Token) {
	t.Helper()
	if _, err := d.store(t, nil).Fold(t.Context(), cluster, below); err != nil {
		t.Fatal(err)
	}
}
