package coordinator

import (
	"net"
	"sync"
	"sync/atomic"
)

// limited is a listener with a bound on open connections. One too many is closed at once: to leave it in the
// kernel's queue would look like a node that hangs.
type limited struct {
	net.Listener
	limit int64
	open  atomic.Int64
}

func newLimited(l net.Listener, limit int) *limited {
	return &limited{Listener: l, limit: int64(limit)}
}

func (l *limited) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.open.Add(1) <= l.limit {
			return &counted{Conn: conn, leave: sync.OnceFunc(func() { l.open.Add(-1) })}, nil
		}
		l.open.Add(-1)
		_ = conn.Close()
	}
}

// counted is a connection that is counted until it is closed.
type counted struct {
	net.Conn
	leave func()
}

func (c *counted) Close() error {
	defer c.leave()
	return c.Conn.Close()
}
