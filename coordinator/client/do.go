package client

import (
	"context"
	"errors"
	"fmt"
)

// Do acquires the lock as Acquire does, calls fn, and releases. The context that fn gets ends with ctx and,
// before anybody else can be granted the resource, with the lease; its cause is then the lease's Err. fn must
// stop its work and return when it ends.
//
// An earlier holder is fenced when the ticket first reaches the proxy. Do knows of no store: to have that
// happen before fn starts, give it the option Before, for PostgreSQL as pgxlease.BindFirst. If that is refused
// fn never starts, the lease is released, and Do returns the refusal.
//
// Otherwise Do returns fn's error. If the lease was lost before fn returned, the error also wraps ErrLost:
// fn's work may have been overtaken. A coordinator that cannot be reached for the release is no error: the
// lease runs out by itself.
func (c *Client) Do(ctx context.Context, resource string, fn func(context.Context, *Lease) error, opts ...Option) (err error) {
	l, err := c.Acquire(ctx, resource, opts...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.finally(ctx)) }() // also when fn panics
	return l.during(ctx, fn)
}

// during calls fn with a context that ends with ctx and with the lease.
func (l *Lease) during(ctx context.Context, fn func(context.Context, *Lease) error) error {
	work, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unlink := context.AfterFunc(l.Context(), func() { cancel(l.Err()) })
	defer unlink()
	return fn(work, l)
}

// prepare runs what must happen before the lease is handed out. If it returns an error the lease has been
// released; so it has after a panic.
func (l *Lease) prepare(ctx context.Context, before []func(context.Context, *Lease) error) (err error) {
	ready := false
	defer func() {
		if ready {
			return
		}
		if end := l.finally(ctx); !errors.Is(err, ErrLost) { // or it says so already
			err = errors.Join(err, end)
		}
	}()
	for _, fn := range before {
		err := l.during(ctx, fn)
		if err == nil {
			err = l.Err()
		}
		if err != nil {
			return fmt.Errorf("acquire %s: before it is handed out: %w", l.resource, err)
		}
	}
	ready = true
	return nil
}

// finally releases a lease that Acquire or Do took and returns an error only if the lease had been lost.
func (l *Lease) finally(ctx context.Context) error {
	// The release is due also when ctx has ended; Release bounds itself.
	err := l.Release(context.WithoutCancel(ctx))
	switch {
	case err == nil, errors.Is(err, ErrLost):
		return err
	case errors.Is(err, ErrLeaseEnded): // ended before we released it, and we had not noticed
		return errors.Join(ErrLost, err)
	case errors.Is(l.Err(), ErrLost): // lost, and the client was closed meanwhile
		return l.Err()
	}
	l.c.log.Warn("lease not released, it will run out", "resource", l.resource, "err", err)
	return nil
}
