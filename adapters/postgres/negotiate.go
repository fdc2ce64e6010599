package postgres

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/lychgate/lychgate/adapters/postgres/internal/sqltext"
	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
	"github.com/lychgate/lychgate/proxy/gate"
)

// errNoSession ends a connection that was never going to be a session: a cancel request, or a client that left.
var errNoSession = errors.New("no session")

// negotiate reads packets until the client has sent its start-up message. Each request for encryption may be made
// once, so that the loop is bounded.
func (s *session) negotiate(ctx context.Context) error {
	if err := s.learnClient(ctx); err != nil {
		return err
	}
	if err := s.acceptDirectTLS(); err != nil {
		return err
	}
	asked := map[uint32]bool{}
	for {
		code, body, err := wire.ReadStartup(s.client)
		switch {
		case errors.Is(err, io.EOF):
			return errNoSession
		case err != nil:
			return s.headerRefused(ctx, unexpectedHeader(err))
		case code != wire.SSLCode && code != wire.GSSCode:
			return s.takeStartup(ctx, code, body)
		case asked[code] || len(body) > 0:
			return &wire.FrameError{Reason: "repeated or malformed request for encryption"}
		}
		asked[code] = true
		if code == wire.SSLCode && s.server.config.TLS != nil && !s.encrypted {
			err = s.startTLS(ctx)
		} else {
			_, err = s.client.Write([]byte{'N'})
		}
		if err != nil {
			return err
		}
	}
}

// takeStartup tells cancel requests from start-up messages.
func (s *session) takeStartup(ctx context.Context, code uint32, body []byte) error {
	if code == wire.CancelCode {
		s.server.forwardCancel(ctx, body)
		return errNoSession
	}
	if code>>16 != 3 {
		return fail(codeUnsupported, "unsupported frontend protocol %d.%d: only 3.x is served", code>>16, code&0xffff)
	}
	startup, err := wire.ParseStartup(code, body)
	if err != nil {
		return err
	}
	s.startup = startup
	return s.takeTickets()
}

// startTLS reads not one byte ahead: whatever the client sent behind its request in plaintext is read as part of
// the handshake, where it fails.
func (s *session) startTLS(ctx context.Context) error {
	if _, err := s.client.Write([]byte{'S'}); err != nil {
		return err
	}
	return s.handshake(ctx, tls.Server(s.client, s.server.config.TLS))
}

func (s *session) handshake(ctx context.Context, conn *tls.Conn) error {
	if err := conn.HandshakeContext(ctx); err != nil {
		return fmt.Errorf("TLS handshake: %w", err)
	}
	s.client, s.encrypted, s.endPoint = conn, true, endPointOf(s.server.config.TLS)
	return nil
}

// acceptDirectTLS recognises a client that begins with TLS at once, which has to name the protocol (ALPN).
func (s *session) acceptDirectTLS() error {
	if s.server.config.TLS == nil {
		return nil
	}
	var first [1]byte
	if _, err := io.ReadFull(s.client, first[:]); err != nil {
		return errNoSession
	}
	replayed := &replayConn{Conn: s.client, first: first[:]}
	if first[0] != tlsHandshakeRecord {
		s.client = replayed
		return nil
	}
	config := s.server.config.TLS.Clone()
	config.NextProtos = []string{alpn}
	conn := tls.Server(replayed, config)
	if err := s.handshake(context.Background(), conn); err != nil { // the client's deadline bounds it
		return err
	}
	if conn.ConnectionState().NegotiatedProtocol != alpn {
		return fail(codeProtocolViolation, "direct TLS without the ALPN protocol %q", alpn)
	}
	return nil
}

const (
	tlsHandshakeRecord = 0x16
	alpn               = "postgresql"
)

// replayConn reads again what was read to look at it.
type replayConn struct {
	net.Conn
	first []byte
}

func (c *replayConn) Read(p []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(p, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.Conn.Read(p)
}

// CloseWrite ends the stream to the client, who can still be read.
func (c *replayConn) CloseWrite() error { return closeWrite(c.Conn) }

// Names of the settings that the proxy takes for itself.
const (
	paramTicket   = "fence.ticket"
	paramResource = "fence.resource"
	paramToken    = "fence.token"
)

// takeTickets removes what the client shows from its start-up message, so that the server never sees it.
func (s *session) takeTickets() error {
	values := map[string][]string{}
	for _, name := range []string{paramTicket, paramResource, paramToken} {
		values[name] = s.startup.Take(name)
		for i, p := range s.startup.Params {
			if p.Name != "options" {
				continue
			}
			rest, found := wire.TakeOption(p.Value, name)
			s.startup.Params[i].Value = rest
			values[name] = append(values[name], found...)
		}
	}
	if s.mentionsTicket() {
		return s.server.config.Gate.Refused(&gate.Refusal{
			Reason: gate.NotAllowed, Detail: "The start-up packet mentions fence.ticket in a form that is not understood.",
			Hint: "Use the parameter fence.ticket, or options=-c fence.ticket=…",
		})
	}
	for _, v := range values[paramTicket] {
		s.shown.Tickets = append(s.shown.Tickets, sqltext.SplitTickets(v)...)
	}
	return s.takeUnsigned(values[paramResource], values[paramToken])
}

// mentionsTicket finds what would carry a ticket into the server's log.
func (s *session) mentionsTicket() bool {
	return slices.ContainsFunc(s.startup.Params, func(p wire.Param) bool {
		return strings.Contains(strings.ToLower(p.Name+" "+p.Value), paramTicket)
	})
}

func (s *session) takeUnsigned(resources, tokens []string) error {
	switch {
	case len(resources) == 0 && len(tokens) == 0:
		return nil
	case len(resources) != 1 || len(tokens) != 1:
		return s.server.config.Gate.Refused(&gate.Refusal{
			Reason: gate.TicketInvalid, Detail: "fence.resource and fence.token are to be given once, and together.",
		})
	}
	s.shown.Unsigned = []gate.Unsigned{{Resource: resources[0], Token: tokens[0]}}
	return nil
}

// checkStartup refuses what this listener does not serve, before anything is decided.
func (s *session) checkStartup() error {
	if s.replication() == physical {
		return nil
	}
	database := s.database()
	if want := s.server.config.Database; want != "" && database != want {
		return fail(codeInvalidCatalog, "this listener serves database %q only, not %q", want, database)
	}
	return nil
}

// database is the one that the client asks for; empty for physical replication, which has none, whatever it names.
func (s *session) database() string {
	if s.replication() == physical {
		return ""
	}
	return cmp.Or(s.startup.Value("database"), s.startup.Value("user"))
}
