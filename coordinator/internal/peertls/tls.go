package peertls

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net"
)

// DialConfig is for a connection to a node, at whatever address: the certificate at the other end has to name the node;
// empty: some node of the cluster.
func (k *Keys) DialConfig(node string) *tls.Config {
	meant := Name{Node, node}
	return &tls.Config{
		MinVersion:           tls.VersionTLS13,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &k.current.Load().cert, nil },
		// The library would compare the address. What has to fit is the node, and VerifyConnection sees to that.
		InsecureSkipVerify: true,
		VerifyConnection: func(state tls.ConnectionState) error {
			err := k.nodeIs(state, x509.ExtKeyUsageServerAuth, func(name Name) error {
				if anyNode := node == "" && name.Kind == Node; !anyNode && name != meant {
					return fmt.Errorf("the certificate names %s, and %s was meant", name, meant)
				}
				return nil
			})
			if err != nil {
				k.refuse("dial", "certificate", "a node is not who it should be", "node", node, "error", err)
			}
			return err
		},
	}
}

// PeerConfig is for the port on which nodes speak to one another: only members of the cluster get in.
func (k *Keys) PeerConfig(member func(node string) bool) *tls.Config {
	return k.serverConfig("peer", tls.RequireAnyClientCert, func(state tls.ConnectionState) error {
		return k.nodeIs(state, x509.ExtKeyUsageClientAuth, func(name Name) error {
			switch {
			case name.Kind != Node:
				return fmt.Errorf("the certificate names %s, which is no node", name)
			case !member(name.ID):
				return fmt.Errorf("the certificate names %s, which is no member of this cluster", name)
			}
			return nil
		})
	})
}

// ClientConfig is for a port that clients and other nodes use. A certificate is refused that names nobody or cannot be
// believed; without one a caller is let in, unless one is required.
func (k *Keys) ClientConfig(port string) *tls.Config {
	auth := tls.RequestClientCert
	if k.config.RequireClientCert {
		auth = tls.RequireAnyClientCert
	}
	return k.serverConfig(port, auth, func(state tls.ConnectionState) error {
		_, _, err := k.Who(state)
		return err
	})
}

func (k *Keys) serverConfig(port string, auth tls.ClientAuthType, verify func(tls.ConnectionState) error) *tls.Config {
	config := &tls.Config{
		MinVersion:     tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &k.current.Load().cert, nil },
		ClientAuth:     auth, // whom to believe is for VerifyConnection, which is asked of resumed sessions too
	}
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		from := hello.Conn.RemoteAddr().String()
		one := config.Clone()
		one.GetConfigForClient = nil
		one.VerifyConnection = func(state tls.ConnectionState) error {
			err := verify(state)
			if err == nil {
				return nil
			}
			k.refuse(port, "certificate", "certificate refused", "port", port, "from", from, "error", err)
			return &refusedError{err}
		}
		return one, nil
	}
	return config
}

// refuse counts and logs a connection that was not let in.
func (k *Keys) refuse(port, reason, message string, args ...any) {
	k.config.Refused(port, reason)
	k.refused.Warn(message, args...)
}

// refusedError ends a handshake whose refusal has been counted and logged.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }
func (e *refusedError) Unwrap() error { return e.err }

// failed counts a handshake that came to nothing for another reason: no TLS at all, no certificate, or too slow.
func (k *Keys) failed(port string, from net.Addr, err error) {
	if _, counted := errors.AsType[*refusedError](err); counted {
		return
	}
	k.config.Refused(port, "handshake")
	k.config.Logger.Debug("TLS handshake", "port", port, "from", from.String(), "error", err)
}
