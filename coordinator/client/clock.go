package client

import "time"

// Clock measures the time by which a client judges its deadlines. Now is the time since some fixed instant;
// it must never go back, and should also advance while the machine is suspended, because the coordinator's
// time does. It must be safe for concurrent use and not block.
type Clock interface {
	Now() time.Duration
}

// monotonic is Go's own clock. It does not advance in suspend on every system.
type monotonic struct{ start time.Time }

func (m monotonic) Now() time.Duration { return time.Since(m.start) }
