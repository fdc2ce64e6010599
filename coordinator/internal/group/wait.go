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
	next  *Wait // for the same request
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
	byKey   map[waitKey]*Wait // a list: of one, but where a request is sent twice
	count   int
}

func newWaits(limit int) *waits {
	return &waits{
		limit:   limit,
		refusal: &Error{Kind: NotLeader, Err: errNotServing},
		byKey:   make(map[waitKey]*Wait),
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
		w.next = ws.byKey[key]
		ws.byKey[key] = w
		ws.count++
	}
	return w
}

func (ws *waits) remove(w *Wait) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	first := ws.byKey[w.key]
	for at := &first; *at != nil; at = &(*at).next {
		if *at != w {
			continue
		}
		*at = w.next
		ws.count--
		break
	}
	if first == nil {
		delete(ws.byKey, w.key)
	} else {
		ws.byKey[w.key] = first
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
	for key, first := range ws.byKey {
		ws.deliver(key, first, End{Err: ended})
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
		if first := ws.byKey[key]; first != nil {
			ws.deliver(key, first, End{Index: index, Now: now, Event: event})
		}
	}
}

func (ws *waits) deliver(key waitKey, first *Wait, end End) {
	for w := first; w != nil; w = w.next {
		w.c <- end // capacity 1 and removed with it: never blocks
		ws.count--
	}
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
