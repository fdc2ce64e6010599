package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// onHangup has a server reload when it gets SIGHUP, until stop is called. One that fails changes nothing. Nil: there is nothing
// to reload, and it goes on.
func onHangup(ctx context.Context, logger *slog.Logger, reload func() error) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	var reloading sync.WaitGroup
	reloading.Go(func() {
		for {
			select {
			case <-hangups:
				hangUp(logger, reload)
			case <-ctx.Done():
				return
			}
		}
	})
	return func() {
		signal.Stop(hangups)
		cancel()
		reloading.Wait()
	}
}

func hangUp(logger *slog.Logger, reload func() error) {
	if reload == nil {
		logger.Warn("SIGHUP ignored: certificates are read anew by themselves, and a changed configuration needs a restart")
		return
	}
	if err := reload(); err != nil {
		logger.Error("SIGHUP: new settings not taken, the old ones go on", "error", err)
	}
}
