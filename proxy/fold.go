package proxy

import (
	"context"
	"log/slog"
	"time"

	"github.com/lychgate/lychgate/fencestore"
)

// folding lets the stores forget the floors of resources that nobody uses, now and then. Which proxy does it does not
// matter: a store lets one fold at a time, and folding again is harmless.
type folding struct {
	every    time.Duration
	cluster  func() string // empty: not known yet
	smallest func(ctx context.Context, cluster string) (fencestore.Token, error)
	stores   []folder
	logger   *slog.Logger
}

// folder is a store that can fold.
type folder interface {
	Fold(ctx context.Context, cluster string, below fencestore.Token) (int, error)
}

// foldTime bounds one round.
const foldTime = time.Minute

// run folds until ctx is done, the first time after one period. It blocks.
func (f *folding) run(ctx context.Context) {
	ticker := time.NewTicker(f.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		f.round(ctx)
	}
}

func (f *folding) round(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, foldTime)
	defer cancel()
	cluster := f.cluster()
	if cluster == "" {
		return // nothing was bound yet either
	}
	below, err := f.smallest(ctx, cluster)
	if err != nil {
		f.logger.Warn("idle floors are not folded: no coordinator tells the smallest live token", "error", err)
		return
	}
	for _, store := range f.stores {
		folded, err := store.Fold(ctx, cluster, below)
		if err != nil {
			f.logger.Warn("idle floors are not folded", "error", err)
			continue
		}
		f.logger.Info("idle floors are folded", "below", uint64(below), "floors", folded)
	}
}
