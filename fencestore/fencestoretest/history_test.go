package fencestoretest

import (
	"context"
	"errors"
	"testing"

	"github.com/lychgate/lychgate/chaos/invariant"
	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/fencestore/memstore"
)

// liar accepts what it likes and ends nobody.
type liar struct {
	fencestore.Store
	floor fencestore.Token // what it says of every floor
}

func (liar) Raise(context.Context, fencestore.Claim) (fencestore.Accepted, error) {
	return fencestore.Accepted{}, nil
}

func (liar) Bind(context.Context, fencestore.Claim, fencestore.Session) (fencestore.Accepted, error) {
	return fencestore.Accepted{}, nil
}

func (liar) Unbind(context.Context, fencestore.Claim, fencestore.Session, bool) (bool, error) {
	return true, nil
}

func (l liar) Floor(_ context.Context, _, resource string) (fencestore.Floor, error) {
	return fencestore.Floor{Resource: resource, Token: l.floor}, nil
}

// A store that breaks an invariant is found by what its callers were told, whatever the test itself looks at.
func TestHistoryIsJudged(t *testing.T) {
	one, two := fencestore.Session{PID: 1}, fencestore.Session{PID: 2}
	foreign := claim("a", 43)
	foreign.Cluster = "other"
	for _, c := range []struct {
		name      string
		invariant int // 0: none
		store     fencestore.Store
		calls     func(context.Context, fencestore.Store)
	}{
		{"true store", 0, memstore.New(memstore.Config{}), func(ctx context.Context, s fencestore.Store) {
			_, _ = s.Bind(ctx, claim("a", 41), one)
			_, _ = s.Raise(ctx, claim("a", 41))
			_, _ = s.Unbind(ctx, claim("a", 41), one, true)
			_, _ = s.Bind(ctx, claim("a", 42), two)
			_, _ = s.Bind(ctx, claim("a", 41), one) // stale: refused
			_, _ = s.Raise(ctx, foreign)            // refused
			_, _ = s.Raise(ctx, claim("a", 0))      // refused
		}},
		{"floor goes down", 3, liar{floor: 41}, func(ctx context.Context, s fencestore.Store) {
			_, _ = s.Raise(ctx, claim("a", 42))
			_, _ = s.Raise(ctx, claim("a", 41))
		}},
		{"floor is forgotten", 3, liar{floor: 0}, func(ctx context.Context, s fencestore.Store) {
			_, _ = s.Raise(ctx, claim("a", 42))
		}},
		{"old holder lives", 4, liar{floor: 42}, func(ctx context.Context, s fencestore.Store) {
			_, _ = s.Bind(ctx, claim("a", 41), one)
			_, _ = s.Bind(ctx, claim("a", 42), two)
		}},
		{"old holder was unbound", 0, liar{floor: 42}, func(ctx context.Context, s fencestore.Store) {
			_, _ = s.Bind(ctx, claim("a", 41), one)
			_, _ = s.Unbind(ctx, claim("a", 41), one, true)
			_, _ = s.Bind(ctx, claim("a", 42), two)
		}},
		{"another cluster's token", 12, liar{floor: 43}, func(ctx context.Context, s fencestore.Store) {
			_, _ = s.Raise(ctx, foreign)
		}},
		{"token out of range", 12, liar{floor: 1 << 53}, func(ctx context.Context, s fencestore.Store) {
			_, _ = s.Raise(ctx, claim("a", 1<<53))
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHistory()
			store := watched{c.store, h}
			c.calls(t.Context(), store)
			h.probe(t.Context(), store, func(fencestore.Session) bool { return true })
			err := h.judge()
			var violation *invariant.Violation
			switch {
			case c.invariant == 0 && err != nil:
				t.Errorf("got %v, want no violation", err)
			case c.invariant != 0 && (!errors.As(err, &violation) || violation.Invariant != c.invariant):
				t.Errorf("got %v, want a violation of invariant %d", err, c.invariant)
			}
		})
	}
}

// Calls that overlap may have been decided in either order; those that do not, in one only.
func TestOverlappingCallsAreJudgedFairly(t *testing.T) {
	h := newHistory()
	high, low, read := h.claims(claim("a", 42)), h.claims(claim("a", 41)), h.begin("a")
	write := h.begin("a")
	high.decided(42, nil)
	low.decided(41, nil)
	read.read(41)
	write.wrote(41)
	if err := h.judge(); err != nil {
		t.Errorf("overlapping: got %v, want no violation", err)
	}
	h.begin("a").wrote(41)
	var violation *invariant.Violation
	if err := h.judge(); !errors.As(err, &violation) || violation.Invariant != 4 {
		t.Errorf("a write after the raise: got %v, want a violation of invariant 4", err)
	}
}
