package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/lychgate/lychgate/proxy/gate"
)

// Upstreams knows on which of several hosts the server is now. Sessions stand where it says, and are ended when that changes: a
// session is bound by the server that the side connections go to, and there is one such server at a time.
type Upstreams interface {
	// Current is one of the hosts, and its tenure, which is done, with a cause that names the next, when that host is no longer
	// the server. It waits until it knows, or ctx is done. Its error names each host with its reason.
	Current(ctx context.Context) (host string, tenure context.Context, err error)
	// Doubt has the hosts looked at again, since a connect did not work or a server says that it has become another. It does not
	// block; the channel is closed when that is done.
	Doubt() (looked <-chan struct{})
}

// MaxUpstreams is how many hosts Config.Upstream may name.
const MaxUpstreams = 16

// ParseUpstreams takes a list of hosts, each as ParseUpstream takes it, apart at its commas. None may be in it twice.
func ParseUpstreams(s string) ([]string, error) {
	var hosts []string
	for host := range strings.SplitSeq(s, ",") {
		host = strings.TrimSpace(host)
		if _, _, err := ParseUpstream(host); err != nil {
			return nil, err
		}
		if slices.Contains(hosts, host) {
			return nil, fmt.Errorf("%s is named twice", host)
		}
		hosts = append(hosts, host)
	}
	if len(hosts) > MaxUpstreams {
		return nil, fmt.Errorf("names %d hosts; the most are %d", len(hosts), MaxUpstreams)
	}
	return hosts, nil
}

// upstream is one host.
type upstream struct {
	host             string // as configured
	network, address string
	tls              *tls.Config // nil: plaintext
}

// parseUpstreams makes a TLS configuration for each host, since each has a name of its own to show.
func parseUpstreams(config Config) ([]upstream, error) {
	hosts, err := ParseUpstreams(config.Upstream)
	if err != nil {
		return nil, fmt.Errorf("postgres: upstream: %w", err)
	}
	if len(hosts) > 1 && config.Upstreams == nil {
		return nil, errors.New("postgres: upstream: several hosts, and nobody to say which is the server")
	}
	var all []upstream
	for _, host := range hosts {
		u := upstream{host: host}
		u.network, u.address, _ = ParseUpstream(host) // ParseUpstreams has looked
		if u.tls, err = config.UpstreamTLS.config(u.network, u.address); err != nil {
			return nil, fmt.Errorf("postgres: upstream_tls: %w", err)
		}
		all = append(all, u)
	}
	return all, nil
}

// maxDials is how often a connect is tried: a second time when the server has moved meanwhile.
const maxDials = 2

// dial opens a connection to where the server is, encrypted as configured, within DialTimeout for each try. The tenure is
// that of the host: see Upstreams.
func (s *Server) dial(ctx context.Context) (net.Conn, upstream, context.Context, error) {
	for try := 1; ; try++ {
		u, tenure, err := s.current(ctx)
		if err != nil {
			return nil, u, nil, err
		}
		conn, err := s.dialHost(ctx, u)
		if err == nil {
			return conn, u, tenure, nil
		}
		if s.config.Upstreams == nil {
			return nil, u, nil, err
		}
		if !s.moved(ctx, tenure) || try == maxDials {
			return nil, u, nil, fmt.Errorf("%s: %w", u.host, err)
		}
	}
}

// current is the host that is the server now.
func (s *Server) current(ctx context.Context) (upstream, context.Context, error) {
	if s.config.Upstreams == nil {
		return s.upstreams[0], context.Background(), nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.config.DialTimeout)
	defer cancel()
	host, tenure, err := s.config.Upstreams.Current(ctx)
	if err != nil {
		return upstream{}, nil, &noServerError{err}
	}
	i := slices.IndexFunc(s.upstreams, func(u upstream) bool { return u.host == host })
	if i < 0 {
		return upstream{}, nil, &noServerError{fmt.Errorf("%s is not among the hosts of upstream", host)}
	}
	return s.upstreams[i], tenure, nil
}

// moved has the hosts looked at again after a connect has failed, and reports whether the server is elsewhere now.
func (s *Server) moved(ctx context.Context, tenure context.Context) bool {
	limit := time.NewTimer(s.config.DialTimeout)
	defer limit.Stop()
	select {
	case <-s.config.Upstreams.Doubt():
	case <-tenure.Done():
	case <-limit.C:
	case <-ctx.Done():
	}
	return tenure.Err() != nil
}

// noServerError is why none of the hosts is the server.
type noServerError struct{ err error }

func (e *noServerError) Error() string { return "none of the hosts is the server: " + e.err.Error() }
func (e *noServerError) Unwrap() error { return e.err }

// followTenure ends the session when its host is no longer the server.
func (s *session) followTenure(tenure context.Context) {
	s.tenure = tenure
	if tenure.Done() == nil {
		s.unfollow = func() bool { return true }
		return
	}
	s.unfollow = context.AfterFunc(tenure, func() {
		s.end(s.movedRefusal())
		s.mu.Lock()
		early := s.relay == nil
		s.mu.Unlock()
		if early {
			s.interrupt(s.raw)
		}
	})
}

// movedRefusal says where the server is instead.
func (s *session) movedRefusal() *gate.Refusal {
	cause := context.Cause(s.tenure)
	return &gate.Refusal{
		Reason: gate.NotReady, Err: cause, Detail: "The session is on a server that no longer decides: " + cause.Error() + ".", Hint: "Connect again.",
	}
}
