package proxy

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lychgate/lychgate/fencestore"
)

// world is what keys and stores answer; the test changes it under the lock.
type world struct {
	mu        sync.Mutex
	keysErr   error
	version   uint64
	refreshes int
	storeErrs [2]error
	hangs     [2]bool
	clusters  []string // that the second store was asked for
	ready     [2]bool
}

func (w *world) do(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
}

func (w *world) Refresh(context.Context) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refreshes++
	if w.keysErr == nil {
		w.version = 1
	}
	return w.keysErr
}

func (w *world) Version() (v uint64) {
	w.do(func() { v = w.version })
	return v
}

func (w *world) Cluster() string {
	if w.Version() == 0 {
		return ""
	}
	return "c1"
}

func (w *world) store(i int) checked {
	return checked{
		field: fmt.Sprintf("postgres[%d]", i),
		set:   func(ready bool) { w.do(func() { w.ready[i] = ready }) },
		check: func(ctx context.Context, cluster string) error {
			w.mu.Lock()
			defer w.mu.Unlock()
			if i == 1 {
				w.clusters = append(w.clusters, cluster)
			}
			if w.hangs[i] {
				w.mu.Unlock()
				<-ctx.Done()
				w.mu.Lock()
				return ctx.Err()
			}
			return w.storeErrs[i]
		},
	}
}

func TestReadinessFollowsKeysAndStores(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		w := &world{keysErr: errors.New("refused"), storeErrs: [2]error{nil, errors.New("no schema")}}
		r := newReadiness(w, []checked{w.store(0), w.store(1)}, slog.New(slog.NewTextHandler(&log, nil)))
		wantProblems(t, r, "not asked yet", "postgres[0]: store not ready: not asked yet", "postgres[1]")
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); r.run(ctx) }()

		synctest.Wait()
		wantProblems(t, r, "no keys to verify tickets with: refused", "postgres[0]: store not ready: not asked while", "postgres[1]")
		w.do(func() { w.keysErr = nil })
		time.Sleep(2 * checkWhenIll)
		synctest.Wait()
		wantProblems(t, r, "postgres[1]: store not ready: no schema")
		w.do(func() {
			if w.ready != [2]bool{true, false} {
				t.Errorf("the metrics were told %v", w.ready)
			}
			w.storeErrs[1] = &fencestore.Refusal{Reason: fencestore.NotReady, Detail: "It is pinned.", Hint: "Adopt it."}
		})
		time.Sleep(checkWhenIll)
		synctest.Wait()
		wantProblems(t, r, "postgres[1]: store not ready: It is pinned. Adopt it.")
		w.do(func() { w.storeErrs[1] = nil })
		time.Sleep(checkWhenIll)
		synctest.Wait()
		wantProblems(t, r)

		w.do(func() { w.keysErr, w.hangs[0] = errors.New("coordinators down"), true })
		time.Sleep(checkWhenWell + checkTimeout)
		synctest.Wait()
		wantProblems(t, r, "postgres[0]: store not ready: context deadline exceeded")
		w.do(func() {
			if w.refreshes != 2 {
				t.Errorf("keys were fetched %d times: once they are there the remote verifier keeps them", w.refreshes)
			}
			if w.clusters[0] != "c1" {
				t.Errorf("the store was asked for clusters %q", w.clusters)
			}
			w.hangs[0] = false
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		wantProblems(t, r)
		r.drain()
		wantProblems(t, r, "draining")
		stop()
		<-done
		if got := strings.Count(log.String(), "store not ready"); got != 5 {
			t.Errorf("%d warnings, want one a change:\n%s", got, &log)
		}
	})
}

func wantProblems(t *testing.T, r *readiness, want ...string) {
	t.Helper()
	got := r.problems()
	if len(got) != len(want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	for i := range got {
		if !strings.Contains(got[i], want[i]) {
			t.Errorf("got %q, want %q in it", got[i], want[i])
		}
	}
}

func TestReadinessSaysWhatToDo(t *testing.T) {
	c := checked{field: "postgres[1]", role: "gatekeeper"}
	login := &fencestore.Refusal{
		Reason: fencestore.NotReady, Detail: "the database refuses", Hint: "see the DSN",
		Err: &pgconn.PgError{Code: "28P01", Message: `password authentication failed for user "gatekeeper"`},
	}
	for _, tt := range []struct {
		err  error
		want string
	}{
		{login, `the database refuses the log-in of role "gatekeeper": password authentication failed for user "gatekeeper"; ` +
			"give its password in LYCHGATE_POSTGRES__1__STORE or a password file, or let pg_hba.conf in"},
		{&fencestore.Refusal{Detail: "the database cannot be reached", Hint: "see that it runs"}, "the database cannot be reached; see that it runs"},
		{&fencestore.Refusal{Detail: "It is pinned."}, "It is pinned."},
		{&fencestore.Refusal{Hint: "install it"}, "install it"},
		{errors.New("other"), "other"},
	} {
		if got := c.plainly(tt.err).Error(); got != tt.want {
			t.Errorf("got  %q\nwant %q", got, tt.want)
		}
	}
}
