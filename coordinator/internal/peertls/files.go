package peertls

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"time"
)

// Files are the PEM files that everything comes from.
type Files struct {
	Cert     string // own certificate, and those between it and the CA
	Key      string
	CA       string // that nodes and gateways have their certificates from
	ClientCA string // that clients have theirs from; empty: CA
}

// material is what one reading of the files gave.
type material struct {
	cert      tls.Certificate
	leaf      *x509.Certificate
	name      Name
	nodes     *x509.CertPool
	clients   *x509.CertPool
	caExpires time.Time // of the first CA certificate that does
	raw       [][]byte  // the files, to see a change by
}

// maxFile bounds what is read of one file.
const maxFile = 1 << 20

func (f Files) paths() []string {
	paths := []string{f.Cert, f.Key, f.CA}
	if f.ClientCA != "" {
		paths = append(paths, f.ClientCA)
	}
	return paths
}

func (f Files) read() (raw [][]byte, err error) {
	for _, path := range f.paths() {
		info, err := os.Stat(path)
		if err != nil {
			return nil, err // names the file and what failed
		}
		if info.Size() > maxFile {
			return nil, fmt.Errorf("%s is longer than %d bytes: it is no certificate or key", path, maxFile)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		raw = append(raw, text)
	}
	return raw, nil
}

// load makes of the files what can be used whole, or nothing.
func (f Files) load() (*material, error) {
	raw, err := f.read()
	if err != nil {
		return nil, err
	}
	m := &material{raw: raw}
	if m.cert, err = tls.X509KeyPair(raw[0], raw[1]); err != nil {
		return nil, fmt.Errorf("certificate %s and key %s: %w", f.Cert, f.Key, err)
	}
	m.leaf = m.cert.Leaf
	if m.name, err = nameOf(m.leaf); err != nil {
		return nil, fmt.Errorf("%s: %w", f.Cert, err)
	}
	if m.nodes, m.caExpires, err = pool(raw[2]); err != nil {
		return nil, fmt.Errorf("%s: %w", f.CA, err)
	}
	m.clients = m.nodes
	if f.ClientCA != "" {
		var expires time.Time
		if m.clients, expires, err = pool(raw[3]); err != nil {
			return nil, fmt.Errorf("%s: %w", f.ClientCA, err)
		}
		m.caExpires = earlier(m.caExpires, expires)
	}
	return m, nil
}

func (m *material) same(raw [][]byte) bool {
	if len(m.raw) != len(raw) {
		return false
	}
	for i := range raw {
		if !bytes.Equal(m.raw[i], raw[i]) {
			return false
		}
	}
	return true
}

// pool reads CA certificates, and says when the first of them expires.
func pool(text []byte) (*x509.CertPool, time.Time, error) {
	certs := x509.NewCertPool()
	var expires time.Time
	for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" {
			continue
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, time.Time{}, err
		}
		certs.AddCert(cert)
		expires = earlier(expires, cert.NotAfter)
	}
	if expires.IsZero() {
		return nil, time.Time{}, errors.New("has no certificate in it")
	}
	return certs, expires, nil
}

// earlier of two instants; a zero one does not count.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || b.Before(a) {
		return b
	}
	return a
}
