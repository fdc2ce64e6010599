package postgres

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
)

// maxCancel is the largest body of a cancel request: a process id and a key of up to 256 bytes (protocol 3.2).
const maxCancel = 4 + 256

// cancelTimeout bounds one cancel request. The server closes the connection when it has dealt with it.
const cancelTimeout = 10 * time.Second

// forwardCancel hands a client's cancel request on, to where the server is: sessions elsewhere are ended anyway. The process id
// and the key are the server's own, so that it reaches the one backend it is meant for, whichever proxy it comes through;
// a wrong key is the server's to refuse. The protocol has no answer, so errors have nobody to go to.
func (s *Server) forwardCancel(ctx context.Context, body []byte) {
	u, _, err := s.current(ctx)
	if err != nil {
		s.log.Warn("cancel request not delivered", "cause", err.Error())
		return
	}
	s.cancelAt(ctx, u, body)
}

// cancelAt sends a cancel request to one host.
func (s *Server) cancelAt(ctx context.Context, u upstream, body []byte) {
	if len(body) < 8 || len(body) > maxCancel {
		s.log.Debug("cancel request of a wrong length", "length", len(body))
		return
	}
	ctx, cancel := context.WithTimeout(ctx, cancelTimeout)
	defer cancel()
	conn, err := s.dialHost(ctx, u)
	if err != nil {
		s.log.Warn("cancel request not delivered", "cause", err.Error())
		return
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline) // a connection that refuses a deadline fails to write, too
	if _, err := conn.Write(wire.Request(wire.CancelCode, body)); err != nil {
		s.log.Warn("cancel request not delivered", "cause", err.Error())
		return
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(conn, 1)) // until the server closes, so that the client sees it done
}

// keepAlive finds a peer that is gone without a word within about a minute.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: 30 * time.Second, Interval: 10 * time.Second, Count: 3}
