package client

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// watchSilence is how long a watch waits for a word of its coordinator, which says something every five seconds.
const watchSilence = 20 * time.Second

// errSilent is why a watch leaves a coordinator that has said nothing for too long.
var errSilent = errors.New("the coordinator fell silent")

// Watch calls on with each message of a watch: what becomes true of the resources whose names begin with prefix, after
// a revision, which a list or an earlier message gave; empty means from now on. A message without changes says that
// there were none up to its revision. One with Resync says that some were missed: list the resources anew, and go on.
//
// When its coordinator is lost or falls silent, the watch goes on at another, from where it was; nothing is missed and
// nothing told twice. It ends with the error that on returns, or when ctx ends, or when no coordinator has served it
// for Config.Patience. on is called by the goroutine that calls Watch; while it runs, the watch waits, and if that
// takes long, a resync follows.
func (c *Client) Watch(ctx context.Context, prefix, revision string, on func(*lockpb.WatchResponse) error) error {
	call, err := c.enter(ctx)
	if err != nil {
		return err
	}
	defer c.leave(call)
	ctx = call
	w := &watch{client: c, in: &lockpb.WatchRequest{Prefix: prefix, Revision: revision}, on: on, heard: c.clock.Now()}
	for failures := 1; ; failures++ {
		before := w.in.GetRevision()
		err := w.attempt(ctx)
		var own *ownError
		if errors.As(err, &own) {
			return own.err
		}
		if w.in.GetRevision() != before {
			failures = 1
		}
		e, ok := errors.AsType[*Error](err)
		if !ok || ctx.Err() != nil || !e.Temporary() || c.clock.Now()-w.heard > c.cfg.Patience {
			return err
		}
		if !sleep(ctx, pause(failures, e.RetryAfter)) {
			return err
		}
	}
}

// watch is one call of Watch.
type watch struct {
	client *Client
	in     *lockpb.WatchRequest // moves on with the messages
	on     func(*lockpb.WatchResponse) error
	heard  time.Duration // when a coordinator last said something, on the client's clock
}

// ownError is the error of the caller's function.
type ownError struct{ err error }

func (e *ownError) Error() string { return e.err.Error() }

// attempt watches at one coordinator until that is lost, and leaves it then.
func (w *watch) attempt(ctx context.Context) error {
	nodes := w.client.nodes
	addr, _ := nodes.current()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(w.client.cfg.AttemptTimeout, func() { cancel(errSilent) })
	defer silence.Stop()
	marked, sent := markSent(ctx)
	failed := func(err error) error {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		e := newError(ctx, "watch", w.in.GetPrefix(), err, sent.Load())
		nodes.judge(addr, e)
		return e
	}
	stream, err := w.client.locks.Watch(marked, w.in)
	if err != nil {
		return failed(err)
	}
	for {
		m, err := stream.Recv()
		if err != nil {
			return failed(err)
		}
		silence.Stop()
		if err := w.on(m); err != nil {
			return &ownError{err}
		}
		w.in.Revision, w.heard = m.GetRevision(), w.client.clock.Now()
		silence.Reset(watchSilence)
	}
}

// Hot lists the resources that were asked for most lately, hottest first; limit is 1 to 100, 0 for the coordinator's
// choice. It is repeated as Get is.
func (c *Client) Hot(ctx context.Context, limit int) (*lockpb.HotResponse, error) {
	return look(ctx, c, func(ctx context.Context) (*lockpb.HotResponse, error) {
		return c.locks.Hot(ctx, &lockpb.HotRequest{Limit: int32(min(limit, 1<<31-1))})
	})
}
