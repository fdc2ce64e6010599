package proxy

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/lychgate/lychgate/adapters/postgres"
	"github.com/lychgate/lychgate/fencestore/pgstore"
	"github.com/lychgate/lychgate/proxy/admin"
	"github.com/lychgate/lychgate/proxy/gate"
	"github.com/lychgate/lychgate/proxy/watch"
)

// What the Postgres adapter is, for the log and the metrics.
const (
	adapterPostgres = "postgres"
	strict          = "strict" // refusing and writing are decided by the store itself
)

// raiseTimeout is how long the gate waits for the store, which bounds itself by twice the takeover timeout and a
// little; the rest is the queue for a side connection.
func raiseTimeout(takeover time.Duration) time.Duration { return 2*takeover + 10*time.Second }

// newPostgres puts one listener together. The caller closes its store.
func newPostgres(field string, c Postgres, s *Server) (*listener, error) {
	policy, err := gate.ParsePolicy(c.Policy)
	if err != nil {
		return nil, &FieldError{field + ".policy", err.Error()}
	}
	certificate := new(atomic.Pointer[tls.Certificate])
	tlsConfig, err := c.TLS.load(certificate)
	if err != nil {
		return nil, &FieldError{field + ".tls", err.Error()}
	}
	upstreamTLS, err := c.UpstreamTLS.load()
	if err != nil {
		return nil, &FieldError{field + ".upstream_tls", err.Error()}
	}
	verifiers, err := c.Auth.load()
	if err != nil {
		return nil, &FieldError{field + ".auth.file", err.Error()}
	}
	logger := s.logger.With("listener", c.Listen)
	store, err := pgstore.New(pgstore.Config{
		DSN: c.Store, Conns: c.StoreConns, TakeoverTimeout: c.TakeoverTimeout, Logger: logger,
		Follows: c.chooses(),
	})
	if err != nil {
		return nil, &FieldError{field + ".store", err.Error()}
	}
	hosts, err := newHosts(field, c, store, logger)
	if err != nil {
		store.Close()
		return nil, err
	}
	l := &listener{field: field, config: c, certificate: certificate, address: c.Listen, store: store, hosts: hosts, adapter: adapterPostgres}
	if l.gate, err = newGate(c, policy, store, s); err == nil {
		l.server, err = postgres.New(postgres.Config{
			Name: c.Listen, Limits: s.limits, Places: places{s.metrics, c.Listen},
			Upstream: c.Upstream, Upstreams: hosts.upstreams(), Database: c.Database, Gate: l.gate, TLS: tlsConfig, UpstreamTLS: upstreamTLS, Verifiers: verifiers,
			Replication:    c.Replication == serveReplication,
			ProxyProtocol:  c.ProxyProtocol.load(c.Listen, s.metrics),
			MaxConnections: c.MaxConnections, DrainTimeout: s.config.DrainTimeout, Logger: logger,
			Console: s.consoleFor(),
		})
	}
	if err != nil {
		store.Close()
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	s.metrics.Announce(c.labels(policy))
	l.watched = watch.Listener{
		Name: c.Listen, Adapter: adapterPostgres, Gate: l.gate, Cut: c.OnLeaseEnd == cutBindings, Raises: eagerRaises(c.StoreConns),
	}
	l.announce = func() { announcePostgres(logger, c, l) }
	return l, nil
}

// labels are what the metrics say of the listener.
func (p Postgres) labels(policy gate.Policy) admin.Listener {
	return admin.Listener{
		Adapter: adapterPostgres, Name: p.Listen, Guarantee: strict, Policy: policy, Unsigned: p.AllowUnsigned,
		MaxConnections: p.MaxConnections, Limits: postgres.LimitNames(),
	}
}

func newGate(c Postgres, policy gate.Policy, store *pgstore.Store, s *Server) (*gate.Gate, error) {
	config := gate.Config{
		Listener: c.Listen, Adapter: adapterPostgres, Policy: policy, Verifier: s.keys, Store: store,
		Cluster: s.keys.Cluster, AllowUnsigned: c.AllowUnsigned, RaiseTimeout: raiseTimeout(c.TakeoverTimeout),
		CutEnded: c.OnLeaseEnd == cutBindings, Numbers: &s.numbers, Observer: s.metrics, Logger: s.logger,
	}
	if s.known != nil {
		config.Leases = s.known
	}
	return gate.New(config)
}

// eagerRaises is how many side connections of a store the watch may use at the same time. The rest is left to
// clients who come.
func eagerRaises(conns int) int { return min(4, max(1, conns/2)) }

// announcePostgres says at the start what this listener promises and how it lets clients in.
func announcePostgres(logger *slog.Logger, c Postgres, l *listener) {
	logger.Info("listening", "address", l.addr().String(), "adapter", adapterPostgres, "guarantee", strict,
		"policy", c.Policy, "on_lease_end", c.OnLeaseEnd, "auth", c.Auth.Method, "tls", c.TLS.Cert != "", "proxy_protocol", c.ProxyProtocol.From, "replication", c.Replication, "upstream", c.Upstream,
		"upstream_tls", cmp.Or(c.UpstreamTLS.Mode, string(postgres.TLSDisable)), "database", c.Database)
	if c.AllowUnsigned {
		logger.Warn("unsigned tokens are accepted: whoever can connect can fence everybody; for development only",
			"field", l.field+".allow_unsigned")
	}
}

// certificate reads the certificate; nil without one.
func (t TLS) certificate() (*tls.Certificate, error) {
	if t.Cert == "" {
		return nil, nil //nolint:nilnil // there is none
	}
	certificate, err := tls.LoadX509KeyPair(t.Cert, t.Key)
	return &certificate, err
}

// load makes a configuration that shows whatever certificate is in current, where it puts the one of the files; nil without
// one.
func (t TLS) load(current *atomic.Pointer[tls.Certificate]) (*tls.Config, error) {
	certificate, err := t.certificate()
	if certificate == nil || err != nil {
		return nil, err
	}
	current.Store(certificate)
	config := &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return current.Load(), nil },
	}
	if t.ClientCA == "" {
		return config, nil
	}
	config.ClientAuth = tls.VerifyClientCertIfGiven
	if config.ClientCAs, err = certificatesIn(t.ClientCA); err != nil {
		return nil, err
	}
	return config, nil
}

// certificatesIn reads the CAs of a file.
func certificatesIn(file string) (*x509.CertPool, error) {
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in %s", file)
	}
	return pool, nil
}

// load reads the files.
func (u UpstreamTLS) load() (postgres.UpstreamTLS, error) {
	out := postgres.UpstreamTLS{Mode: postgres.TLSMode(u.Mode), ServerName: u.ServerName, Direct: u.Direct}
	if u.CA != "" {
		var err error
		if out.CA, err = certificatesIn(u.CA); err != nil {
			return out, err
		}
	}
	if u.Cert != "" {
		certificate, err := tls.LoadX509KeyPair(u.Cert, u.Key)
		if err != nil {
			return out, err
		}
		out.Certificates = []tls.Certificate{certificate}
	}
	return out, nil
}

// load reads the verifiers; nil for the method relay.
func (a Auth) load() (*postgres.Verifiers, error) {
	if a.Method != AuthScram {
		return nil, nil
	}
	return postgres.OpenVerifiers(a.File)
}
