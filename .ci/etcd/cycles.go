package main

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"
)

// cycles takes and releases locks in a loop: each worker with a session of its own, as concurrency.Mutex is used.
func (w *worker) cycles(ctx context.Context) error {
	held, err := w.holdAll(ctx)
	if err != nil {
		return err
	}
	sessions, err := w.sessions(w.plan.Workers)
	if err != nil {
		return err
	}
	from := time.Now().Add(w.plan.WarmUp)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if w.plan.Duration > 0 {
		timer := time.AfterFunc(w.plan.WarmUp+w.plan.Duration, cancel)
		defer timer.Stop()
	} else {
		defer context.AfterFunc(w.ended, cancel)()
	}
	w.ready()
	var wg sync.WaitGroup
	for i, s := range sessions {
		wg.Go(func() { w.cycle(ctx, i, s, from) })
	}
	wg.Wait()
	w.summary.From, w.summary.To = start.UnixNano()+int64(from.Sub(start)), now()
	for _, s := range held {
		select {
		case <-s.Done():
			w.summary.Lost++
		default:
		}
	}
	return write(w.plan.Records, w.records)
}

// sessions makes n sessions, some at a time.
func (w *worker) sessions(n int) ([]*concurrency.Session, error) {
	sessions := make([]*concurrency.Session, n)
	errs := make([]error, n)
	limit := make(chan struct{}, 64)
	var wg sync.WaitGroup
	for i := range n {
		limit <- struct{}{}
		wg.Go(func() {
			sessions[i], errs[i] = concurrency.NewSession(w.client, concurrency.WithTTL(int(w.plan.TTL/time.Second)))
			<-limit
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, fmt.Errorf("session: %w", err)
		}
	}
	return sessions, nil
}

// holdAll takes the locks that are held all the time.
func (w *worker) holdAll(ctx context.Context) ([]*concurrency.Session, error) {
	sessions, err := w.sessions(w.plan.Hold)
	if err != nil {
		return nil, err
	}
	for i, s := range sessions {
		if err := concurrency.NewMutex(s, fmt.Sprintf("%s/held/%d", w.plan.Prefix, i)).Lock(ctx); err != nil {
			return nil, fmt.Errorf("hold: %w", err)
		}
	}
	return sessions, nil
}

func (w *worker) cycle(ctx context.Context, i int, s *concurrency.Session, from time.Time) {
	resource := i
	if w.plan.Resources > 0 {
		resource = i % w.plan.Resources
	}
	m := concurrency.NewMutex(s, fmt.Sprintf("%s/%d", w.plan.Prefix, resource))
	var records []record
	var fails int
	var first error
	for ctx.Err() == nil {
		asked := now()
		if err := w.lock(ctx, m); err != nil {
			if ctx.Err() == nil {
				fails++
				if first == nil {
					first = err
				}
				time.Sleep(time.Millisecond)
			}
			continue
		}
		r := record{worker: uint32(i), resource: uint32(resource), asked: asked, granted: now(), token: uint64(m.Header().Revision)}
		r.released = now()
		if err := w.unlock(m); err == nil {
			r.answered = now()
		} else {
			fails++
			if first == nil {
				first = err
			}
		}
		if time.Now().After(from) {
			records = append(records, r)
		}
	}
	w.note(records, fails, first)
}

func (w *worker) lock(ctx context.Context, m *concurrency.Mutex) error {
	if w.plan.Attempt > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, w.plan.Attempt)
		defer cancel()
	}
	return m.Lock(ctx)
}

// unlock repeats until the lock is given back, since a next Lock of the same session would find it held.
func (w *worker) unlock(m *concurrency.Mutex) error {
	var err error
	for range 30 {
		ctx, cancel := context.WithTimeout(context.Background(), max(w.plan.Attempt, 10*time.Second))
		err = m.Unlock(ctx)
		cancel()
		if err == nil {
			return nil
		}
		time.Sleep(time.Millisecond)
	}
	return err
}
