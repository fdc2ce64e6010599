package fencestoretest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/lychgate/lychgate/fencestore"
)

const rounds = 10 // of each race; the order is the scheduler's

// outcome is what one racing caller saw.
type outcome struct {
	token   fencestore.Token
	session fencestore.Session
	err     error
}

// race starts all callers at once and waits for them.
func race(callers ...func()) {
	start := make(chan struct{})
	var all sync.WaitGroup
	for _, call := range callers {
		all.Go(func() { <-start; call() })
	}
	close(start)
	all.Wait()
}

// bothAtOnce: a holder of 42 and one of 43 arrive together, in either order, on a resource that was never
// seen and on one that was. 43 is let in; whoever of 42 was let in before is gone.
func bothAtOnce(t *testing.T, r *run) {
	for i := range rounds {
		resource := fmt.Sprintf("new/%d", i)
		if i%2 == 1 {
			r.mustBind(t, resource, 41, r.Open(t))
		}
		results := []*outcome{{token: 42, session: r.Open(t)}, {token: 43, session: r.Open(t)}}
		if i%4 >= 2 {
			results[0], results[1] = results[1], results[0]
		}
		calls := make([]func(), len(results))
		for j, o := range results {
			calls[j] = func() { _, o.err = r.at(i+j).Bind(r.ctx, claim(resource, o.token), o.session) }
		}
		race(calls...)
		for _, o := range results {
			switch {
			case o.token == 43 && o.err != nil:
				t.Errorf("43: got %v, want it let in", o.err)
			case o.token == 42 && o.err != nil:
				wantReason(t, o.err, fencestore.StaleToken)
			case o.token == 42:
				r.wantAlive(t, o.session, false)
			}
		}
		r.wantFloor(t, resource, 43)
	}
}

// joinersAgainstRaise: sixteen sessions join under the floor while one caller raises it. Once the raise has
// returned, no session that was let in under the lower token lives.
func joinersAgainstRaise(t *testing.T, r *run) {
	for i := range rounds {
		resource := fmt.Sprintf("contended/%d", i)
		r.mustBind(t, resource, 41, r.Open(t))
		joiners := make([]*outcome, 16)
		calls := make([]func(), 0, len(joiners)+1)
		for j := range joiners {
			o := &outcome{session: r.Open(t)}
			joiners[j] = o
			calls = append(calls, func() { _, o.err = r.at(j).Bind(r.ctx, claim(resource, 41), o.session) })
		}
		var raised error
		calls = append(calls, func() { _, raised = r.at(i).Raise(r.ctx, claim(resource, 42)) })
		race(calls...)
		if raised != nil {
			t.Fatalf("raise among joiners: %v", raised)
		}
		for _, o := range joiners {
			if o.err == nil {
				r.wantAlive(t, o.session, false)
				continue
			}
			wantReason(t, o.err, fencestore.StaleToken)
			r.End(t, o.session)
		}
		r.wantFloor(t, resource, 42)
		r.wantBound(t, nil)
	}
}

// monotone: while callers raise in any order, nobody sees the floor go down, and each accepted token is
// under the floor from then on.
func monotone(t *testing.T, r *run) {
	const top = 40
	ctx, done := context.WithCancel(r.ctx)
	watched := make(chan error, 1)
	go func() { watched <- watchFloor(ctx, r.at(1)) }()
	calls := make([]func(), 0, 4)
	for i := range 4 {
		calls = append(calls, func() {
			for n := range top {
				token := fencestore.Token((n*7+i*11)%top + 1)
				_, err := r.at(i).Raise(r.ctx, claim("a", token))
				var refusal *fencestore.Refusal
				if err != nil && !(errors.As(err, &refusal) && refusal.Reason == fencestore.StaleToken && refusal.Floor.Token > token) {
					t.Errorf("raise to %d: %v", token, err)
				}
			}
		})
	}
	race(calls...)
	done()
	if err := <-watched; err != nil {
		t.Error(err)
	}
	r.wantFloor(t, "a", top)
}

func watchFloor(ctx context.Context, store fencestore.Store) error {
	var last fencestore.Token
	for ctx.Err() == nil {
		floor, err := store.Floor(ctx, Cluster, "a")
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		case floor.Token < last:
			return fmt.Errorf("the floor fell from %d to %d", last, floor.Token)
		}
		last = floor.Token
	}
	return nil
}
