package watch

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// How the current holders are looked up, so that neither coordinators nor stores feel it.
const (
	atOnce   = 8                    // resources of which a coordinator is asked at the same time
	lookEach = 2 * time.Millisecond // between two records that one store is asked for
	lookWait = time.Second          // from one sweep to the next
)

// lookUp compares floors with the current holders each time that changes were missed, until ctx is done. What it did
// not get through with is looked up again.
//
// First come the resources that have bindings here, each by itself: they are few, and what matters. Then all that are
// held, for the sake of proxies that do not watch, slowly, and only where the store has a record: others have never
// been written to in this store, or not by an old holder.
func (f *following) lookUp(ctx context.Context, cluster string, from Coordinator) {
	for {
		select {
		case <-f.due:
		case <-ctx.Done():
			return
		}
		err := f.lookUpBound(ctx, cluster, from)
		if err == nil {
			err = f.lookUpRecords(ctx, from)
		}
		if err != nil {
			f.miss()
			if ctx.Err() == nil {
				f.log.Warn("floors could not be compared with the current holders", "error", err)
			}
		}
		if !sleep(ctx, lookWait) {
			return
		}
	}
}

// bindings are the leases that a resource is bound under, at each listener.
type bindings map[*listener][]string

func (w *Watch) bound(cluster string) map[string]bindings {
	all := map[string]bindings{}
	for _, l := range w.listeners {
		for _, v := range l.Gate.Bindings() {
			if v.Cluster != cluster {
				continue
			}
			if all[v.Resource] == nil {
				all[v.Resource] = bindings{}
			}
			all[v.Resource][l] = append(all[v.Resource][l], v.LeaseHash)
		}
	}
	return all
}

// lookUpBound asks for each resource that has bindings.
func (f *following) lookUpBound(ctx context.Context, cluster string, from Coordinator) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(atOnce)
	var once sync.Once
	for resource, here := range f.bound(cluster) {
		group.Go(func() error {
			lock, err := from.Holders(ctx, resource)
			if errors.Is(err, ErrNotAllowed) {
				once.Do(func() {
					f.log.Warn("the proxy may not read a resource that is bound here", "resource", resource, "error", err)
				})
				return nil
			}
			if err != nil {
				return err
			}
			return f.compare(ctx, cluster, lock, here)
		})
	}
	return group.Wait()
}

// compare deals with the bindings that were there before the holders were asked for: a lease that is not among those has
// ended. One that is bound since may be newer than the answer.
func (f *following) compare(ctx context.Context, cluster string, lock Lock, here bindings) error {
	newest := newestOf(lock.Holders)
	f.known.issued(lock.Resource, newest)
	live := map[string]bool{}
	for _, h := range lock.Holders {
		live[h.Lease] = true
	}
	for l, hashes := range here {
		for _, hash := range hashes {
			if !lock.Complete || hash == "" || live[hash] {
				continue
			}
			f.known.end(hash)
			if l.Cut {
				l.end(cluster, lock.Resource, hash)
			}
		}
		if l.Gate.Older(cluster, lock.Resource, newest) {
			if err := l.queue.offer(ctx, lock.Resource, newest, false); err != nil {
				return err
			}
		}
	}
	return nil
}

// lookUpRecords goes through all that is held.
func (f *following) lookUpRecords(ctx context.Context, from Coordinator) error {
	for after := ""; ; {
		page, next, err := from.List(ctx, after)
		if err != nil {
			return err
		}
		for _, lock := range page {
			newest := newestOf(lock.Holders)
			if newest == 0 {
				continue // it is awaited
			}
			f.known.issued(lock.Resource, newest)
			for _, l := range f.listeners {
				if err := l.queue.offer(ctx, lock.Resource, newest, true); err != nil {
					return err
				}
			}
			if !sleep(ctx, lookEach) {
				return ctx.Err()
			}
		}
		if after = next; after == "" {
			return nil
		}
	}
}
