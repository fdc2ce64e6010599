package client

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestDialSaysThatAURLIsNoAddress(t *testing.T) {
	_, err := Dial(Config{Addrs: []string{"http://127.0.0.1:7600"}})
	if err == nil || !strings.Contains(err.Error(), `"http://127.0.0.1:7600" is a URL; want host:port`) {
		t.Errorf("got %v", err)
	}
}

func TestTokenFileRefusesWhatIsNoToken(t *testing.T) {
	path := filepath.Join(t.TempDir(), "op.crt")
	if err := os.WriteFile(path, []byte("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // nothing of it is kept
		if token, err := TokenFile(path)(t.Context()); err == nil || !strings.Contains(err.Error(), "op.crt is not a token file") {
			t.Errorf("got %q, %v", token, err)
		}
	}
}
