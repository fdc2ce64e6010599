package proxy

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"strings"

	"github.com/lychgate/lychgate/coordinator/client"
)

// client is how the proxy speaks to coordinators; nil: as the standard library does.
func (t CoordinatorTLS) client() (*http.Client, error) {
	config, err := client.Files{CA: t.CA, Cert: t.Cert, Key: t.Key}.TLS()
	if err != nil {
		return nil, fmt.Errorf("coordinator_tls: %w", err)
	}
	if config == nil {
		return nil, nil //nolint:nilnil // there is none of its own
	}
	transport, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		return &http.Client{Transport: &http.Transport{TLSClientConfig: config}}, nil
	}
	own := transport.Clone()
	own.TLSClientConfig = config
	return &http.Client{Transport: own}, nil
}

// grpc is how the proxy speaks to coordinators over gRPC, whose HTTP addresses tell whether they speak TLS; nil: plain
// text.
func (t CoordinatorTLS) grpc(addresses []string) (*tls.Config, error) {
	config, err := client.Files{CA: t.CA, Cert: t.Cert, Key: t.Key}.TLS()
	if config == nil && err == nil && len(addresses) > 0 && strings.HasPrefix(addresses[0], "https://") {
		config = &tls.Config{MinVersion: tls.VersionTLS13}
	}
	return config, err
}
