package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lychgate/lychgate/coordinator/client"
)

// cycles takes and releases locks in a loop. Workers with a resource of their own share one client, as the threads of a
// program do; those that contend for one have a client each, since a client takes no lock twice.
func (w *worker) cycles(ctx context.Context) error {
	clients, err := w.clients(w.plan.Workers, w.plan.Resources == 0)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	held, err := w.hold(ctx, clients[0])
	if err != nil {
		return err
	}
	from := time.Now().Add(w.plan.WarmUp)
	working, cancel := context.WithCancel(ctx)
	defer cancel()
	if w.plan.Duration > 0 {
		defer time.AfterFunc(w.plan.WarmUp+w.plan.Duration, cancel).Stop()
	} else {
		defer context.AfterFunc(w.stop, cancel)()
	}
	w.ready()
	var wg sync.WaitGroup
	for i, c := range clients {
		wg.Go(func() { w.cycle(working, i, c, from) })
	}
	wg.Wait()
	w.summary.From, w.summary.To = At(from), Now()
	for _, l := range held {
		if l.State() == client.Lost {
			w.summary.Lost++
		}
	}
	return WriteRecords(w.plan.Records, w.records)
}

// clients makes a client for each of n workers, or one for all.
func (w *worker) clients(n int, shared bool) ([]*client.Client, error) {
	clients := make([]*client.Client, n)
	for i := range clients {
		if shared && i > 0 {
			clients[i] = clients[0]
			continue
		}
		cfg := w.base
		cfg.Addrs, cfg.TTL = w.plan.Addrs, w.plan.TTL
		c, err := client.Dial(cfg)
		if err != nil {
			closeAll(clients[:i])
			return nil, err
		}
		clients[i] = c
	}
	return clients, nil
}

// closeAll closes them all at the same time. Closing one twice is allowed.
func closeAll(clients []*client.Client) {
	var wg sync.WaitGroup
	for _, c := range clients {
		wg.Go(func() { _ = c.Close() }) // what it still held runs out
	}
	wg.Wait()
}

// options are those of every acquire.
func (w *worker) options() []client.Option {
	if w.plan.Ticketed {
		return nil
	}
	return []client.Option{client.NoTicket()}
}

// hold takes the locks that are held all the time.
func (w *worker) hold(ctx context.Context, c *client.Client) ([]*client.Lease, error) {
	held := make([]*client.Lease, w.plan.Hold)
	for i := range held {
		l, err := c.Acquire(ctx, fmt.Sprintf("%s/held/%d", w.plan.Prefix, i), w.options()...)
		if err != nil {
			return nil, fmt.Errorf("hold: %w", err)
		}
		held[i] = l
	}
	return held, nil
}

func (w *worker) cycle(ctx context.Context, i int, c *client.Client, from time.Time) {
	resource := i
	if w.plan.Resources > 0 {
		resource = i % w.plan.Resources
	}
	name := fmt.Sprintf("%s/%d", w.plan.Prefix, resource)
	var records []Record
	var fails int
	var first error
	for ctx.Err() == nil {
		r := Record{Worker: uint32(i), Resource: uint32(resource), Asked: Now()}
		l, err := w.acquire(ctx, c, name)
		if err == nil {
			r.Granted, r.Token = Now(), uint64(l.Token())
			r.Released = Now()
			if err = l.Release(context.WithoutCancel(ctx)); err == nil {
				r.Answered = Now()
			}
			if time.Now().After(from) {
				records = append(records, r)
			}
		}
		if err != nil && ctx.Err() == nil {
			fails++
			if first == nil {
				first = err
			}
		}
	}
	w.note(records, fails, first)
}

func (w *worker) acquire(ctx context.Context, c *client.Client, name string) (*client.Lease, error) {
	if w.plan.Attempt > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.plan.Attempt)
		defer cancel()
	}
	l, err := c.Acquire(ctx, name, w.options()...)
	if errors.Is(err, client.ErrAlreadyHeld) {
		time.Sleep(time.Millisecond) // an acquire that was given up is still being taken back
	}
	return l, err
}
