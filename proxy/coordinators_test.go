package proxy

import (
	"crypto/tls"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lychgate/lychgate/coordinator/tlstest"
)

// The keys of tickets come from a coordinator that the proxy knows by its CA, and from no other.
func TestCoordinatorsOverTLS(t *testing.T) {
	ca, foreign, dir := tlstest.NewCA(t), tlstest.NewCA(t), t.TempDir()
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	server.TLS = &tls.Config{
		Certificates: []tls.Certificate{ca.Issue(nil, "lychgate://node/n1").Certificate(t)},
		ClientAuth:   tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool(),
	}
	server.StartTLS()
	defer server.Close()
	cert, key := ca.Issue(nil, "lychgate://identity/proxy").Write(t, dir, "proxy")
	good := CoordinatorTLS{CA: tlstest.Write(t, dir, "ca.crt", ca.PEM()), Cert: cert, Key: key}
	other := good
	other.CA = tlstest.Write(t, dir, "foreign.crt", foreign.PEM())
	for name, test := range map[string]struct {
		files CoordinatorTLS
		works bool
	}{
		"its CA":         {good, true},
		"another CA":     {other, false},
		"no certificate": {CoordinatorTLS{CA: good.CA}, false},
	} {
		web, err := test.files.client()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		response, err := web.Get(server.URL)
		if err == nil {
			_ = response.Body.Close()
		}
		if (err == nil) != test.works {
			t.Errorf("%s: %v", name, err)
		}
	}
	if web, err := (CoordinatorTLS{}).client(); web != nil || err != nil {
		t.Errorf("no files: %v %v", web, err)
	}
	c := validConfig()
	c.Coordinators, c.CoordinatorTLS = []string{"https://127.0.0.1:7601"}, CoordinatorTLS{CA: filepath.Join(dir, "none")}
	if _, err := New(c, Deps{}); err == nil || !strings.Contains(err.Error(), "coordinator_tls: ") {
		t.Errorf("a missing file: %v", err)
	}
}
