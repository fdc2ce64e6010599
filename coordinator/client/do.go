package client

import (
	"context"
	"errors"
)

// Do acquires the lock as Acquire does, calls fn, and releases. The context that fn gets ends with ctx and,
// before anybody else can be granted the resource, with the lease; its cause is then the lease's Err. fn must
// stop its work and return when it ends. Do knows of no store: an earlier holder is fenced when the ticket first
// reaches the proxy (see pgxlease.Bind).
//
// Do returns fn's error. If the lease was lost before fn returned, the error also wraps ErrLost: fn's work
// may have been overtaken. A coordinator that cannot be reached for the release is no error: the lease runs
// out by itself.
func (c *Client) Do(ctx context.Context, resource string, fn func(context.Context, *Lease) error, opts ...Option) (err error) {
	l, err := c.Acquire(ctx, resource, opts...)
	if err != nil {
		return err
	}
	work, cancel := context.WithCancelCause(ctx)
	unlink := context.AfterFunc(l.Context(), func() { cancel(l.Err()) })
	defer func() { // also when fn panics
		unlink()
		cancel(nil)
		err = errors.Join(err, l.finally(ctx))
	}()
	return fn(work, l)
}

// finally releases at the end of Do and returns an error only if the lease had been lost.
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
