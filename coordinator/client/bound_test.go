package client

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A bound ends as an ordinary context would, whether it is waited for, looked at or neither before, and with whatever is
// derived from it.
func TestBoundEndsLikeAnOrdinaryContext(t *testing.T) {
	errOuter := errors.New("the caller's cause")
	for _, end := range []struct {
		name       string
		do         func(outer, root context.CancelCauseFunc, inner context.CancelFunc)
		err, cause error
	}{
		{"deadline", func(_, _ context.CancelCauseFunc, _ context.CancelFunc) { time.Sleep(time.Second) }, context.DeadlineExceeded, timeoutError{noAnswer, time.Second}},
		{"caller", func(outer, _ context.CancelCauseFunc, _ context.CancelFunc) { outer(errOuter) }, context.Canceled, errOuter},
		{"client", func(_, root context.CancelCauseFunc, _ context.CancelFunc) { root(ErrClosed) }, context.Canceled, ErrClosed},
		{"cancel", func(_, _ context.CancelCauseFunc, inner context.CancelFunc) { inner() }, context.Canceled, context.Canceled},
	} {
		for name, before := range map[string]func(context.Context){
			"untouched": func(context.Context) {},
			"looked at": func(ctx context.Context) { _ = ctx.Err() },
			"waited":    func(ctx context.Context) { _ = ctx.Done() },
		} {
			t.Run(end.name+" "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					base, outer := context.WithCancelCause(context.WithValue(t.Context(), sentKey{}, 7))
					defer outer(nil)
					root, closeRoot := context.WithCancelCause(t.Context())
					defer closeRoot(nil)
					call := &bound{parent: base, closing: root}
					defer call.cancel()
					ctx := within(call, time.Second, noAnswer)
					defer ctx.cancel()
					before(ctx)
					if ctx.Err() != nil || context.Cause(ctx) != nil || ctx.Value(sentKey{}) != 7 {
						t.Fatalf("before its end: %v, %v, %v", ctx.Err(), context.Cause(ctx), ctx.Value(sentKey{}))
					}
					derived, stop := context.WithCancel(ctx)
					if name == "untouched" {
						derived = ctx // deriving asks for Done
					}
					defer stop()
					end.do(outer, closeRoot, ctx.cancel)
					synctest.Wait()
					if got := context.Cause(ctx); !errors.Is(got, end.cause) || !errors.Is(ctx.Err(), end.err) {
						t.Errorf("got %v, %v, want %v, %v", ctx.Err(), got, end.err, end.cause)
					}
					select {
					case <-derived.Done():
					default:
						t.Error("what is derived from it goes on")
					}
					select {
					case <-ctx.Done():
					default:
						t.Error("its Done is open")
					}
				})
			})
		}
	}
}

// What can end a bound is found without making it an ordinary context.
func TestEndsOf(t *testing.T) {
	base, outer := context.WithCancel(t.Context())
	defer outer()
	root, closeRoot := context.WithCancel(t.Context())
	defer closeRoot()
	call := &bound{parent: base, closing: root}
	patient := within(call, time.Hour, gaveUp)
	defer patient.cancel()
	attempt := within(patient, time.Minute, noAnswer)
	defer attempt.cancel()
	e := endsOf(attempt)
	if e.done != base.Done() || e.closing != root.Done() || time.Until(e.deadline) > time.Minute {
		t.Errorf("got %+v", e)
	}
	if call.ordinary != nil || attempt.ordinary != nil {
		t.Error("it has become an ordinary context")
	}
	done := patient.Done()
	if e := endsOf(attempt); e.done != done || e.closing != nil {
		t.Errorf("with an ordinary one in between: got %+v", e)
	}
	attempt.cancel()
	select {
	case <-endsOf(attempt).done:
	default:
		t.Error("a cancelled one has no end")
	}
	if e := endsOf(context.Background()); e != (ends{}) {
		t.Errorf("of a context without an end: got %+v", e)
	}
}
