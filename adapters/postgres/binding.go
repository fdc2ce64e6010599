package postgres

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/lychgate/lychgate/adapters/postgres/internal/scram"
	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
)

// withoutBinding takes channel binding out of what the server offers, where the client would bind to another certificate
// than the server has: that could only fail.
func (s *session) withoutBinding(message []byte) []byte {
	body := message[5:]
	if len(body) < 4 || binary.BigEndian.Uint32(body) != authSASL || s.sameEndPoint() {
		return message
	}
	offered := strings.Split(string(body[4:]), "\x00")
	kept := slices.DeleteFunc(slices.Clone(offered), func(m string) bool { return m == scram.MechanismPlus })
	s.stripped = len(kept) < len(offered)
	return wire.AppendMessage(nil, 'R', body[:4], []byte(strings.Join(kept, "\x00")))
}

// sameEndPoint reports whether both legs are TLS with one certificate.
func (s *session) sameEndPoint() bool {
	leg, ok := s.upstream.(*tls.Conn)
	return ok && s.endPoint != nil && bytes.Equal(s.endPoint, scram.EndPoint(leg.ConnectionState().PeerCertificates[0]))
}

// checkBinding refuses a client that would tell the server that it could have bound the channel: the server would take
// what the proxy has left out for an attack.
func (s *session) checkBinding(answer []byte) error {
	if !s.stripped {
		return nil
	}
	s.stripped = false
	_, first, ok := initialResponse(answer)
	if !ok || !strings.HasPrefix(first, "y,") {
		return nil
	}
	f := fail(codeNotAuthorized, "SCRAM authentication cannot be relayed between two TLS connections of different certificates")
	f.notice.Detail = "The client and the server both support channel binding, and would bind to different certificates."
	f.notice.Hint = "Configure auth scram for this listener, or let the client connect with channel_binding=disable."
	s.log.Warn("SCRAM cannot be relayed between two TLS legs: configure auth scram", "user", s.startup.Value("user"))
	return f
}
