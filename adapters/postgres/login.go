package postgres

import (
	"bytes"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/lychgate/lychgate/adapters/postgres/internal/scram"
	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
)

// login is the proxy's own log-in to the server with the key of a client that it has verified.
type login struct {
	verifier  scram.Verifier
	clientKey []byte
	client    *scram.Client // nil until the server asks
	asked     bool
	believed  bool // the server has proved that it has the verifier
}

// verifyClient has the client prove its password against the proxy's own copy of its verifier, and keeps its key for
// the server. An unknown user has the same conversation and fails at its end.
func (s *session) verifyClient() error {
	user := s.startup.Value("user")
	verifier, known, stale := s.server.config.Verifiers.lookup(user)
	if stale != nil {
		s.log.Warn("auth.file has changed and is not taken", "cause", stale.Error())
	}
	mechanisms := []string{scram.Mechanism}
	server := scram.Server{Verifier: verifier, Nonce: nonce()}
	if s.endPoint != nil {
		server.Binding = s.endPoint
		mechanisms = []string{scram.MechanismPlus, scram.Mechanism}
	}
	if err := s.tellClient(authSASL, []byte(strings.Join(mechanisms, "\x00")+"\x00\x00")); err != nil {
		return err
	}
	answer, err := s.readAnswer()
	if err != nil {
		return err
	}
	mechanism, first, ok := initialResponse(answer)
	if !ok || !slices.Contains(mechanisms, mechanism) {
		return fail(codeProtocolViolation, "the client selected no authentication mechanism that was offered")
	}
	server.Plus = mechanism == scram.MechanismPlus
	reply, err := server.First(first)
	if err != nil {
		return s.notVerified(err)
	}
	if err := s.tellClient(authSASLContinue, []byte(reply)); err != nil {
		return err
	}
	if answer, err = s.readAnswer(); err != nil {
		return err
	}
	last, key, err := server.Final(string(answer))
	if err == nil && !known {
		err = scram.ErrWrong
	}
	if err != nil {
		return s.notVerified(err)
	}
	s.login = &login{verifier: verifier, clientKey: key}
	return s.tellClient(authSASLFinal, []byte(last))
}

// notVerified is the same for a wrong password and for a user that there is not.
func (s *session) notVerified(err error) error {
	f := fail(codeWrongPassword, "password authentication failed for user %q", s.startup.Value("user"))
	if !errors.Is(err, scram.ErrWrong) {
		f = fail(codeProtocolViolation, "%s", err.Error())
	}
	f.err = err
	s.log.Info("log-in refused", "user", s.startup.Value("user"), "cause", err.Error())
	return f
}

func (s *session) tellClient(request uint32, data []byte) error {
	if _, err := s.client.Write(wire.AppendMessage(nil, 'R', binary.BigEndian.AppendUint32(nil, request), data)); err != nil {
		return fmt.Errorf("client: %w", err)
	}
	return nil
}

// readAnswer takes one answer of the client's.
func (s *session) readAnswer() ([]byte, error) {
	typ, size, err := s.fromClient.Next()
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	if typ != 'p' || !s.fromClient.Fits() {
		return nil, &wire.FrameError{Reason: fmt.Sprintf("message %q of %d bytes in place of an answer to the authentication request", typ, size)}
	}
	body, err := s.fromClient.Body()
	if err != nil {
		return nil, fmt.Errorf("client: %w", err)
	}
	return bytes.Clone(body), nil
}

// initialResponse takes a SASLInitialResponse apart.
func initialResponse(body []byte) (mechanism, data string, ok bool) {
	name, rest, ok := wire.CString(body)
	if !ok || len(rest) < 4 || int64(binary.BigEndian.Uint32(rest)) != int64(len(rest)-4) {
		return "", "", false
	}
	return string(name), string(rest[4:]), true
}

// answerServer deals with one Authentication message. pass says that it is the client's to see.
func (s *session) answerServer(body []byte) (pass bool, err error) {
	if len(body) < 4 {
		return false, &wire.FrameError{Reason: "authentication request without its code"}
	}
	l := s.login
	switch request, data := binary.BigEndian.Uint32(body), body[4:]; {
	case request == authOK && l.asked && !l.believed:
		return false, s.notLoggedIn(errors.New("the server was content before it had proved who it is"))
	case request == authOK:
		return true, nil
	case request == authSASL && !l.asked:
		return false, s.beginLogin(data)
	case request == authSASLContinue && l.client != nil:
		proof, err := l.client.Final(string(data))
		if err != nil {
			return false, s.notLoggedIn(err)
		}
		return false, s.tellServer([]byte(proof))
	case request == authSASLFinal && l.client != nil:
		if err := l.client.Verify(string(data)); err != nil {
			return false, s.notLoggedIn(err)
		}
		l.believed = true
		return false, nil
	default:
		return false, s.notLoggedIn(fmt.Errorf("the server asks for authentication by %s, which needs the password itself", requestName(request)))
	}
}

// beginLogin answers the server's list of mechanisms, with channel binding where the leg has one.
func (s *session) beginLogin(list []byte) error {
	offered := strings.Split(string(list), "\x00")
	c := &scram.Client{Verifier: s.login.verifier, ClientKey: s.login.clientKey, Nonce: nonce()}
	if leg, ok := s.upstream.(*tls.Conn); ok {
		c.Binding = scram.EndPoint(leg.ConnectionState().PeerCertificates[0])
		c.Plus = c.Binding != nil && slices.Contains(offered, scram.MechanismPlus)
	}
	mechanism := scram.Mechanism
	if c.Plus {
		mechanism = scram.MechanismPlus
	} else if !slices.Contains(offered, mechanism) {
		return s.notLoggedIn(errors.New("the server offers no SCRAM-SHA-256"))
	}
	s.login.client, s.login.asked = c, true
	first := c.First()
	return s.tellServer(append(binary.BigEndian.AppendUint32([]byte(mechanism+"\x00"), uint32(len(first))), first...))
}

func (s *session) tellServer(data []byte) error {
	if _, err := s.upstream.Write(wire.AppendMessage(nil, 'p', data)); err != nil {
		return fmt.Errorf("server: %w", err)
	}
	return nil
}

// notLoggedIn ends a session whose client is right and whose server the proxy cannot log in to.
func (s *session) notLoggedIn(err error) error {
	f := fail(codeNotAuthorized, "the proxy cannot log in to the database server as user %q", s.startup.Value("user"))
	f.notice.Detail = "The password was right, but " + strings.TrimPrefix(err.Error(), "SCRAM: ") + "."
	f.notice.Hint = "With auth scram the server has to ask for scram-sha-256, and auth.file has to hold what pg_authid.rolpassword holds now."
	f.err = err
	s.log.Warn("no log-in to the server", "user", s.startup.Value("user"), "cause", err.Error())
	return f
}

func requestName(request uint32) string {
	switch request {
	case authCleartext:
		return "cleartext password"
	case authMD5:
		return "md5"
	case authGSS, authGSSContinue:
		return "GSSAPI"
	case authSSPI:
		return "SSPI"
	}
	return fmt.Sprintf("request %d", request)
}

func nonce() string {
	var random [18]byte
	_, _ = rand.Read(random[:]) // never fails
	return base64.StdEncoding.EncodeToString(random[:])
}

// endPointOf is the channel binding that a client sees whose handshake has just ended; nil if there is none.
func endPointOf(config *tls.Config) []byte {
	var certificate *tls.Certificate
	switch {
	case len(config.Certificates) == 1:
		certificate = &config.Certificates[0]
	case len(config.Certificates) == 0 && config.GetCertificate != nil:
		// One that was replaced since the handshake fails this log-in, and no other.
		certificate, _ = config.GetCertificate(&tls.ClientHelloInfo{}) // without one there is no binding
	}
	if certificate == nil || len(certificate.Certificate) == 0 {
		return nil
	}
	if certificate.Leaf != nil {
		return scram.EndPoint(certificate.Leaf)
	}
	leaf, err := x509.ParseCertificate(certificate.Certificate[0])
	if err != nil {
		return nil
	}
	return scram.EndPoint(leaf)
}
