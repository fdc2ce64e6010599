// Package keylock is a set of locks by name. A name costs memory only while somebody holds or awaits it.
package keylock

import (
	"context"
	"sync"
)

// Locks is a set of locks; the zero value is ready. It must not be copied.
type Locks struct {
	mu    sync.Mutex
	names map[string]*entry
}

type entry struct {
	slot  chan struct{} // full while held
	users int           // holders and waiters
}

// Lock waits for the lock of the name, or for ctx; then it fails with the cause. A ctx that has ended before gets no
// lock, free or not. The unlock function must be called once. Waiters are served in no particular order.
func (l *Locks) Lock(ctx context.Context, name string) (unlock func(), err error) {
	if ctx.Err() != nil { // with both ready the select below could choose the lock
		return nil, context.Cause(ctx)
	}
	e := l.enter(name)
	select {
	case e.slot <- struct{}{}:
		return func() { <-e.slot; l.leave(name, e) }, nil
	case <-ctx.Done():
		l.leave(name, e)
		return nil, context.Cause(ctx)
	}
}

func (l *Locks) enter(name string) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	e := l.names[name]
	if e == nil {
		e = &entry{slot: make(chan struct{}, 1)}
		if l.names == nil {
			l.names = map[string]*entry{}
		}
		l.names[name] = e
	}
	e.users++
	return e
}

func (l *Locks) leave(name string, e *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.users--; e.users == 0 {
		delete(l.names, name)
	}
}
