package coordinator

import (
	"crypto/tls"
	"fmt"
	"net"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lychgate/lychgate/coordinator/internal/access"
	"github.com/lychgate/lychgate/coordinator/internal/api"
	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/peertls"
)

// secured is what says who is who on a node's ports.
type secured struct {
	api.Security
	parts []part // read changed files
}

// openSecurity reads certificates and tokens, and says in the log what is not asked for.
func (n *Node) openSecurity() (*secured, error) {
	s := &secured{}
	if err := s.openTLS(n); err != nil {
		return nil, err
	}
	if err := s.openAccess(n); err != nil {
		return nil, err
	}
	n.announceSecurity()
	n.security.Store(s)
	return s, nil
}

func (s *secured) openTLS(n *Node) (err error) {
	c := n.config.TLS
	if c == nil {
		return nil
	}
	refused := prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "lychgate", Name: "tls_refused_total", Help: "Connections that were not let in, or not made, for their certificate or handshake.",
	}, []string{"port", "reason"})
	s.Keys, err = peertls.New(peertls.Config{
		Files: peertls.Files{Cert: c.Cert, Key: c.Key, CA: c.CA, ClientCA: c.ClientCA},
		Self:  peertls.Name{Kind: n.kind, ID: n.config.Node}, RequireClientCert: c.RequireClientCert,
		Warn: c.ExpiryWarning, Logger: n.deps.Logger,
		Refused: func(port, reason string) { refused.WithLabelValues(port, reason).Inc() },
	})
	if err != nil {
		return err
	}
	n.deps.Registry.MustRegister(refused, expiry("own", s.Keys), expiry("ca", s.Keys))
	s.parts = append(s.parts, part{"certificates", s.Keys.Run})
	return nil
}

func expiry(of string, keys *peertls.Keys) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Namespace: "lychgate", Name: "certificate_expiry_timestamp_seconds", Help: "When a TLS certificate expires, in Unix time.",
		ConstLabels: prometheus.Labels{"certificate": of},
	}, func() float64 {
		own, ca := keys.Expires()
		if of == "ca" {
			return float64(ca.Unix())
		}
		return float64(own.Unix())
	})
}

func (s *secured) openAccess(n *Node) (err error) {
	c := n.config.Access
	if c == nil {
		return nil
	}
	if s.Rules, err = access.New(c.rules()); err != nil {
		return err
	}
	if c.Tokens == "" {
		return nil
	}
	if s.Tokens, err = access.NewTokens(c.Tokens, n.deps.Logger); err != nil {
		return fmt.Errorf("access: %w", err)
	}
	s.parts = append(s.parts, part{"tokens", s.Tokens.Run})
	return nil
}

// announceSecurity says plainly what this node takes on trust.
func (n *Node) announceSecurity() {
	log := n.deps.Logger.Info
	if len(n.config.openAddresses()) > 0 {
		log = n.deps.Logger.Warn
	}
	switch {
	case n.config.TLS == nil && n.config.Access == nil:
		log("no TLS and no access rules: peers and clients are not authenticated, and whoever reaches this node may do everything")
	case n.config.TLS == nil:
		log("no TLS: peers are not authenticated, and whoever says that it is a node may claim any identity")
	case n.config.Access == nil:
		n.deps.Logger.Warn("no access rules: whoever reaches this node may do everything")
	}
	for _, doubt := range n.config.Warnings() {
		n.deps.Logger.Warn("configuration", "doubt", doubt)
	}
}

// securePort has the peer port let in only members, and know whom it dials.
func (s *secured) securePort(config *group.PortConfig, member func(id string) bool) {
	if s.Keys == nil {
		return
	}
	config.Dial = s.Keys.DialPeer
	config.Secure = func(l net.Listener) net.Listener { return s.Keys.Listen(l, member) }
}

// overTLS is a listener of the HTTP port.
func (s *secured) overTLS(l net.Listener) net.Listener {
	if s.Keys == nil {
		return l
	}
	config := s.Keys.ClientConfig("http")
	config.NextProtos = []string{"http/1.1"}
	return tls.NewListener(l, config)
}
