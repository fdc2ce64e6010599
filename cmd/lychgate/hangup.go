package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// surviveHangups has a server go on when it gets SIGHUP, by which others are told to read their configuration anew,
// until stop is called.
func surviveHangups(ctx context.Context, logger *slog.Logger) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	var logging sync.WaitGroup
	logging.Go(func() {
		for {
			select {
			case <-hangups:
				logger.Warn("SIGHUP ignored: certificates and tokens are read anew by themselves, and a changed configuration needs a restart")
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		signal.Stop(hangups)
		cancel()
		logging.Wait()
	}
}
