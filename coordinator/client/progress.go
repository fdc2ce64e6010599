package client

import (
	"context"
	"errors"
	"io"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Progress is how a waiting acquire stands.
type Progress struct {
	Position  int            // in the queue; 1 is the head
	Holder    *lockpb.Holder // one of those that hold it; nil if that is not known
	Remaining time.Duration  // until the wait of this request is over; an acquire without Wait asks again then
}

// OnProgress has fn told how the queue goes while the acquire waits: at once, and whenever it changes. fn is called by
// the goroutine that acquires, one call at a time, and holds it up. A coordinator that cannot tell is waited for in
// silence.
func OnProgress(fn func(Progress)) Option { return func(o *options) { o.progress = fn } }

// acquireOnce makes one attempt at an acquire.
func (c *Client) acquireOnce(ctx context.Context, msg *lockpb.AcquireRequest, o options) (*lockpb.AcquireResponse, error) {
	if o.progress == nil || msg.GetWaitTimeout() == 0 || c.silent.is(c.clock.Now()) {
		return c.locks.Acquire(ctx, msg)
	}
	resp, err := c.follow(ctx, msg, o.progress)
	if e, ok := errors.AsType[*Error](err); ok && e.Code == codes.Unimplemented {
		c.silent.note(c.clock.Now())
		return c.locks.Acquire(ctx, msg)
	}
	return resp, err
}

// follow is one attempt that tells of the queue.
func (c *Client) follow(ctx context.Context, msg *lockpb.AcquireRequest, tell func(Progress)) (*lockpb.AcquireResponse, error) {
	addr, _ := c.nodes.current()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	marked, sent := markSent(ctx)
	failed := func(err error) *Error {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		e := newError(ctx, "acquire", msg.GetResource(), err, sent.Load())
		c.nodes.judge(addr, e)
		return e
	}
	stream, err := c.locks.Follow(marked, msg)
	if err != nil {
		return nil, failed(err)
	}
	for {
		news, err := stream.Recv()
		if err != nil {
			return nil, failed(err)
		}
		if granted := news.GetGranted(); granted != nil {
			return granted, nil
		}
		if p := news.GetProgress(); p != nil {
			tell(Progress{Position: int(p.GetPosition()), Holder: p.GetHolder(), Remaining: millis(p.GetRemaining())})
		}
	}
}
