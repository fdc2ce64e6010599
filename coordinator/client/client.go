package client

import (
	"context"
	"log/slog"
	"sync"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Client takes and keeps leases. It is safe for concurrent use. One goroutine renews all its leases; it ends
// with Close, and no renewal leaves afterwards.
type Client struct {
	cfg     Config
	id      string
	clock   Clock
	log     *slog.Logger
	nodes   *nodes
	locks   lockpb.LocksClient
	cluster lockpb.ClusterClient

	numbers   numbers
	asOf      asOf
	agenda    agenda
	abandoned abandoned
	leftovers leftovers
	single    belief // that the coordinator knows no heartbeats
	silent    belief // that it cannot tell of the queue
	signatory signatory

	root  context.Context // ends with Close
	stop  context.CancelCauseFunc
	close func() error // once

	mu     sync.Mutex
	closed bool
	work   sync.WaitGroup // calls, renewals, cancels and the loop; added to under mu while not closed
}

// Dial makes a client. It checks the configuration and connects to nobody yet: the first call does.
// The caller must Close it.
func Dial(cfg Config) (*Client, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, err
	}
	root, stop := context.WithCancelCause(context.Background())
	n, err := newNodes(root, cfg)
	if err != nil {
		stop(err)
		return nil, err
	}
	c := &Client{
		cfg: cfg, id: cfg.ClientID, clock: cfg.Clock, log: cfg.Logger,
		nodes: n, locks: router{lockpb.NewLocksClient(n), n}, cluster: lockpb.NewClusterClient(n),
	}
	if c.id == "" {
		c.id = generateClientID()
		c.numbers.on = true // nobody else uses this name, so its requests can be numbered from 1
	}
	c.agenda.changed = make(chan struct{}, 1)
	c.root, c.stop = root, stop
	c.close = sync.OnceValue(c.shut)
	c.work.Go(c.keep)
	return c, nil
}

// ClientID is the name by which the coordinator knows this client.
func (c *Client) ClientID() string { return c.id }

// Locks is the bare API on this client's connections. Each call is one attempt, at the leader that it is for or at the
// address in use; errors are of type *Error. Leases taken with it are not renewed.
func (c *Client) Locks() lockpb.LocksClient { return c.locks }

// Cluster is the cluster's part of the bare API; as Locks.
func (c *Client) Cluster() lockpb.ClusterClient { return c.cluster }

// Close ends the client: calls in progress fail with ErrClosed, what they may have begun is cancelled at
// the coordinator (for at most Config.CancelTimeout), and every lease still held ends here with ErrLost and
// ErrClosed. It does not release them: only their holders know that their work has stopped, so they run out
// at the coordinator. Close blocks until nothing of the client runs any more; calling it again is allowed.
func (c *Client) Close() error { return c.close() }

func (c *Client) shut() error {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.stop(ErrClosed)
	for _, l := range c.agenda.clear() {
		l.lose(ErrClosed)
	}
	c.work.Wait()
	return c.nodes.Close()
}

// enter begins a call: the context that it returns also ends with the client. leave must be called.
func (c *Client) enter(ctx context.Context) (*bound, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	c.work.Add(1)
	return &bound{parent: ctx, closing: c.root}, nil
}

// leave ends a call.
func (c *Client) leave(call *bound) {
	call.cancel()
	c.work.Done()
}
