package memstore_test

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"testing/synctest"

	"github.com/lychgate/lychgate/chaos/invariant"
	"github.com/lychgate/lychgate/chaos/model/fence"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/fencestore"
)

// sessionEnds ends a session, and the takeover that waited for nobody else.
func (b *bench) sessionEnds(i uint8) error {
	r := resourceOf(i)
	b.alive[i] = false
	b.model.End(i)
	b.settle(nil, i)
	if !b.model.Ready(r) {
		return nil
	}
	return b.answered(r, b.model.Finish(r, true))
}

// settle tells takeovers what has become of sessions.
func (b *bench) settle(err error, sessions ...uint8) {
	var waiting []chan error // told together: a takeover that ends lets the next one begin
	for _, i := range sessions {
		if c := b.ending[i]; c != nil {
			waiting = append(waiting, c)
			b.ending[i] = nil
		}
	}
	for _, c := range waiting {
		c <- err
	}
	synctest.Wait()
}

func (b *bench) claimOf(r uint8, token lease.Token) fencestore.Claim {
	return fencestore.Claim{Cluster: "c", Resource: benchResources[r], Token: fencestore.Token(token)}
}

// claim begins a call, and holds what it does at once against the model.
func (b *bench) claim(i, r uint8, token lease.Token) error {
	done := make(chan error, 1)
	if b.calls[r] != nil {
		b.meet(true, "waited for a takeover")
		b.waits[r] = call{session: i, token: token, done: done}
		if i != fence.Nobody {
			b.waits[r].started = b.started[i]
		}
	} else {
		b.calls[r] = done
	}
	ctx, claim := b.ctx, b.claimOf(r, token)
	go func() {
		var err error
		if i == fence.Nobody {
			_, err = b.store.Raise(ctx, claim)
		} else {
			_, err = b.store.Bind(ctx, claim, b.session(i))
		}
		done <- err
	}()
	synctest.Wait()
	if b.waits[r].done == done {
		return nil
	}
	return b.decided(i, r, token, false)
}

// decided holds the store's decision on a claim against the model's.
func (b *bench) decided(i, r uint8, token lease.Token, dead bool) error {
	if dead && token >= b.model.Floors[r] {
		b.meet(true, "left while it waited for a takeover")
		return b.refused(r, fencestore.NotAllowed)
	}
	switch b.model.Claim(i, r, token) {
	case fence.Stale:
		b.meet(true, "stale")
		return b.refused(r, fencestore.StaleToken)
	case fence.Joined:
		b.meet(true, "joined")
		return b.answered(r, token)
	case fence.Begun:
		if b.model.Ready(r) {
			b.model.Finish(r, true)
			return b.answered(r, token)
		}
	case fence.Blocked:
		panic("a step that was not offered")
	}
	return nil
}

// answered expects the call about a resource to have ended well under a token, or, with 0, in a takeover's timeout.
func (b *bench) answered(r uint8, token lease.Token) error {
	if token == 0 {
		b.meet(true, "timed out")
		return b.refused(r, fencestore.TakeoverTimeout)
	}
	b.meet(true, "raised")
	select {
	case err := <-b.calls[r]:
		if err != nil {
			return fmt.Errorf("refused: %w", err)
		}
		err = b.checker.Observe(invariant.FloorRaised{Resource: lease.Resource(benchResources[r]), Token: token})
		return errors.Join(err, b.next(r))
	default:
		return errors.New("the call goes on")
	}
}

func (b *bench) refused(r uint8, want fencestore.Reason) error {
	select {
	case err := <-b.calls[r]:
		var refusal *fencestore.Refusal
		if !errors.As(err, &refusal) || refusal.Reason != want {
			return errors.Join(fmt.Errorf("the answer is not: %v", want), err)
		}
		return b.next(r)
	default:
		return errors.New("the call goes on")
	}
}

// isDead reports whether the session of a call has ended since.
func (b *bench) isDead(c call) bool {
	return c.session != fence.Nobody && (!b.alive[c.session] || b.started[c.session] != c.started)
}

// next is the call that has waited for the resource's lock: it has decided by now.
func (b *bench) next(r uint8) error {
	w := b.waits[r]
	b.calls[r], b.waits[r] = w.done, call{}
	if w.done == nil {
		return nil
	}
	return b.decided(w.session, r, w.token, b.isDead(w))
}

// compare looks for a difference between the store and the model, and has every session that lives write.
func (b *bench) compare() error {
	for r, name := range benchResources {
		floor, err := b.store.Floor(b.ctx, "c", name)
		if err != nil {
			return err
		}
		if floor.Token != fencestore.Token(b.model.Floors[r]) {
			return fmt.Errorf("the floor of %s is %d, want %d", name, floor.Token, b.model.Floors[r])
		}
	}
	bound, err := b.store.Bindings(b.ctx, "c", 100)
	if err != nil {
		return err
	}
	slices.SortFunc(bound, func(x, y fencestore.Binding) int { return cmp.Compare(x.Session.PID, y.Session.PID) })
	var want []fence.Session
	for i, s := range b.model.Sessions {
		if s.Bound && b.alive[i] {
			want = append(want, s)
		}
	}
	if len(bound) != len(want) {
		return fmt.Errorf("%d sessions are bound, want %d: %+v", len(bound), len(want), bound)
	}
	for i, s := range bound {
		if s.Resource != benchResources[want[i].Resource] || s.Token != fencestore.Token(want[i].Token) {
			return fmt.Errorf("bound is %+v, want %+v", s, want[i])
		}
		if err := b.checker.Observe(invariant.WriteAccepted{Resource: lease.Resource(s.Resource), Token: lease.Token(s.Token)}); err != nil {
			return err
		}
	}
	return nil
}
