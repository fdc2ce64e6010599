package proxy

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"

	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/proxy/admin"
	"github.com/lychgate/lychgate/proxy/gate"
	"github.com/lychgate/lychgate/proxy/watch"
)

// server is what serves the protocol of a listener. Serve blocks, drains when ctx is done, and closes l.
type server interface {
	Serve(ctx context.Context, l net.Listener) error
	SetMaxConnections(n int)
}

// listener is one address in front of one store.
type listener struct {
	field string // of the configuration
	// certificate is what clients are shown; nil in it: there is no TLS.
	certificate *atomic.Pointer[tls.Certificate]
	address     string
	adapter     string
	gate        *gate.Gate
	store       fencestore.Store
	hosts       *hosts // nil: the server is on one host
	server      server
	watched     watch.Listener // as the watch sees it
	announce    func()         // called once it listens

	mu     sync.Mutex
	config Postgres
	listen net.Listener // nil before Run
}

func (l *listener) open(reuse bool) error {
	listen, err := listenAt(l.address, reuse)
	if err != nil {
		return fmt.Errorf("%s.listen: %w", l.field, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listen = listen
	return nil
}

// addr is where it listens; nil before open.
func (l *listener) addr() net.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.listen == nil {
		return nil
	}
	return l.listen.Addr()
}

func (l *listener) serve(ctx context.Context) error {
	if err := l.server.Serve(ctx, l.listen); err != nil {
		return fmt.Errorf("%s: %w", l.field, err)
	}
	return nil
}

// current is its configuration as the latest reload has left it.
func (l *listener) current() Postgres {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.config
}

// take lets clients that come from now on have the policy and the number of connections of next. Those who are there go on with
// the policy under which they came.
func (l *listener) take(next Postgres, policy gate.Policy, metrics *admin.Metrics) {
	l.mu.Lock()
	l.config = next
	l.mu.Unlock()
	l.gate.SetPolicy(policy)
	l.server.SetMaxConnections(next.MaxConnections)
	metrics.Announce(next.labels(policy))
}
