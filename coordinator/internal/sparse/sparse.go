// Package sparse keeps a log readable where others decide how often something happens: who knocks with a wrong key a
// thousand times a second must not fill the disk with it.
package sparse

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Log writes at most burst lines at once and one more for each interval that passes. What it held back is counted in the
// next line that it writes, as "suppressed".
type Log struct {
	logger   *slog.Logger
	burst    int
	interval time.Duration
	now      func() time.Time

	mu         sync.Mutex
	left       int // lines that may be written now
	at         time.Time
	suppressed int
}

// New is a Log that writes to logger.
func New(logger *slog.Logger, burst int, interval time.Duration) *Log {
	return &Log{logger: logger, burst: burst, interval: interval, now: time.Now, left: burst}
}

// Warn writes a line, or counts it.
func (l *Log) Warn(message string, args ...any) {
	suppressed, ok := l.take()
	if !ok {
		return
	}
	if suppressed > 0 {
		args = append(args, "suppressed", suppressed)
	}
	l.logger.Log(context.Background(), slog.LevelWarn, message, args...)
}

func (l *Log) take() (suppressed int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if earned := int(now.Sub(l.at) / l.interval); earned > 0 {
		l.left = min(l.burst, l.left+earned)
		l.at = now
	}
	if l.left == 0 {
		l.suppressed++
		return 0, false
	}
	l.left--
	suppressed, l.suppressed = l.suppressed, 0
	return suppressed, true
}
