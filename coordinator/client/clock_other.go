//go:build !linux

package client

import "time"

// systemClock is the clock of a client that was given none. Go's clock is the best that the standard
// library offers; whether it advances in suspend depends on the system (it does not on macOS).
func systemClock() Clock { return monotonic{start: time.Now()} }
