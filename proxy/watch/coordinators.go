package watch

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lockpb"
	"github.com/lychgate/lychgate/fencestore"
)

// Coordinators is a Source over gRPC.
type Coordinators struct {
	Addrs  []string     // host:port of nodes or gateways
	Prefix string       // of the resources that are watched; empty: all
	TLS    *tls.Config  // nil: plain text
	Token  client.Token // nil: none
	Logger *slog.Logger // nil: none

	next int // address
}

// Bounds of what is asked of one coordinator.
const (
	attempt  = 3 * time.Second
	patience = 500 * time.Millisecond // then the next one is asked
	pageSize = 500
)

// Check looks at the configuration without I/O.
func (c *Coordinators) Check() error {
	for _, addr := range c.Addrs {
		one, err := client.Dial(c.config(addr))
		if err != nil {
			return err
		}
		if err := one.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (c *Coordinators) config(addr string) client.Config {
	return client.Config{
		Addrs: []string{addr}, AttemptTimeout: attempt, Patience: patience, Unary: true,
		TLS: c.TLS, Token: c.Token, Logger: c.Logger,
	}
}

// Open implements Source. Each address is asked by a client of its own: one that turned out to be of another cluster
// must not answer in the place of one that did not, since its tokens would mean something else here. Not safe for
// concurrent use.
func (c *Coordinators) Open(ctx context.Context, cluster string) (Coordinator, error) {
	if c.next == 0 {
		c.next = rand.IntN(len(c.Addrs)) // many proxies spread over the coordinators
	}
	c.next++
	addr := c.Addrs[c.next%len(c.Addrs)]
	one, err := client.Dial(c.config(addr))
	if err != nil {
		return nil, err
	}
	asking, cancel := context.WithTimeout(ctx, attempt)
	defer cancel()
	status, err := one.Cluster().Status(asking, &lockpb.StatusRequest{})
	if err == nil && status.GetCluster() != cluster {
		err = fmt.Errorf("it is of cluster %q, and tickets are of %q", status.GetCluster(), cluster)
	}
	if err != nil {
		_ = one.Close() // nothing is in it
		return nil, fmt.Errorf("coordinator %s: %w", addr, err)
	}
	return &coordinator{client: one, addr: addr, prefix: c.Prefix}, nil
}

// coordinator is one that has proved to be of the cluster.
type coordinator struct {
	client       *client.Client
	addr, prefix string
}

func (c *coordinator) Close() { _ = c.client.Close() } // it holds no leases

// ownError is an error of the one who is called.
type ownError struct{ err error }

func (e *ownError) Error() string { return e.err.Error() }

func (c *coordinator) Watch(ctx context.Context, revision string, on func(Message) error) error {
	err := c.client.Watch(ctx, c.prefix, revision, func(m *lockpb.WatchResponse) error {
		if err := on(messageOf(m)); err != nil {
			return &ownError{err}
		}
		return nil
	})
	own, isOwn := errors.AsType[*ownError](err)
	switch {
	case isOwn:
		return own.err
	case errors.Is(err, client.ErrInvalid):
		return c.named(errors.Join(ErrRevision, err))
	}
	return c.named(err)
}

func (c *coordinator) Holders(ctx context.Context, resource string) (Lock, error) {
	answer, err := c.client.Get(ctx, resource)
	if errors.Is(err, client.ErrPermissionDenied) {
		return Lock{}, errors.Join(ErrNotAllowed, err)
	}
	if err != nil {
		return Lock{}, c.named(err)
	}
	lock := lockOf(answer.GetLock())
	lock.Resource = resource
	return lock, nil
}

func (c *coordinator) List(ctx context.Context, after string) (page []Lock, next string, err error) {
	answer, err := c.client.List(ctx, c.prefix, after, pageSize)
	if err != nil {
		return nil, "", c.named(err)
	}
	for _, l := range answer.GetLocks() {
		page = append(page, lockOf(l))
	}
	return page, answer.GetNext(), nil
}

func (c *coordinator) named(err error) error { return fmt.Errorf("coordinator %s: %w", c.addr, err) }

func messageOf(m *lockpb.WatchResponse) Message {
	out := Message{Revision: m.GetRevision(), Resync: m.GetResync()}
	for _, c := range m.GetChanges() {
		change := Change{
			Kind: kindOf(c.GetKind()), Resource: c.GetResource(), Token: fencestore.Token(c.GetFencingToken()),
			Lease: c.GetHolder().GetLeaseHash(),
		}
		if change.Kind != 0 {
			out.Changes = append(out.Changes, change)
		}
	}
	return out
}

// kindOf is 0 for what a newer coordinator may tell besides.
func kindOf(k lockpb.Change_Kind) Kind {
	switch k {
	case lockpb.Change_GRANTED:
		return Granted
	case lockpb.Change_RELEASED, lockpb.Change_EXPIRED:
		return Ended
	case lockpb.Change_BROKEN:
		return Broken
	case lockpb.Change_KIND_UNSPECIFIED:
	}
	return 0
}

func lockOf(l *lockpb.Lock) Lock {
	out := Lock{Resource: l.GetResource(), Complete: int(l.GetHolding()) <= len(l.GetHolders())}
	for _, h := range l.GetHolders() {
		out.Holders = append(out.Holders, Holder{Token: fencestore.Token(h.GetFencingToken()), Lease: h.GetLeaseHash()})
	}
	return out
}
