package client

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// bound is a context with an end that hardly any call comes to see: a deadline, or the end of the client. It turns into
// an ordinary one when it has ended, or when somebody asks for its Done. A call that is answered in time costs neither a
// timer nor a place in another context's list: sessions wait with the help of endsOf instead.
//
// Its cancel is for whoever waits, once that is over: it wakes nobody who found its ends with endsOf.
type bound struct {
	parent   context.Context
	closing  context.Context // ends it too; nil: nothing does
	deadline time.Time       // zero: none
	cause    timeoutError    // of the end at the deadline

	mu        sync.Mutex
	ordinary  context.Context // nil until it is needed
	release   func()          // of the ordinary one
	cancelled bool
}

// within bounds one attempt at a node, or a whole call; what names the bound in the error. It must be cancelled.
func within(ctx context.Context, d time.Duration, what string) *bound {
	return &bound{parent: ctx, deadline: time.Now().Add(d), cause: timeoutError{what, d}}
}

// timeoutError is why a bound of within has ended a context.
type timeoutError struct {
	what string
	d    time.Duration
}

func (e timeoutError) Error() string { return fmt.Sprintf("%s %v", e.what, e.d) }

// What a bound of within is called.
const (
	noAnswer = "no answer within"
	gaveUp   = "gave up after"
)

// Deadline implements context.Context.
func (b *bound) Deadline() (time.Time, bool) {
	outer, ok := b.parent.Deadline()
	if b.deadline.IsZero() || ok && outer.Before(b.deadline) {
		return outer, ok
	}
	return b.deadline, true
}

// Done implements context.Context.
func (b *bound) Done() <-chan struct{} { return b.become().Done() }

// Err implements context.Context.
func (b *bound) Err() error {
	ctx, over := b.look()
	if over {
		ctx = b.become()
	}
	if ctx == nil {
		return nil
	}
	return ctx.Err()
}

// look returns the ordinary context; nil if there is none yet. over says that there is to be one, since it has ended.
func (b *bound) look() (ordinary context.Context, over bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ordinary != nil {
		return b.ordinary, false
	}
	return nil, b.cancelled || b.parent.Err() != nil || b.closing != nil && b.closing.Err() != nil ||
		!b.deadline.IsZero() && !time.Now().Before(b.deadline)
}

// Value implements context.Context. The ordinary context's comes with its cause.
func (b *bound) Value(key any) any {
	if ctx, _ := b.look(); ctx != nil {
		return ctx.Value(key)
	}
	return b.parent.Value(key)
}

// become returns the ordinary context, made if need be.
func (b *bound) become() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ordinary != nil {
		return b.ordinary
	}
	ctx, cancel := context.WithCancelCause(b.parent)
	unlink, stop := func() bool { return true }, func() {}
	if b.closing != nil {
		if b.closing.Err() != nil {
			cancel(context.Cause(b.closing))
		}
		unlink = context.AfterFunc(b.closing, func() { cancel(context.Cause(b.closing)) })
	}
	if !b.deadline.IsZero() {
		ctx, stop = context.WithDeadlineCause(ctx, b.deadline, b.cause)
	}
	b.release = func() {
		unlink()
		cancel(nil)
		stop()
	}
	b.ordinary = ctx
	if b.cancelled {
		b.release()
	}
	return ctx
}

// asked reports whether the ordinary context is there, or is needed since this one was cancelled.
func (b *bound) asked() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ordinary != nil || b.cancelled
}

func (b *bound) cancel() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cancelled = true
	if b.release != nil {
		b.release()
	}
}

// ends are what can end a context: two channels, either may be nil, and an instant; zero is none.
type ends struct {
	done, closing <-chan struct{}
	deadline      time.Time
}

// endsOf tells what can end ctx, without making anything. The bounds that it is made of may share one closing.
func endsOf(ctx context.Context) (e ends) {
	e.deadline, _ = ctx.Deadline()
	for {
		b, ok := ctx.(*bound)
		if !ok {
			e.done = ctx.Done()
			return e
		}
		if b.asked() || b.closing != nil && e.closing != nil {
			e.done = b.Done()
			return e
		}
		if b.closing != nil {
			e.closing = b.closing.Done()
		}
		ctx = b.parent
	}
}
