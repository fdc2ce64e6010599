package watch

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/lychgate/lychgate/fencestore"
)

// listener is one gate, and the floors of its store that are to go up.
type listener struct {
	Listener
	queue    *queue
	observer Observer
	log      *slog.Logger
}

// take does what a change asks for, without waiting. It reports false when there is no room for a floor that is to go up.
func (l *listener) take(cluster string, c Change) bool {
	d := demandsOf(c, l.Cut, l.Gate.Older(cluster, c.Resource, c.Token))
	if d.end {
		l.end(cluster, c.Resource, c.Lease)
	}
	return !d.raise && !d.look || l.queue.push(c.Resource, c.Token, d.look)
}

// end cuts the bindings of a lease.
func (l *listener) end(cluster, resource, hash string) {
	n := l.Gate.EndLeaseOf(cluster, resource, hash)
	if n == 0 {
		return
	}
	l.observer.Cut(l.Adapter, n)
	l.log.Info("bindings ended with their lease", "resource", resource, "lease", hash, "bindings", n)
}

// work raises floors until ctx is done.
func (l *listener) work(ctx context.Context, cluster func() string) {
	for {
		j, ok := l.queue.take(ctx)
		if !ok {
			return
		}
		err := l.raise(ctx, fencestore.Claim{Cluster: cluster(), Resource: j.resource, Token: j.token}, j.look)
		l.queue.done(j, l.pauseAfter(ctx, j, err))
	}
}

// raise raises a floor if that still ends something.
func (l *listener) raise(ctx context.Context, claim fencestore.Claim, look bool) error {
	if !l.Gate.Older(claim.Cluster, claim.Resource, claim.Token) {
		if !look {
			return nil
		}
		if lower, err := l.Gate.Recorded(ctx, claim); err != nil || !lower {
			return err
		}
	}
	accepted, err := l.Gate.Overtake(ctx, claim)
	if err == nil && accepted.Takeover {
		l.observer.Overtook(l.Adapter)
	}
	return err
}

// How a raise that did not work is repeated.
const (
	firstRetry  = 100 * time.Millisecond
	lastRetry   = 5 * time.Second
	maxFailures = 100 // a few minutes
)

// pauseAfter says when a job is done again; 0: it is not.
func (l *listener) pauseAfter(ctx context.Context, j job, err error) time.Duration {
	var decided *fencestore.Refusal
	switch {
	case err == nil, ctx.Err() != nil:
		return 0
	case errors.As(err, &decided) && decided.Reason == fencestore.StaleToken:
		return 0 // somebody was faster, with a newer token even
	case errors.As(err, &decided) && (decided.Reason == fencestore.BadToken || decided.Reason == fencestore.NotAllowed),
		j.failures >= maxFailures:
		l.log.Warn("floor not raised before its holder comes", "resource", j.resource, "token", uint64(j.token), "error", err)
		return 0
	case j.failures == 0:
		l.log.Warn("floor not raised yet", "resource", j.resource, "token", uint64(j.token), "error", err)
	}
	return min(firstRetry<<min(j.failures, 6), lastRetry)
}
