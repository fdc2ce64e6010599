package main

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// newLogger writes to w at a level (debug, info, warn, error) in a format (text, json).
func newLogger(w io.Writer, level, format string) (*slog.Logger, error) {
	var l slog.LevelVar
	if err := setLevel(&l, level); err != nil {
		return nil, fmt.Errorf("log.level: %w", err)
	}
	options := &slog.HandlerOptions{Level: &l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(w, options)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(w, options)), nil
	}
	return nil, fmt.Errorf("log.format: is %q; known are text and json", format)
}

func setLevel(to *slog.LevelVar, name string) error {
	if strings.ContainsAny(name, "+-") || to.UnmarshalText([]byte(name)) != nil {
		return fmt.Errorf("is %q; known are debug, info, warn and error", name)
	}
	return nil
}
