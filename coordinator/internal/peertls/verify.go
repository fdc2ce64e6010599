package peertls

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"time"
)

var bothUsages = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}

// verifyChain checks a chain as it came, leaf first.
func verifyChain(chain [][]byte, roots *x509.CertPool, usage x509.ExtKeyUsage, now time.Time) error {
	certs := make([]*x509.Certificate, len(chain))
	for i, der := range chain {
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		certs[i] = cert
	}
	return verifyCerts(certs, roots, usage, now)
}

func verifyCerts(certs []*x509.Certificate, roots *x509.CertPool, usage x509.ExtKeyUsage, now time.Time) error {
	between := x509.NewCertPool()
	for _, cert := range certs[1:] {
		between.AddCert(cert)
	}
	_, err := certs[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{usage},
	})
	return err
}

// Who is whom the other end of an accepted connection has proved to be, now. ok is false if it showed no certificate.
func (k *Keys) Who(state tls.ConnectionState) (name Name, ok bool, err error) {
	if len(state.PeerCertificates) == 0 {
		return Name{}, false, nil
	}
	m, leaf := k.current.Load(), state.PeerCertificates[0]
	if name, err = nameOf(leaf); err != nil {
		return Name{}, false, err
	}
	roots := m.clients
	if name.Vouches() {
		roots = m.nodes
	}
	if err := verifyCerts(state.PeerCertificates, roots, x509.ExtKeyUsageClientAuth, k.config.Now()); err != nil {
		return Name{}, false, fmt.Errorf("the certificate of %s: %w", name, err)
	}
	return name, true, nil
}

// nodeIs checks that the other end is a certain node, whichever side dialled.
func (k *Keys) nodeIs(state tls.ConnectionState, usage x509.ExtKeyUsage, is func(Name) error) error {
	if len(state.PeerCertificates) == 0 {
		return errNoCertificate
	}
	name, err := nameOf(state.PeerCertificates[0])
	if err != nil {
		return err
	}
	if err := verifyCerts(state.PeerCertificates, k.current.Load().nodes, usage, k.config.Now()); err != nil {
		return fmt.Errorf("the certificate of %s: %w", name, err)
	}
	return is(name)
}
