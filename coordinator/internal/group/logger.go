package group

import (
	"context"
	"fmt"
	"io"
	"log/slog"

	"github.com/hashicorp/go-hclog"
)

// bridge passes the Raft library's log on, one level quieter than it was written: the library calls it an
// error when a peer cannot be reached, and info whatever it does.
type bridge struct{ logger *slog.Logger }

func newBridge(logger *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard})
	l.RegisterSink(bridge{logger.With("component", "raft")})
	return l
}

// Accept implements hclog.SinkAdapter.
func (b bridge) Accept(_ string, level hclog.Level, msg string, args ...any) {
	to := slogLevel(level)
	ctx := context.Background()
	if !b.logger.Enabled(ctx, to) {
		return
	}
	for i, arg := range args {
		if f, ok := arg.(hclog.Format); ok {
			args[i] = fmt.Sprintf(f[0].(string), f[1:]...)
		}
	}
	b.logger.Log(ctx, to, msg, args...)
}

func slogLevel(level hclog.Level) slog.Level {
	switch level {
	case hclog.Error:
		return slog.LevelWarn
	case hclog.Warn:
		return slog.LevelInfo
	case hclog.Info:
		return slog.LevelDebug
	case hclog.NoLevel, hclog.Trace, hclog.Debug, hclog.Off:
	}
	return slog.LevelDebug - 4
}
