package client

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// Defaults of a Config.
const (
	DefaultAddr           = "127.0.0.1:7600"
	DefaultAttemptTimeout = 3 * time.Second
	DefaultPatience       = 15 * time.Second
	DefaultCancelTimeout  = 5 * time.Second
)

// Config says where the coordinators are and how a client behaves. The zero value of a field is its default.
type Config struct {
	// Addrs are the gRPC addresses (host:port) of coordinator nodes; any one can serve every
	// call. The client uses one until it fails, then the next. Default: DefaultAddr.
	Addrs []string
	// ClientID names this client to the coordinator; a client that already holds a resource cannot take it
	// again. Empty: a name made of host, process and a random part, which is right unless requests must be
	// recognised after a restart of the process.
	ClientID string
	// TTL is the lease duration to ask for. 0: the cluster's default.
	TTL time.Duration
	// WarnBefore is how long before its deadline a lease warns (Lease.Warning). 0: a fifth of the TTL.
	WarnBefore time.Duration
	// AttemptTimeout bounds how long one node is waited for, beside a wait in the queue.
	AttemptTimeout time.Duration
	// Patience bounds how long a call is repeated while no coordinator can serve it, where nothing else
	// does: TryAcquire, Acquire with Wait, Release. A context that ends earlier wins.
	Patience time.Duration
	// CancelTimeout bounds the cancelling of an abandoned acquire, and so how long Close may take.
	CancelTimeout time.Duration

	// Unary makes each call by itself. Otherwise calls go in sessions, each a stream that many calls share, to the leader
	// that they are for; by themselves only where a coordinator has no sessions.
	Unary bool

	TLS         *tls.Config                                     // nil: plain text; see Files
	Token       Token                                           // nil: none; needs TLS, but on this machine
	Dialer      func(context.Context, string) (net.Conn, error) // nil: TCP
	DialOptions []grpc.DialOption                               // added to the client's own
	Clock       Clock                                           // nil: one that runs in suspend where there is one
	Logger      *slog.Logger                                    // nil: silent
}

// complete checks c and fills in the defaults.
func (c Config) complete() (Config, error) {
	if len(c.Addrs) == 0 {
		c.Addrs = []string{DefaultAddr}
	}
	for _, a := range c.Addrs {
		if a == "" {
			return c, errors.New("client: an address is empty")
		}
		if strings.Contains(a, "://") {
			return c, fmt.Errorf("client: %q is a URL; want host:port of the gRPC port, such as %s", a, DefaultAddr)
		}
	}
	if err := c.checkToken(); err != nil {
		return c, err
	}
	for name, d := range map[string]time.Duration{
		"TTL": c.TTL, "WarnBefore": c.WarnBefore, "AttemptTimeout": c.AttemptTimeout,
		"Patience": c.Patience, "CancelTimeout": c.CancelTimeout,
	} {
		if d < 0 {
			return c, fmt.Errorf("client: %s is negative", name)
		}
	}
	if c.TTL > 0 && c.TTL < time.Millisecond {
		return c, fmt.Errorf("client: TTL %v is below a millisecond", c.TTL)
	}
	if c.TTL > 0 && c.WarnBefore >= c.TTL {
		return c, fmt.Errorf("client: WarnBefore %v is not below TTL %v", c.WarnBefore, c.TTL)
	}
	if c.ClientID != "" {
		if _, err := lease.ParseClientID(c.ClientID); err != nil {
			return c, fmt.Errorf("client: %w", err)
		}
	}
	c.AttemptTimeout = or(c.AttemptTimeout, DefaultAttemptTimeout)
	c.Patience = or(c.Patience, DefaultPatience)
	c.CancelTimeout = or(c.CancelTimeout, DefaultCancelTimeout)
	if c.Clock == nil {
		c.Clock = systemClock()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

func or(d, otherwise time.Duration) time.Duration {
	if d == 0 {
		return otherwise
	}
	return d
}

// generateClientID makes a name that no other client has and that tells a person where it runs.
func generateClientID() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown"
	}
	host = strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '.':
			return r
		}
		return '-'
	}, host)
	return fmt.Sprintf("%.64s-%d-%s", host, os.Getpid(), rand.Text()[:10])
}
