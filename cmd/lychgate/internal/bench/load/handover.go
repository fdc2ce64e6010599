package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// handover has all workers, each with a client of its own, wait for one lock that somebody holds, and then lets it pass
// from each to the next.
func (w *worker) handover(ctx context.Context) error {
	clients, err := w.clients(w.plan.Workers+1, false)
	if err != nil {
		return err
	}
	defer closeAll(clients)
	name := w.plan.Prefix + "/0"
	first := Record{Asked: Now()}
	held, err := clients[0].Acquire(ctx, name, w.options()...)
	if err != nil {
		return err
	}
	first.Granted, first.Token = Now(), uint64(held.Token())
	var wg sync.WaitGroup
	for i, c := range clients[1:] {
		wg.Go(func() { w.pass(ctx, i+1, c, name) })
	}
	if err := w.awaitQueue(ctx, clients[0], name); err != nil {
		return err
	}
	w.ready()
	first.Released = Now()
	w.summary.From = first.Released
	if err := held.Release(ctx); err != nil {
		return err
	}
	first.Answered = Now()
	wg.Wait()
	w.summary.To = Now()
	w.note([]Record{first}, 0, nil)
	return WriteRecords(w.plan.Records, w.records)
}

// pass waits for the lock and gives it on.
func (w *worker) pass(ctx context.Context, i int, c *client.Client, name string) {
	r := Record{Worker: uint32(i), Asked: Now()}
	l, err := c.Acquire(ctx, name, w.options()...)
	if err != nil {
		w.note(nil, 1, err)
		return
	}
	r.Granted, r.Token = Now(), uint64(l.Token())
	r.Released = Now()
	if err := l.Release(ctx); err != nil {
		w.note([]Record{r}, 1, err)
		return
	}
	r.Answered = Now()
	w.note([]Record{r}, 0, nil)
}

// awaitQueue blocks until all stand in the queue.
func (w *worker) awaitQueue(ctx context.Context, c *client.Client, name string) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		got, err := c.Locks().Get(ctx, &lockpb.GetRequest{Resource: name})
		if err != nil {
			return fmt.Errorf("queue: %w", err)
		}
		if int(got.GetLock().GetWaiting()) >= w.plan.Workers {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
