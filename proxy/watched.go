package proxy

import (
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/proxy/watch"
)

// validateWatch checks the section and how it relates to the coordinators.
func (c Config) validateWatch(v *validation) {
	for i, a := range c.Watch.Addresses {
		field := fmt.Sprintf("watch.addresses[%d]", i)
		if v.portOutOfRange(field, a) {
			continue
		}
		host, port, err := net.SplitHostPort(a)
		v.check(err == nil && host != "" && isPort(port, 1), field, fmt.Sprintf("is %q, not a gRPC address such as 10.0.0.1:7600", a))
	}
	v.check(c.Watch.FoldEvery >= 0, "watch.fold_every", "is below 0")
	if len(c.Watch.Addresses) == 0 {
		v.check(c.Watch.TokenFile == "", "watch.token_file", "is set, and watch.addresses is empty")
		v.check(c.Watch.Prefix == "", "watch.prefix", "is set, and watch.addresses is empty")
	}
}

// source is where the watch comes from; nil without one.
func (c Config) source(logger *slog.Logger) (*watch.Coordinators, error) {
	if len(c.Watch.Addresses) == 0 {
		return nil, nil //nolint:nilnil // there is none
	}
	config, err := c.CoordinatorTLS.grpc(c.Coordinators)
	if err != nil {
		return nil, fmt.Errorf("coordinator_tls: %w", err)
	}
	s := &watch.Coordinators{Addrs: c.Watch.Addresses, Prefix: c.Watch.Prefix, TLS: config, Logger: logger}
	if c.Watch.TokenFile != "" {
		s.Token = client.TokenFile(c.Watch.TokenFile)
	}
	if err := s.Check(); err != nil {
		return nil, &FieldError{"watch", strings.TrimPrefix(err.Error(), "client: ")}
	}
	return s, nil
}
