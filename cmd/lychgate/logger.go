package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// logLevels are what --log-level takes.
var logLevels = []string{"debug", "info", "warn", "error"}

// newLogger writes to w at a level and in a format that the configuration's Validate has let through.
func newLogger(w io.Writer, level, format string) *slog.Logger {
	return newLoggerAt(w, new(slog.LevelVar), level, format)
}

// newLoggerAt is newLogger with a level that can be changed.
func newLoggerAt(w io.Writer, l *slog.LevelVar, level, format string) *slog.Logger {
	_ = setLevel(l, level) // checked by Validate
	options := &slog.HandlerOptions{Level: l}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}

func setLevel(to *slog.LevelVar, name string) error {
	if strings.ContainsAny(name, "+-") || to.UnmarshalText([]byte(name)) != nil {
		return fmt.Errorf("is %q; known are debug, info, warn and error", name)
	}
	return nil
}
