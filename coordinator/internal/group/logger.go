package group

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
)

// bridge passes the Raft library's log on, one level quieter than it was written: the library calls it an
// error when a peer cannot be reached, and info whatever it does. It repeats itself several times a second while
// a peer is down; what was said a moment ago is debugging.
type bridge struct {
	logger *slog.Logger

	mu   sync.Mutex
	said map[string]time.Time // when a message was last passed on; the library has a few dozen
}

// repeatAfter is how long a message is not repeated.
const repeatAfter = 10 * time.Second

func newBridge(logger *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Level: hclog.Off, Output: io.Discard})
	l.RegisterSink(&bridge{logger: logger.With("component", "raft"), said: make(map[string]time.Time)})
	return l
}

// repeats reports whether the message was passed on a moment ago.
func (b *bridge) repeats(msg string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	if last, ok := b.said[msg]; ok && now.Sub(last) < repeatAfter {
		return true
	}
	b.said[msg] = now
	return false
}

// Accept implements hclog.SinkAdapter.
func (b *bridge) Accept(_ string, level hclog.Level, msg string, args ...any) {
	to := slogLevel(level)
	if to > slog.LevelDebug && b.repeats(msg) {
		to = slog.LevelDebug
	}
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
