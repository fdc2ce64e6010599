package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
)

// handover has all workers wait for one lock that somebody holds, and then lets it pass from each to the next.
func (w *worker) handover(ctx context.Context) error {
	sessions, err := w.sessions(w.plan.Workers + 1)
	if err != nil {
		return err
	}
	name := w.plan.Prefix + "/0"
	holder := concurrency.NewMutex(sessions[0], name)
	asked := now()
	if err := holder.Lock(ctx); err != nil {
		return err
	}
	w.note([]record{{asked: asked, granted: now(), token: uint64(holder.Header().Revision)}}, 0, nil)
	var wg sync.WaitGroup
	for i, s := range sessions[1:] {
		wg.Go(func() { w.pass(ctx, i+1, concurrency.NewMutex(s, name)) })
	}
	if err := w.awaitQueue(ctx, name); err != nil {
		return err
	}
	w.ready()
	w.summary.From = now()
	w.records[0].released = now()
	if err := holder.Unlock(ctx); err != nil {
		return err
	}
	wg.Wait()
	w.summary.To = now()
	return write(w.plan.Records, w.records)
}

// pass waits for the lock and gives it on.
func (w *worker) pass(ctx context.Context, i int, m *concurrency.Mutex) {
	r := record{worker: uint32(i), asked: now()}
	if err := m.Lock(ctx); err != nil {
		w.note(nil, 1, err)
		return
	}
	r.granted, r.token = now(), uint64(m.Header().Revision)
	r.released = now()
	err := m.Unlock(ctx)
	if err == nil {
		r.answered = now()
		w.note([]record{r}, 0, nil)
		return
	}
	w.note([]record{r}, 1, err)
}

// awaitQueue blocks until all stand in the queue.
func (w *worker) awaitQueue(ctx context.Context, name string) error {
	for {
		got, err := w.client.Get(ctx, name+"/", clientv3.WithPrefix(), clientv3.WithCountOnly())
		if err != nil {
			return fmt.Errorf("queue: %w", err)
		}
		if got.Count > int64(w.plan.Workers) {
			return nil
		}
		time.Sleep(20 * time.Millisecond)
	}
}
