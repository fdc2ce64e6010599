package postgres

import (
	"context"
	"crypto/tls"
	"encoding/binary"
	"fmt"

	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
)

// Requests in an Authentication message that the client answers. The others it only takes note of.
const (
	authOK           = 0
	authCleartext    = 3
	authMD5          = 5
	authGSS          = 7
	authGSSContinue  = 8
	authSSPI         = 9
	authSASL         = 10
	authSASLContinue = 11
	authSASLFinal    = 12
)

// maxAuthAnswer is the longest answer that PostgreSQL itself takes from a client that is not authenticated yet.
const maxAuthAnswer = 65_535

// authenticate passes messages through until the server is ready. Nothing is understood but who speaks next: so the
// server's own rules decide, and the proxy never learns a password. With Verifiers the client proves its password to
// the proxy first, which then answers the server. ReadyForQuery is held back.
func (s *session) authenticate(_ context.Context) error {
	if s.server.config.Verifiers != nil {
		if err := s.verifyClient(); err != nil {
			return err
		}
	}
	defer func() { s.login = nil }() // secrets are not kept
	for first := true; ; {
		typ, size, err := s.fromServer.Next()
		if err != nil {
			return s.refusedByServer(first, err)
		}
		first = false
		body, err := s.fromServer.Body()
		if err != nil {
			return fmt.Errorf("server: %w", err)
		}
		message := wire.AppendMessage(make([]byte, 0, size+5), typ, body)
		if typ == 'Z' {
			s.heldBack = message
			s.server.introduce(s)
			return nil
		}
		if typ == 'R' && s.login != nil {
			pass, err := s.answerServer(message[5:])
			if err != nil {
				return err
			}
			if !pass {
				continue
			}
		} else if typ == 'R' {
			message = s.withoutBinding(message)
		}
		if _, err := s.client.Write(message); err != nil {
			return fmt.Errorf("client: %w", err)
		}
		if err := s.authStep(typ, message[5:]); err != nil {
			return err
		}
	}
}

// refusedByServer is for a server that ends the connection before its first word: over TLS 1.3 the handshake has succeeded
// when it comes to look at the proxy's certificate, and it says so, if at all, to the proxy alone.
func (s *session) refusedByServer(first bool, err error) error {
	if _, secured := s.upstream.(*tls.Conn); first && secured {
		return s.unreachable(&tlsError{"the server ended the TLS connection at once: it may not trust upstream_tls.cert", err})
	}
	return fmt.Errorf("server: %w", err)
}

// authStep notes what the server said and lets the client answer where it has to.
func (s *session) authStep(typ byte, body []byte) error {
	switch typ {
	case 'E':
		return errNoSession // the server's own words have just been passed on
	case 'K':
		s.backend.cancelKey = body
	case 'S':
		s.noteParameter(body)
	case 'R':
		if wantsAnswer(body) {
			return s.relayAnswer()
		}
	case 'N', 'v':
	default:
		return &wire.FrameError{Reason: fmt.Sprintf("server message %q before it was ready", typ)}
	}
	return nil
}

func wantsAnswer(body []byte) bool {
	if len(body) < 4 {
		return false
	}
	switch binary.BigEndian.Uint32(body) {
	case authCleartext, authMD5, authGSS, authGSSContinue, authSSPI, authSASL, authSASLContinue:
		return true
	}
	return false
}

// relayAnswer passes one answer of the client's on.
func (s *session) relayAnswer() error {
	typ, size, err := s.fromClient.Next()
	switch {
	case err != nil:
		return fmt.Errorf("client: %w", err)
	case typ != 'p' || size > maxAuthAnswer:
		return &wire.FrameError{Reason: fmt.Sprintf("message %q of %d bytes in place of an answer to the server's question", typ, size)}
	}
	if s.stripped && s.fromClient.Fits() {
		body, err := s.fromClient.Peek(size)
		if err != nil {
			return fmt.Errorf("client: %w", err)
		}
		if err := s.checkBinding(body); err != nil {
			return err
		}
	}
	if _, err := s.upstream.Write(wire.AppendHeader(nil, typ, size)); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	for {
		piece, err := s.fromClient.Chunk()
		if err != nil {
			return fmt.Errorf("client: %w", err)
		}
		if len(piece) == 0 {
			return nil
		}
		if _, err := s.upstream.Write(piece); err != nil {
			return fmt.Errorf("server: %w", err)
		}
	}
}

func (s *session) noteParameter(body []byte) {
	name, rest, _ := wire.CString(body)
	value, _, _ := wire.CString(rest)
	if string(name) == "in_hot_standby" {
		s.backend.standby = string(value) == "on"
	}
}
