package client

import (
	"context"
	"sync/atomic"

	"google.golang.org/grpc/stats"
)

// sentHandler notes for a call whether anything of it left this process: of one that failed before, as when nobody
// listens at the address, it is known that it took no effect.
type sentHandler struct{}

type sentKey struct{}

// markSent returns a context whose call sets sent when its first frame is written.
func markSent(ctx context.Context) (_ context.Context, sent *atomic.Bool) {
	sent = new(atomic.Bool)
	return context.WithValue(ctx, sentKey{}, sent), sent
}

// HandleRPC is told of each step of a call.
func (sentHandler) HandleRPC(ctx context.Context, step stats.RPCStats) {
	if _, ok := step.(*stats.OutHeader); !ok {
		return
	}
	if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok {
		sent.Store(true)
	}
}

// TagRPC leaves the context as it is.
func (sentHandler) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// TagConn leaves the context as it is.
func (sentHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn wants to know nothing of connections.
func (sentHandler) HandleConn(context.Context, stats.ConnStats) {}
