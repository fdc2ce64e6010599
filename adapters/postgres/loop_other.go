//go:build !linux

package postgres

import "log/slog"

// loops are for systems that have epoll.
type loops struct{}

func newLoops(int, *slog.Logger) *loops { return nil }

func (*loops) close() {}

// ride leaves everything to the pumps.
func (r *relay) ride(at underway) underway { return at }
