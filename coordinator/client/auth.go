package client

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"
)

// ErrUntrusted is in the error of a call to a coordinator whose certificate is not believed here, or which does not
// believe the one that was shown. A call ends with it once every address has failed so.
var ErrUntrusted = errors.New("TLS handshake failed")

// Token gives the bearer token that says who this client is; it is asked for each session and each call by itself, so a
// token may be replaced while the client runs. A session keeps the identity that it began with.
type Token func(ctx context.Context) (string, error)

// StaticToken is a Token that stays the same.
func StaticToken(token string) Token {
	return func(context.Context) (string, error) { return token, nil }
}

// tokenFileFor is how long what was read of a token file is used.
const tokenFileFor = 5 * time.Second

// TokenFile is a Token that stands in a file, spaces and line feeds around it left out. The file is read anew a few
// seconds after it was replaced.
func TokenFile(path string) Token {
	var mu sync.Mutex
	var token string
	var read time.Time
	return func(context.Context) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if token != "" && time.Since(read) < tokenFileFor {
			return token, nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("token file: %w", err)
		}
		if token = strings.TrimSpace(string(text)); token == "" {
			return "", fmt.Errorf("token file %s is empty", path)
		}
		if strings.ContainsFunc(token, unicode.IsSpace) {
			token = ""
			return "", fmt.Errorf("%s is not a token file: it has more in it than one word", path)
		}
		read = time.Now()
		return token, nil
	}
}

// Files are the PEM files of a client's TLS.
type Files struct {
	CA        string // that the coordinators have their certificates from; empty: the system's
	Cert, Key string // of the client; both or none
}

// TLS makes a configuration of files. The client's certificate is read anew for each connection, so that it can be
// replaced while the client runs. Without any file it is nil: plain text.
func (f Files) TLS() (*tls.Config, error) {
	if f == (Files{}) {
		return nil, nil //nolint:nilnil // there is none
	}
	config := &tls.Config{MinVersion: tls.VersionTLS13}
	if f.CA != "" {
		text, err := os.ReadFile(f.CA)
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%s has no certificate in it", f.CA)
		}
	}
	switch {
	case (f.Cert == "") != (f.Key == ""):
		return nil, errors.New("a certificate and its key belong together")
	case f.Cert == "":
		return config, nil
	}
	if _, err := tls.LoadX509KeyPair(f.Cert, f.Key); err != nil {
		return nil, fmt.Errorf("certificate %s and key %s: %w", f.Cert, f.Key, err)
	}
	config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
		cert, err := tls.LoadX509KeyPair(f.Cert, f.Key)
		return &cert, err
	}
	return config, nil
}

// bearer puts the token into each call.
type bearer struct {
	token  Token
	secure bool
}

// GetRequestMetadata implements credentials.PerRPCCredentials.
func (b bearer) GetRequestMetadata(ctx context.Context, uri ...string) (map[string]string, error) {
	if !b.secure {
		for _, u := range uri {
			if parsed, err := url.Parse(u); err != nil || !loopback(parsed.Host) {
				return nil, status.Error(codes.Unauthenticated, "the token would go in plain text: set TLS")
			}
		}
	}
	token, err := b.token(ctx)
	if err != nil {
		return nil, status.Error(codes.Unauthenticated, err.Error())
	}
	return map[string]string{"authorization": "Bearer " + token}, nil
}

// RequireTransportSecurity implements credentials.PerRPCCredentials.
func (b bearer) RequireTransportSecurity() bool { return b.secure }

var _ credentials.PerRPCCredentials = bearer{}

// checkToken refuses to send a token in plain text to another machine.
func (c Config) checkToken() error {
	if c.Token == nil || c.TLS != nil {
		return nil
	}
	for _, addr := range c.Addrs {
		if !loopback(addr) {
			return fmt.Errorf("client: the token would go in plain text to %s: set TLS", addr)
		}
	}
	return nil
}

func loopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		host = addr
	}
	ip := net.ParseIP(host)
	return host == "localhost" || (ip != nil && ip.IsLoopback())
}

// distrust notes that an address failed in the handshake, and reports whether every address has.
func (n *nodes) distrust(addr string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.distrusted == nil {
		n.distrusted = make(map[string]struct{})
	}
	n.distrusted[addr] = struct{}{}
	for _, a := range n.addrs {
		if _, failed := n.distrusted[a]; !failed {
			return false
		}
	}
	return true
}

// trust notes that an address answered after all.
func (n *nodes) trust(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.distrusted, addr)
}

// isUntrusted reports whether a status tells of certificates, and not of a port that is shut.
func isUntrusted(st *status.Status) bool {
	return strings.Contains(st.Message(), "authentication handshake failed: ") && // google.golang.org/grpc
		(strings.Contains(st.Message(), "tls: ") || strings.Contains(st.Message(), "x509: ")) || // crypto/tls
		strings.Contains(st.Message(), "remote error: tls: ")
}
