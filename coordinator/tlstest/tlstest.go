// Package tlstest makes certificates for tests. Its keys live in memory, or in files of the test's own folder.
package tlstest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// CA signs certificates.
type CA struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA makes one that is valid for a day.
func NewCA(t testing.TB) *CA {
	t.Helper()
	key := newKey(t)
	template := &x509.Certificate{
		SerialNumber: serial(t), Subject: pkix.Name{CommonName: "test CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check(t, err)
	cert, err := x509.ParseCertificate(der)
	check(t, err)
	return &CA{t, cert, key}
}

// PEM is the CA's certificate.
func (ca *CA) PEM() []byte { return pemOf("CERTIFICATE", ca.cert.Raw) }

// Pool holds the CA's certificate only.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// Pair is a certificate and its key in PEM.
type Pair struct{ Cert, Key []byte }

// Issue makes a certificate for loopback that names the URIs; change may alter it before it is signed.
func (ca *CA) Issue(change func(*x509.Certificate), uris ...string) Pair {
	ca.t.Helper()
	key := newKey(ca.t)
	template := &x509.Certificate{
		SerialNumber: serial(ca.t),
		NotBefore:    time.Now().Add(-time.Hour), NotAfter: time.Now().Add(12 * time.Hour),
		DNSNames: []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	for _, text := range uris {
		uri, err := url.Parse(text)
		check(ca.t, err)
		template.URIs = append(template.URIs, uri)
	}
	if change != nil {
		change(template)
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, key.Public(), ca.key)
	check(ca.t, err)
	private, err := x509.MarshalPKCS8PrivateKey(key)
	check(ca.t, err)
	return Pair{Cert: pemOf("CERTIFICATE", der), Key: pemOf("PRIVATE KEY", private)}
}

// Certificate is the pair as package tls has it.
func (p Pair) Certificate(t testing.TB) tls.Certificate {
	t.Helper()
	cert, err := tls.X509KeyPair(p.Cert, p.Key)
	check(t, err)
	return cert
}

// Write puts the pair into dir as NAME.crt and NAME.key.
func (p Pair) Write(t testing.TB, dir, name string) (cert, key string) {
	t.Helper()
	return Write(t, dir, name+".crt", p.Cert), Write(t, dir, name+".key", p.Key)
}

// Write puts a file into dir in one step, and returns its path.
func Write(t testing.TB, dir, name string, text []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	check(t, os.WriteFile(path+".new", text, 0o600))
	check(t, os.Rename(path+".new", path))
	return path
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	return key
}

func serial(t testing.TB) *big.Int {
	n, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	check(t, err)
	return n
}

func pemOf(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
