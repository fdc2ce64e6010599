package group

import (
	"sync"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// End is how a wait ended. Event is a lock.LeaseGranted that came late or a lock.WaitEnded, with the entry
// that caused it; or Err says why this node can no longer tell, and the caller retries.
type End struct {
	Index uint64
	Now   lock.LeaseTime
	Event lock.Event
	Err   *Error
}

// Wait is a place where the end of one request's wait is delivered.
type Wait struct {
	C <-chan End // at most one End

	c     chan End
	key   waitKey
	waits *waits
}

// Close ends the interest in the wait. It may be called more than once.
func (w *Wait) Close() { w.waits.remove(w) }

type waitKey struct {
	identity lease.Identity
	client   lease.ClientID
	request  lease.RequestID
}

// waits is the registry of the calls that wait on this node. It accepts only while this node leads: a wait
// on a follower would never learn that the leader changed.
type waits struct {
	limit int

	mu      sync.Mutex
	refusal *Error
	byKey   map[waitKey]map[*Wait]struct{}
	count   int
}

func newWaits(limit int) *waits {
	return &waits{
		limit:   limit,
		refusal: &Error{Kind: NotLeader, Err: errNotServing},
		byKey:   make(map[waitKey]map[*Wait]struct{}),
	}
}

// add registers a wait. Where that is refused, the Wait has its End already.
func (ws *waits) add(key waitKey) *Wait {
	c := make(chan End, 1)
	w := &Wait{C: c, c: c, key: key, waits: ws}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	switch {
	case ws.refusal != nil:
		c <- End{Err: ws.refusal}
	case ws.count >= ws.limit:
		c <- End{Err: &Error{Kind: Overloaded, RetryAfter: retryOverload, Err: errTooMany}}
	default:
		if ws.byKey[key] == nil {
			ws.byKey[key] = make(map[*Wait]struct{}, 1)
		}
		ws.byKey[key][w] = struct{}{}
		ws.count++
	}
	return w
}

func (ws *waits) remove(w *Wait) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	set, ok := ws.byKey[w.key]
	if !ok {
		return
	}
	if _, ok := set[w]; !ok {
		return
	}
	delete(set, w)
	ws.count--
	if len(set) == 0 {
		delete(ws.byKey, w.key)
	}
}

// open starts to accept.
func (ws *waits) open() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.refusal = nil
}

// close ends all waits with ended and refuses new ones with reason.
func (ws *waits) close(ended, reason *Error) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.refusal = reason
	for key, set := range ws.byKey {
		ws.deliver(key, set, End{Err: ended})
	}
}

// applied delivers what the events of an entry end.
func (ws *waits) applied(index uint64, now lock.LeaseTime, events []lock.Event) {
	if len(events) == 0 {
		return
	}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.count == 0 {
		return
	}
	for _, event := range events {
		key, ok := endedWait(event)
		if !ok {
			continue
		}
		if set := ws.byKey[key]; set != nil {
			ws.deliver(key, set, End{Index: index, Now: now, Event: event})
		}
	}
}

func (ws *waits) deliver(key waitKey, set map[*Wait]struct{}, end End) {
	for w := range set {
		w.c <- end // capacity 1 and removed with it: never blocks
	}
	ws.count -= len(set)
	delete(ws.byKey, key)
}

func endedWait(event lock.Event) (waitKey, bool) {
	switch e := event.(type) {
	case lock.LeaseGranted:
		return waitKey{e.Identity, e.Client, e.Request}, e.Late
	case lock.WaitEnded:
		return waitKey{e.Identity, e.Client, e.Request}, true
	case lock.LeaseEnded, lock.WaitStarted, lock.WaitAttached, lock.WaitDetached, lock.ResourceBroken, lock.KeyAdded, lock.LeaderStarted,
		lock.KeyRetired, lock.KeyDropped, lock.PolicyChanged, lock.VersionRaised, lock.MemberChanged, lock.Recovered:
	}
	return waitKey{}, false
}
