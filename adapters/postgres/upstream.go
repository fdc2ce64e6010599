package postgres

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
)

// TLSMode says how the leg to the server is encrypted, in libpq's words. There is no "allow": it would try plaintext
// first and say nothing.
type TLSMode string

// The modes. A server that speaks TLS and fails at it is an error in every one of them but TLSDisable.
const (
	TLSDisable    TLSMode = "disable"     // plaintext
	TLSPrefer     TLSMode = "prefer"      // TLS where the server offers it, whoever the server is
	TLSRequire    TLSMode = "require"     // TLS, whoever the server is; with a CA as verify-ca
	TLSVerifyCA   TLSMode = "verify-ca"   // TLS with a server that the CA has signed
	TLSVerifyFull TLSMode = "verify-full" // and whose certificate has its name
)

// TLSModes are all of them.
func TLSModes() []string {
	return []string{string(TLSDisable), string(TLSPrefer), string(TLSRequire), string(TLSVerifyCA), string(TLSVerifyFull)}
}

// UpstreamTLS is how the server is reached, by sessions and by cancel requests alike. The zero value is plaintext.
type UpstreamTLS struct {
	Mode         TLSMode           // empty: TLSDisable
	CA           *x509.CertPool    // nil: those that the system trusts for TLSVerifyFull; TLSVerifyCA needs one
	Certificates []tls.Certificate // the proxy's own, for a server that asks for one
	ServerName   string            // that the certificate must have; empty: the host of Upstream
	Direct       bool              // begin with TLS at once (ALPN), which PostgreSQL 17 and later understand
}

// config is what the handshake is told; nil for plaintext.
func (u UpstreamTLS) config(network, address string) (*tls.Config, error) {
	if u.Mode == "" || u.Mode == TLSDisable {
		return nil, nil
	}
	if !slices.Contains(TLSModes(), string(u.Mode)) {
		return nil, fmt.Errorf("mode is %q; known are %s", u.Mode, strings.Join(TLSModes(), ", "))
	}
	if network == "unix" {
		return nil, fmt.Errorf("mode is %s, but there is no TLS over the socket %s", u.Mode, address)
	}
	if u.Direct && u.Mode == TLSPrefer {
		return nil, errors.New("direct needs a mode that requires TLS: there is no plaintext behind it")
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	config := &tls.Config{
		MinVersion: tls.VersionTLS12, NextProtos: []string{alpn}, RootCAs: u.CA, Certificates: u.Certificates, ServerName: host,
	}
	if u.ServerName != "" {
		config.ServerName = u.ServerName
	}
	switch {
	case u.Mode == TLSVerifyFull:
		return config, nil
	case u.Mode == TLSVerifyCA && u.CA == nil:
		return nil, errors.New("mode verify-ca needs a CA: of those that the system trusts anybody can have a certificate")
	}
	config.InsecureSkipVerify = true // the name is not looked at; the chain is, below
	if u.CA != nil && u.Mode != TLSPrefer {
		config.VerifyConnection = func(state tls.ConnectionState) error { return verifyChain(state, u.CA) }
	}
	return config, nil
}

// verifyChain checks everything about a certificate but its name.
func verifyChain(state tls.ConnectionState, ca *x509.CertPool) error {
	options := x509.VerifyOptions{Roots: ca, Intermediates: x509.NewCertPool()}
	for _, c := range state.PeerCertificates[1:] {
		options.Intermediates.AddCert(c)
	}
	_, err := state.PeerCertificates[0].Verify(options)
	return err
}

// tlsError is why the leg to the server is not encrypted as it should be. The client is told: it is not its doing.
type tlsError struct {
	detail string
	err    error // may be nil
}

func (e *tlsError) Error() string {
	if e.err != nil {
		return e.detail + ": " + e.err.Error()
	}
	return e.detail
}

func (e *tlsError) Unwrap() error { return e.err }

// dialHost opens a connection to one host, encrypted as configured, within DialTimeout.
func (s *Server) dialHost(ctx context.Context, u upstream) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.DialTimeout)
	defer cancel()
	d := net.Dialer{KeepAliveConfig: keepAlive}
	conn, err := d.DialContext(ctx, u.network, u.address)
	if err != nil || u.tls == nil {
		return conn, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // a closed one needs no waking
	secured, err := s.secure(ctx, conn, u.tls)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return secured, nil
}

// secure asks the server for TLS and shakes hands. It reads not one byte of plaintext behind the server's answer.
func (s *Server) secure(ctx context.Context, conn net.Conn, handshake *tls.Config) (net.Conn, error) {
	config := s.config.UpstreamTLS
	if !config.Direct {
		answer, err := askForTLS(conn)
		switch {
		case err != nil:
			return nil, &tlsError{"the server gave no answer to the request for TLS", err}
		case answer == 'N' && config.Mode == TLSPrefer:
			return conn, nil
		case answer == 'N':
			return nil, &tlsError{detail: "the server does not offer TLS, which upstream_tls.mode " + string(config.Mode) + " requires"}
		case answer != 'S':
			return nil, &tlsError{detail: fmt.Sprintf("the server answered the request for TLS with %q", answer)}
		}
	}
	secured := tls.Client(conn, handshake)
	if err := secured.HandshakeContext(ctx); err != nil {
		if config.Direct && hungUp(err) {
			return nil, &tlsError{noDirectTLS, err}
		}
		return nil, &tlsError{handshakeProblem(err), err}
	}
	if config.Direct && secured.ConnectionState().NegotiatedProtocol != alpn {
		return nil, &tlsError{detail: noDirectTLS}
	}
	return secured, nil
}

const noDirectTLS = "the server does not speak direct TLS (ALPN), which PostgreSQL 17 brought: leave out upstream_tls.direct"

// hungUp reports whether the peer has ended the connection in place of an answer.
func hungUp(err error) bool { return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) }

func askForTLS(conn net.Conn) (byte, error) {
	if _, err := conn.Write(wire.Request(wire.SSLCode, nil)); err != nil {
		return 0, err
	}
	var answer [1]byte
	_, err := io.ReadFull(conn, answer[:])
	return answer[0], err
}

// handshakeProblem names what went wrong in words of the configuration.
func handshakeProblem(err error) string {
	var (
		authority x509.UnknownAuthorityError
		name      x509.HostnameError
		invalid   x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &authority):
		return "the server's certificate is not signed by upstream_tls.ca"
	case errors.As(err, &name):
		return "the server's certificate has another name than upstream_tls.server_name or the host of upstream"
	case errors.As(err, &invalid):
		return "the server's certificate is not valid"
	}
	return "the TLS handshake with the server failed"
}
