package main

import (
	"crypto/x509"
	"encoding/pem"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestReadmeMakesCertificates runs the README's lines of openssl, and holds what they make against what nodes and clients
// want: a chain to the CA for both usages, and the one URI that says who it is.
func TestReadmeMakesCertificates(t *testing.T) {
	var lines []string
	for line := range strings.Lines(readme(t)) {
		if strings.HasPrefix(line, "openssl ") {
			lines = append(lines, line)
		}
	}
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-c", strings.Join(lines, ""))
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	roots := x509.NewCertPool()
	roots.AddCert(readCertificate(t, filepath.Join(dir, "ca.crt")))
	for name, uri := range map[string]string{"n1": "lychgate://node/n1", "worker": "lychgate://identity/acme:worker"} {
		cert := readCertificate(t, filepath.Join(dir, name+".crt"))
		if len(cert.URIs) != 1 || cert.URIs[0].String() != uri || cert.IsCA {
			t.Errorf("%s: URIs %v, CA %v", name, cert.URIs, cert.IsCA)
		}
		for _, usage := range []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth} {
			if _, err := cert.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}}); err != nil {
				t.Errorf("%s: usage %d: %v", name, usage, err)
			}
		}
	}
}

func readCertificate(t *testing.T, path string) *x509.Certificate {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		t.Fatalf("%s has no PEM in it", path)
	}
	cert, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return cert
}
