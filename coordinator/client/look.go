package client

import (
	"context"
	"errors"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Get tells who holds a resource and who waits for it. The answer is linearizable. It is repeated while no
// coordinator can serve it, at most for Config.Patience.
func (c *Client) Get(ctx context.Context, resource string) (*lockpb.GetResponse, error) {
	return look(ctx, c, func(ctx context.Context) (*lockpb.GetResponse, error) {
		return c.locks.Get(ctx, &lockpb.GetRequest{Resource: resource})
	})
}

// List returns a page of the held or awaited resources whose names begin with prefix and come after after,
// in the order of their names; at most limit, which is 1 to 1000, 0 for the coordinator's choice. Next of
// the answer is the after of the next page. It is repeated as Get is.
func (c *Client) List(ctx context.Context, prefix, after string, limit int) (*lockpb.ListResponse, error) {
	return look(ctx, c, func(ctx context.Context) (*lockpb.ListResponse, error) {
		return c.locks.List(ctx, &lockpb.ListRequest{Prefix: prefix, After: after, Limit: int32(min(limit, 1000))})
	})
}

// look repeats a call that changes nothing.
func look[T any](ctx context.Context, c *Client, ask func(context.Context) (T, error)) (answer T, err error) {
	call, err := c.enter(ctx)
	if err != nil {
		return answer, err
	}
	defer c.leave(call)
	ctx = call
	b := within(ctx, c.cfg.Patience, gaveUp)
	defer b.cancel()
	ctx = b
	err = repeat(ctx, func(ctx context.Context) error {
		attempt := within(ctx, c.cfg.AttemptTimeout, noAnswer)
		defer attempt.cancel()
		var err error
		answer, err = ask(attempt)
		return err
	})
	return answer, err
}

// Break force-releases a resource: its lease ends at once, and a token is issued to nobody, so that every later
// one is larger. A proxy that watches fences the old holder at once; otherwise its ticket is refused from the
// first contact of a newer one with the store. It is repeated only while it has certainly not taken effect: a second break would end the
// successor's lease.
func (c *Client) Break(ctx context.Context, resource string) (*lockpb.BreakResponse, error) {
	call, err := c.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer c.leave(call)
	ctx = call
	b := within(ctx, c.cfg.Patience, gaveUp)
	defer b.cancel()
	ctx = b
	var resp *lockpb.BreakResponse
	var final error
	err = repeat(ctx, func(ctx context.Context) error {
		attempt := within(ctx, c.cfg.AttemptTimeout, noAnswer)
		defer attempt.cancel()
		var err error
		resp, err = c.locks.Break(attempt, &lockpb.BreakRequest{Resource: resource})
		if e, ok := errors.AsType[*Error](err); ok && e.Applied != lockpb.Applied_NO {
			final = err
			return nil
		}
		return err
	})
	if err == nil {
		err = final
	}
	return resp, err
}
