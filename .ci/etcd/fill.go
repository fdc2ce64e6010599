package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// fill takes leases and ties a key to each, as a lock is in etcd, and keeps them until standard input ends.
func (w *worker) fill(ctx context.Context) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range w.plan.Workers {
		wg.Go(func() {
			for ctx.Err() == nil {
				i := next.Add(1) - 1
				if i >= int64(w.plan.Count) {
					return
				}
				if err := w.put(ctx, i); err != nil {
					w.note(nil, 1, err)
					return
				}
			}
		})
	}
	wg.Wait()
	if w.summary.Fails > 0 {
		return fmt.Errorf("fill: %s", w.summary.Fail)
	}
	w.ready()
	<-w.ended.Done()
	return nil
}

func (w *worker) put(ctx context.Context, i int64) error {
	l, err := w.client.Grant(ctx, int64(w.plan.TTL/time.Second))
	if err != nil {
		return err
	}
	key := fmt.Sprintf("%s/tenant-%04d/order/%010d/%x", w.plan.Prefix, i%1000, i, l.ID)
	_, err = w.client.Put(ctx, key, "", clientv3.WithLease(l.ID))
	return err
}
