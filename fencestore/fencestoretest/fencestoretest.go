// Package fencestoretest is the conformance suite of fencestore.Store: what every implementation promises,
// as tests that an implementation runs on itself.
package fencestoretest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/lychgate/lychgate/fencestore"
)

// Cluster is the cluster that the suite's claims are of.
const Cluster = "test"

const bound = 30 * time.Second // of one test; nothing here waits on purpose

// Fixture is one empty record of floors and what stands around it.
type Fixture struct {
	// Stores decide on the same record, as the stores of several proxies do. At least one.
	Stores []fencestore.Store
	// Open makes a live session that ends by itself at the latest when the test does.
	Open func(testing.TB) fencestore.Session
	// End ends a session as its client would, and returns when it is gone.
	End func(testing.TB, fencestore.Session)
	// Alive reports whether the session can still write.
	Alive func(testing.TB, fencestore.Session) bool
}

// Run holds the stores that open makes, one fixture a subtest, to the contract. What the callers of each subtest were
// told is judged by package invariant besides.
func Run(t *testing.T, open func(*testing.T) Fixture) {
	for _, c := range []struct {
		name string
		test func(*testing.T, *run)
	}{
		{"first contact sets the floor", firstContact},
		{"stale token is refused with the floor", staleToken},
		{"equal token joins", equalToken},
		{"takeover ends every lower session", takeover},
		{"raise needs no session", raiseAlone},
		{"raise under an accepted token changes nothing", raiseAgain},
		{"session raises itself", selfRaise},
		{"session under two resources", twoResources},
		{"modes", modes},
		{"resources do not touch each other", apart},
		{"unbind", unbind},
		{"unbind while the session lives", unbindBusy},
		{"token out of range", badToken},
		{"unknown session", unknownSession},
		{"session that has ended", endedSession},
		{"another cluster", otherCluster},
		{"list is bounded", listBounded},
		{"caller that has gone", cancelled},
		{"closed", closed},
		{"42 and 43 at once", bothAtOnce},
		{"sixteen joiners against one raise", joinersAgainstRaise},
		{"floor never goes down", monotone},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), bound)
			defer cancel()
			judged(ctx, t, open(t), c.test)
		})
	}
}

// judged runs one test and has what it was told judged.
func judged(ctx context.Context, t *testing.T, f Fixture, test func(*testing.T, *run)) {
	h := newHistory()
	plain := f.Stores
	f.Stores = make([]fencestore.Store, len(plain))
	for i, store := range plain {
		f.Stores[i] = watched{store, h}
	}
	test(t, &run{Fixture: f, ctx: ctx})
	h.probe(ctx, watched{plain[0], h}, func(s fencestore.Session) bool { return f.Alive(t, s) })
	if err := h.judge(); err != nil {
		t.Error(err)
	}
}

// run is one test's fixture with short words for it.
type run struct {
	Fixture
	ctx context.Context
}

func (r *run) store() fencestore.Store { return r.Stores[0] }

// at is the store of the i-th caller: callers are spread over the stores.
func (r *run) at(i int) fencestore.Store { return r.Stores[i%len(r.Stores)] }

func claim(resource string, token fencestore.Token) fencestore.Claim {
	return fencestore.Claim{Cluster: Cluster, Resource: resource, Token: token, LeaseHash: "hash"}
}

func (r *run) mustBind(t *testing.T, resource string, token fencestore.Token, s fencestore.Session) fencestore.Accepted {
	t.Helper()
	accepted, err := r.store().Bind(r.ctx, claim(resource, token), s)
	if err != nil {
		t.Fatalf("bind %s under %d: %v", resource, token, err)
	}
	return accepted
}

func wantReason(t *testing.T, err error, want fencestore.Reason) *fencestore.Refusal {
	t.Helper()
	var refusal *fencestore.Refusal
	if !errors.As(err, &refusal) {
		t.Fatalf("got %v, want a refusal: %v", err, want)
	}
	if refusal.Reason != want {
		t.Fatalf("got %v, want %v", err, want)
	}
	return refusal
}

func (r *run) wantFloor(t *testing.T, resource string, want fencestore.Token) fencestore.Floor {
	t.Helper()
	floor, err := r.store().Floor(r.ctx, Cluster, resource)
	if err != nil {
		t.Fatalf("floor of %s: %v", resource, err)
	}
	if floor.Token != want || floor.Resource != resource {
		t.Errorf("floor of %s: got %+v, want token %d", resource, floor, want)
	}
	return floor
}

func (r *run) wantAlive(t *testing.T, s fencestore.Session, want bool) {
	t.Helper()
	if got := r.Alive(t, s); got != want {
		t.Errorf("session %+v alive: got %v, want %v", s, got, want)
	}
}

// wantBound compares the live bindings, as token by resource and session.
func (r *run) wantBound(t *testing.T, want map[Bound]fencestore.Token) {
	t.Helper()
	list, err := r.store().Bindings(r.ctx, Cluster, 1000)
	if err != nil {
		t.Fatalf("bindings: %v", err)
	}
	if len(list) != len(want) {
		t.Errorf("bindings: got %+v, want %+v", list, want)
	}
	for _, b := range list {
		if want[Bound{b.Resource, b.Session}] != b.Token || b.Cluster != Cluster || b.LeaseHash != "hash" || b.Since.IsZero() {
			t.Errorf("binding %+v: want one of %+v", b, want)
		}
	}
}

// Bound names a binding.
type Bound struct {
	Resource string
	Session  fencestore.Session
}
