package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// newLogger writes to w at a level (debug, info, warn, error) in a format (text, json).
func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil || strings.ContainsAny(level, "+-") {
		return nil, fmt.Errorf("log.level: is %q; known are debug, info, warn and error", level)
	}
	options := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("log.format: is %q; known are text and json", format)
}
