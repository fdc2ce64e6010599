package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
)

// Leases are the locks that one AcquireAll took, in the order of their resources.
type Leases []*Lease

// AcquireAll takes several locks, one after the other in the order of their names, so that two callers who want some of
// the same cannot wait for each other. It has all of them or none: if one is not to be had, those before it are released.
// ctx and the option Wait bound the whole, not each; without either it waits for as long as it takes. A resource that is
// named twice is taken once. The other options count for each lock; RequestID cannot be given, since each lock is a
// request of its own.
//
// Taking several locks is not one step: while it waits for a later one, it holds the earlier ones, and renews them.
func (c *Client) AcquireAll(ctx context.Context, resources []string, opts ...Option) (Leases, error) {
	names := slices.Compact(slices.Sorted(slices.Values(resources)))
	o := options{endless: true}
	for _, opt := range opts {
		opt(&o)
	}
	switch {
	case len(names) == 0:
		return nil, errors.New("acquire all: no resource is named")
	case o.request != "":
		return nil, errors.New("acquire all: one RequestID cannot name several requests")
	}
	until := c.clock.Now() + o.wait
	taken := make(Leases, 0, len(names))
	for _, name := range names {
		each := opts
		if !o.endless {
			each = append(slices.Clip(opts), Wait(max(0, until-c.clock.Now())))
		}
		l, err := c.Acquire(ctx, name, each...)
		if err == nil {
			taken = append(taken, l)
			err = taken.Err()
		}
		if err != nil {
			return nil, errors.Join(fmt.Errorf("acquire all of %d: %w", len(names), err), taken.undo(ctx))
		}
	}
	return taken, nil
}

// undo releases what was taken of something that is not to be had as a whole. What a coordinator does not confirm runs
// out, as after Do.
func (ls Leases) undo(ctx context.Context) error {
	if err := ls.Release(context.WithoutCancel(ctx)); errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// Err is the error of the first lease that is over, nil while all are held.
func (ls Leases) Err() error {
	for _, l := range ls {
		if err := l.Err(); err != nil {
			return err
		}
	}
	return nil
}

// Context has the values of ctx and ends with it, or as soon as one of the leases is over; its cause is that lease's Err.
// The caller must call stop when its work is done.
func (ls Leases) Context(ctx context.Context) (_ context.Context, stop context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	unlinks := make([]func() bool, len(ls))
	for i, l := range ls {
		unlinks[i] = context.AfterFunc(l.Context(), func() { cancel(l.Err()) })
	}
	return ctx, func() {
		for _, unlink := range unlinks {
			unlink()
		}
		cancel(nil)
	}
}

// Release releases all, each as Lease.Release does, and together, so that the slowest counts. It returns the errors
// joined.
func (ls Leases) Release(ctx context.Context) error {
	errs := make([]error, len(ls))
	var releasing sync.WaitGroup
	for i, l := range ls {
		releasing.Go(func() { errs[i] = l.Release(ctx) })
	}
	releasing.Wait()
	return errors.Join(errs...)
}
