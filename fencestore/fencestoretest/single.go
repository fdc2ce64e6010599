package fencestoretest

import (
	"context"
	"errors"
	"math"
	"testing"

	"github.com/lychgate/lychgate/fencestore"
)

func firstContact(t *testing.T, r *run) {
	if err := r.store().Check(r.ctx, Cluster); err != nil {
		t.Fatalf("check of an empty store: %v", err)
	}
	r.wantFloor(t, "a", 0)
	s := r.Open(t)
	if got := r.mustBind(t, "a", 41, s); !got.Takeover || got.Ended != 0 {
		t.Errorf("first bind: got %+v, want a takeover from nobody", got)
	}
	if floor := r.wantFloor(t, "a", 41); floor.Since.IsZero() {
		t.Error("floor without a time")
	}
	r.wantBound(t, map[Bound]fencestore.Token{{"a", s}: 41})
	r.wantAlive(t, s, true)
}

func staleToken(t *testing.T, r *run) {
	r.mustBind(t, "a", 42, r.Open(t))
	stale := r.Open(t)
	for _, token := range []fencestore.Token{41, 1} {
		_, err := r.store().Bind(r.ctx, claim("a", token), stale)
		if floor := wantReason(t, err, fencestore.StaleToken).Floor; floor.Token != 42 || floor.Resource != "a" || floor.Since.IsZero() {
			t.Errorf("floor in the refusal: got %+v, want token 42", floor)
		}
		_, err = r.store().Raise(r.ctx, claim("a", token))
		wantReason(t, err, fencestore.StaleToken)
	}
	r.wantFloor(t, "a", 42)
	r.wantAlive(t, stale, true)
}

func equalToken(t *testing.T, r *run) {
	first, second := r.Open(t), r.Open(t)
	r.mustBind(t, "a", 42, first)
	for range 2 {
		if got := r.mustBind(t, "a", 42, second); got.Takeover || got.Ended != 0 {
			t.Errorf("join: got %+v, want no takeover", got)
		}
	}
	r.wantBound(t, map[Bound]fencestore.Token{{"a", first}: 42, {"a", second}: 42})
	r.wantAlive(t, first, true)
}

func takeover(t *testing.T, r *run) {
	old := []fencestore.Session{r.Open(t), r.Open(t), r.Open(t)}
	for _, s := range old {
		r.mustBind(t, "a", 41, s)
	}
	s := r.Open(t)
	if got := r.mustBind(t, "a", 42, s); !got.Takeover || got.Ended != len(old) {
		t.Errorf("got %+v, want a takeover that ended %d", got, len(old))
	}
	for _, s := range old {
		r.wantAlive(t, s, false)
	}
	r.wantBound(t, map[Bound]fencestore.Token{{"a", s}: 42})
}

func raiseAlone(t *testing.T, r *run) {
	old := r.Open(t)
	r.mustBind(t, "a", 41, old)
	got, err := r.store().Raise(r.ctx, claim("a", 42))
	if err != nil || !got.Takeover || got.Ended != 1 {
		t.Errorf("got %+v, %v, want a takeover that ended 1", got, err)
	}
	r.wantAlive(t, old, false)
	r.wantFloor(t, "a", 42)
	r.wantBound(t, nil)
	if got := r.mustBind(t, "a", 42, r.Open(t)); got.Takeover {
		t.Errorf("join after the raise: got %+v, want no takeover", got)
	}
}

func raiseAgain(t *testing.T, r *run) {
	s := r.Open(t)
	r.mustBind(t, "a", 42, s)
	got, err := r.store().Raise(r.ctx, claim("a", 42))
	if err != nil || got.Takeover || got.Ended != 0 {
		t.Errorf("got %+v, %v, want nothing done", got, err)
	}
	r.wantAlive(t, s, true)
}

func selfRaise(t *testing.T, r *run) {
	own, other := r.Open(t), r.Open(t)
	r.mustBind(t, "a", 41, own)
	r.mustBind(t, "a", 41, other)
	if got := r.mustBind(t, "a", 42, own); !got.Takeover || got.Ended != 1 {
		t.Errorf("got %+v, want a takeover that ended the other one", got)
	}
	r.wantAlive(t, own, true)
	r.wantAlive(t, other, false)
	r.wantBound(t, map[Bound]fencestore.Token{{"a", own}: 42})
}

func twoResources(t *testing.T, r *run) {
	s := r.Open(t)
	r.mustBind(t, "a", 41, s)
	r.mustBind(t, "b", 7, s)
	r.wantBound(t, map[Bound]fencestore.Token{{"a", s}: 41, {"b", s}: 7})
	next := r.Open(t)
	r.mustBind(t, "b", 8, next)
	r.wantAlive(t, s, false)
	r.wantBound(t, map[Bound]fencestore.Token{{"b", next}: 8})
	r.wantFloor(t, "a", 41)
}

func apart(t *testing.T, r *run) {
	s := r.Open(t)
	r.mustBind(t, "a", 41, s)
	r.mustBind(t, "b", 99, r.Open(t))
	r.wantAlive(t, s, true)
	r.wantFloor(t, "a", 41)
}

func unbind(t *testing.T, r *run) {
	s := r.Open(t)
	r.mustBind(t, "a", 41, s)
	r.mustBind(t, "b", 41, s)
	for range 2 { // the second finds nothing, which is what it asked for
		if gone, err := r.store().Unbind(r.ctx, claim("a", 41), s, true); err != nil || !gone {
			t.Fatalf("unbind of an idle session: got %v, %v", gone, err)
		}
	}
	r.wantBound(t, map[Bound]fencestore.Token{{"b", s}: 41})
	r.mustBind(t, "a", 42, r.Open(t))
	r.wantAlive(t, s, true)
	r.wantFloor(t, "a", 42)
}

func unbindBusy(t *testing.T, r *run) {
	s := r.Open(t)
	r.mustBind(t, "a", 41, s)
	if gone, err := r.store().Unbind(r.ctx, claim("a", 41), s, false); err != nil || gone {
		t.Fatalf("unbind of a session that lives: got %v, %v, want it kept", gone, err)
	}
	r.wantBound(t, map[Bound]fencestore.Token{{"a", s}: 41})
	r.End(t, s)
	if gone, err := r.store().Unbind(r.ctx, claim("a", 41), s, false); err != nil || !gone {
		t.Fatalf("unbind of a session that ended: got %v, %v, want it gone", gone, err)
	}
	r.wantBound(t, nil)
}

func badToken(t *testing.T, r *run) {
	s := r.Open(t)
	for _, token := range []fencestore.Token{0, 1 << 53, math.MaxInt64, math.MaxUint64} {
		_, err := r.store().Bind(r.ctx, claim("a", token), s)
		wantReason(t, err, fencestore.BadToken)
		_, err = r.store().Raise(r.ctx, claim("a", token))
		wantReason(t, err, fencestore.BadToken)
	}
	r.wantFloor(t, "a", 0)
	r.mustBind(t, "a", 1<<53-1, s)
	r.wantFloor(t, "a", 1<<53-1)
}

func unknownSession(t *testing.T, r *run) {
	old := r.Open(t)
	r.mustBind(t, "a", 41, old)
	other := r.Open(t)
	other.Started++ // the number is used again: another session
	for _, token := range []fencestore.Token{41, 42} {
		_, err := r.store().Bind(r.ctx, claim("a", token), other)
		wantReason(t, err, fencestore.NotAllowed)
	}
	r.wantFloor(t, "a", 41)
	r.wantAlive(t, old, true)
}

func endedSession(t *testing.T, r *run) {
	s := r.Open(t)
	r.mustBind(t, "a", 41, s)
	r.End(t, s)
	r.wantBound(t, nil)
	_, err := r.store().Bind(r.ctx, claim("a", 41), s)
	wantReason(t, err, fencestore.NotAllowed)
	if got := r.mustBind(t, "a", 42, r.Open(t)); got.Ended != 0 {
		t.Errorf("takeover from one that ended: got %+v, want nobody ended", got)
	}
}

func otherCluster(t *testing.T, r *run) {
	s := r.Open(t)
	r.mustBind(t, "a", 41, s)
	foreign := claim("a", 99)
	foreign.Cluster = "other"
	_, err := r.store().Bind(r.ctx, foreign, r.Open(t))
	wantReason(t, err, fencestore.NotReady)
	_, err = r.store().Raise(r.ctx, foreign)
	wantReason(t, err, fencestore.NotReady)
	wantReason(t, r.store().Check(r.ctx, "other"), fencestore.NotReady)
	_, err = r.store().Floor(r.ctx, "other", "a")
	wantReason(t, err, fencestore.NotReady)
	if err := r.store().Check(r.ctx, Cluster); err != nil {
		t.Errorf("check for the own cluster: %v", err)
	}
	r.wantFloor(t, "a", 41)
	r.wantAlive(t, s, true)
}

func listBounded(t *testing.T, r *run) {
	s := r.Open(t)
	for _, resource := range []string{"a", "b", "c"} {
		r.mustBind(t, resource, 1, s)
	}
	list, err := r.store().Bindings(r.ctx, Cluster, 2)
	if err != nil || len(list) != 2 {
		t.Errorf("got %+v, %v, want two", list, err)
	}
}

func cancelled(t *testing.T, r *run) {
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	_, err := r.store().Bind(ctx, claim("a", 41), r.Open(t))
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want %v", err, context.Canceled)
	}
	r.wantBound(t, nil)
}

func closed(t *testing.T, r *run) {
	for range 2 {
		r.store().Close()
	}
	_, err := r.store().Raise(r.ctx, claim("a", 41))
	wantReason(t, err, fencestore.NotReady)
	wantReason(t, r.store().Check(r.ctx, Cluster), fencestore.NotReady)
}

// modes: a floor goes by token alone, whatever the mode of who comes or of who was there; a binding keeps its mode.
func modes(t *testing.T, r *run) {
	bind := func(token fencestore.Token, mode fencestore.Mode, hash string, s fencestore.Session) fencestore.Accepted {
		t.Helper()
		c := claim("a", token)
		c.Mode, c.LeaseHash = mode, hash
		accepted, err := r.store().Bind(r.ctx, c, s)
		if err != nil {
			t.Fatalf("bind %s under %d: %v", mode, token, err)
		}
		return accepted
	}
	writer, one, two, next := r.Open(t), r.Open(t), r.Open(t), r.Open(t)
	bind(41, fencestore.Exclusive, "w", writer)
	if got := bind(42, fencestore.Shared, "1", one); !got.Takeover || got.Ended != 1 {
		t.Errorf("shared after exclusive: got %+v, want a takeover that ended one", got)
	}
	if got := bind(42, fencestore.Shared, "2", two); got.Takeover || got.Ended != 0 {
		t.Errorf("second shared holder: got %+v, want no takeover", got)
	}
	r.wantAlive(t, writer, false)
	r.wantAlive(t, one, true)
	r.wantModes(t, map[fencestore.Session]fencestore.Mode{one: fencestore.Shared, two: fencestore.Shared})

	if got := bind(43, fencestore.Exclusive, "n", next); !got.Takeover || got.Ended != 2 {
		t.Errorf("exclusive after shared: got %+v, want a takeover that ended two", got)
	}
	r.wantAlive(t, one, false)
	r.wantAlive(t, two, false)
	late, joined := r.Open(t), r.Open(t)
	stale := claim("a", 42)
	stale.Mode = fencestore.Shared
	_, err := r.store().Bind(r.ctx, stale, late)
	wantReason(t, err, fencestore.StaleToken)
	if got := bind(43, fencestore.Shared, "j", joined); got.Takeover || got.Ended != 0 {
		t.Errorf("shared under an exclusive holder's token: got %+v, want no takeover", got)
	}
	r.wantModes(t, map[fencestore.Session]fencestore.Mode{next: fencestore.Exclusive, joined: fencestore.Shared})
	bind(43, fencestore.Exclusive, "j", joined)
	r.wantModes(t, map[fencestore.Session]fencestore.Mode{next: fencestore.Exclusive, joined: fencestore.Exclusive})
}

func (r *run) wantModes(t *testing.T, want map[fencestore.Session]fencestore.Mode) {
	t.Helper()
	list, err := r.store().Bindings(r.ctx, Cluster, 1000)
	if err != nil || len(list) != len(want) {
		t.Fatalf("bindings: got %+v, %v, want %+v", list, err, want)
	}
	for _, b := range list {
		if mode, ok := want[b.Session]; !ok || b.Mode != mode {
			t.Errorf("binding %+v: want mode %s", b, mode)
		}
	}
}
