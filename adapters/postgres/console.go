package postgres

import (
	"context"
	"encoding/binary"
	"net"
	"strings"
	"time"

	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
)

// ConsoleDatabase is the virtual database of the console. A listener with a console serves no real one of that name.
const ConsoleDatabase = "lychgate"

// Console serves the clients of the virtual database. They never reach the server.
type Console interface {
	// Serve speaks with one client from behind its start-up message on, authentication included, in protocol 3.0, and blocks
	// until that has ended or ctx is done, which fails a read at once. It does not close conn, which is a *tls.Conn where the
	// client asked for TLS, and whose deadlines are its own to set. The client's address is the one to be logged.
	Serve(ctx context.Context, conn net.Conn, address, user string)
}

func (s *session) wantsConsole() bool {
	return s.server.config.Console != nil && s.startup.Value("database") == ConsoleDatabase
}

// serveConsole hands the client over. It is never seated, so that the console can be had while every slot is taken; how
// many there are at a time is the console's to bound.
func (s *session) serveConsole(ctx context.Context) error {
	s.server.mu.Lock()
	s.server.leaveArriving(s)
	s.server.mu.Unlock()
	_ = s.client.SetDeadline(time.Time{}) // a dead connection fails on read
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if answer := s.olderProtocol(); answer != nil {
		if _, err := s.client.Write(answer); err != nil {
			return errNoSession
		}
	}
	s.server.config.Console.Serve(ctx, s.client, s.address, s.startup.Value("user"))
	return errNoSession
}

// olderProtocol tells a client that asks for more than protocol 3.0 that this is all there is; nil for one that does not.
func (s *session) olderProtocol() []byte {
	var options []byte
	count := uint32(0)
	for _, p := range s.startup.Params {
		if strings.HasPrefix(p.Name, "_pq_.") {
			options = append(append(options, p.Name...), 0)
			count++
		}
	}
	const version = 3 << 16
	if s.startup.Protocol == version && count == 0 {
		return nil
	}
	body := binary.BigEndian.AppendUint32(nil, version)
	return wire.AppendMessage(nil, 'v', binary.BigEndian.AppendUint32(body, count), options)
}
