package clienttest

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// table is who holds what and who waits for it.
type table struct {
	start time.Time

	mu       sync.Mutex
	counter  uint64 // last token
	index    uint64
	held     map[string]*holding
	leases   map[lease.ID]*holding
	queues   map[string][]*request
	requests map[requestKey]*request
	grants   []Grant
	frozen   bool
}

type requestKey struct{ client, id string }

// request is an acquire from its first copy on.
type request struct {
	key      requestKey
	resource string
	ttl      time.Duration
	over     lockpb.Reason // why a copy is refused; 0 while it waits or is held
	holding  *holding      // nil while it waits
	callers  int
	settled  chan struct{} // closed when it no longer waits
	timer    *time.Timer   // end of the wait
	grace    *time.Timer   // nil while a caller is there
}

// holding is a lease.
type holding struct {
	id       lease.ID
	request  *request
	token    lease.Token
	since    time.Time
	deadline time.Time
	stands   time.Duration // at the grant
	renewals int
	timer    *time.Timer
}

func newTable() *table {
	return &table{
		start: time.Now(), held: make(map[string]*holding), leases: make(map[lease.ID]*holding),
		queues: make(map[string][]*request), requests: make(map[requestKey]*request),
	}
}

// acquire answers one copy of a request; it blocks while the request waits and ctx lasts.
func (t *table) acquire(ctx context.Context, m *lockpb.AcquireRequest) (*lockpb.AcquireResponse, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.index++
	r, retried := t.requests[requestKey{m.GetClientId(), m.GetRequestId()}]
	if !retried {
		var err error
		if r, err = t.begin(m); err != nil {
			return nil, err
		}
	}
	for r.over == 0 && r.holding == nil {
		if err := t.await(ctx, r); err != nil {
			return nil, err
		}
	}
	if r.over != 0 {
		return nil, Refuse(r.over, lockpb.Applied_NO)
	}
	remaining := r.holding.stands
	if retried {
		remaining = time.Until(r.holding.deadline)
	}
	answer := r.holding.describe(remaining, t.asOf(), t.index, retried)
	if m.GetNoTicket() {
		answer.Ticket = ""
	}
	return answer, nil
}

// begin grants a new request, queues it, or refuses it.
func (t *table) begin(m *lockpb.AcquireRequest) (*request, error) {
	r := &request{
		key: requestKey{m.GetClientId(), m.GetRequestId()}, resource: m.GetResource(),
		ttl: DefaultTTL, settled: make(chan struct{}),
	}
	if m.Ttl != nil {
		r.ttl = time.Duration(m.GetTtl()) * time.Millisecond
	}
	h := t.held[r.resource]
	switch {
	case h == nil && len(t.queues[r.resource]) == 0:
		t.grant(r, r.ttl)
	case h != nil && h.request.key.client == r.key.client:
		return nil, refuse(&lockpb.Refusal{Reason: lockpb.Reason_ALREADY_HELD, Applied: lockpb.Applied_NO, Holder: h.public()})
	case m.GetWaitTimeout() == 0:
		refusal := &lockpb.Refusal{Reason: lockpb.Reason_REASON_HELD, Applied: lockpb.Applied_NO}
		if h != nil {
			refusal.Holder = h.public()
		}
		return nil, refuse(refusal)
	default:
		t.queues[r.resource] = append(t.queues[r.resource], r)
		r.timer = time.AfterFunc(time.Duration(m.GetWaitTimeout())*time.Millisecond, func() { t.giveUp(r) })
	}
	t.requests[r.key] = r
	return r, nil
}

// await blocks until the request no longer waits or its caller is gone. The caller holds mu, before and after.
func (t *table) await(ctx context.Context, r *request) error {
	r.callers++
	if r.grace != nil {
		r.grace.Stop()
		r.grace = nil
	}
	t.promote(r.resource) // it may have missed only its caller
	t.mu.Unlock()
	var err error
	select {
	case <-r.settled:
	case <-ctx.Done():
		err = ctx.Err()
	}
	t.mu.Lock()
	r.callers--
	if err != nil && r.callers == 0 && r.over == 0 && r.holding == nil {
		r.grace = time.AfterFunc(Grace, func() { t.giveUp(r) })
	}
	return err
}

// giveUp ends a wait whose time is up.
func (t *table) giveUp(r *request) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if r.over == 0 && r.holding == nil {
		t.leave(r, lockpb.Reason_WAIT_TIMEOUT)
	}
}

// leave takes a waiter out of the queue.
func (t *table) leave(r *request, why lockpb.Reason) {
	t.queues[r.resource] = slices.DeleteFunc(t.queues[r.resource], func(q *request) bool { return q == r })
	r.over = why
	t.settle(r)
}

func (t *table) settle(r *request) {
	for _, timer := range []*time.Timer{r.timer, r.grace} {
		if timer != nil {
			timer.Stop()
		}
	}
	close(r.settled)
}

func (t *table) grant(r *request, stands time.Duration) {
	t.counter++
	var random [14]byte
	_, _ = rand.Read(random[:]) // never fails
	h := &holding{
		id: lease.NewID(0, random), request: r, token: lease.Token(t.counter),
		since: time.Now(), deadline: time.Now().Add(stands), stands: stands,
	}
	h.timer = time.AfterFunc(stands, func() { t.runOut(h) })
	r.holding = h
	t.held[r.resource], t.leases[h.id] = h, h
	t.settle(r)
	t.grants = append(t.grants, Grant{Resource: r.resource, Client: r.key.client, Token: h.token, At: h.since})
}

// promote grants a free resource to the first waiter whose caller is there.
func (t *table) promote(resource string) {
	if t.held[resource] != nil {
		return
	}
	queue := t.queues[resource]
	i := slices.IndexFunc(queue, func(r *request) bool { return r.callers > 0 })
	if i < 0 {
		return
	}
	r := queue[i]
	t.queues[resource] = slices.Delete(queue, i, i+1)
	t.grant(r, min(r.ttl, ClaimWindow))
}

// runOut ends a lease whose deadline has come.
func (t *table) runOut(h *holding) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.leases[h.id] != h {
		return
	}
	if left := time.Until(h.deadline); t.frozen || left > 0 { // without a quorum nothing expires
		h.timer.Reset(max(left, time.Millisecond))
		return
	}
	t.end(h, lockpb.Reason_REQUEST_ENDED)
}

func (t *table) end(h *holding, why lockpb.Reason) {
	h.timer.Stop()
	h.request.over = why
	delete(t.leases, h.id)
	delete(t.held, h.request.resource)
	t.promote(h.request.resource)
}

// describe is the API's answer about a lease.
func (h *holding) describe(remaining time.Duration, asOf int64, index uint64, retried bool) *lockpb.AcquireResponse {
	return &lockpb.AcquireResponse{
		LeaseId: h.id.String(), FencingToken: uint64(h.token), Resource: h.request.resource,
		Mode: lockpb.Mode_EXCLUSIVE, Ttl: int32(h.request.ttl.Milliseconds()),
		Remaining: int32(remaining.Milliseconds()), Ticket: h.ticket(),
		AsOf: asOf, Index: index, Retried: retried,
	}
}

// ticket looks different after each renewal.
func (h *holding) ticket() string {
	return fmt.Sprintf("clienttest:%s:%d:%d", h.request.resource, h.token, h.renewals)
}

func (h *holding) public() *lockpb.Holder {
	return &lockpb.Holder{
		ClientId: h.request.key.client, FencingToken: uint64(h.token), LeaseHash: h.id.Hash().String(),
		Mode: lockpb.Mode_EXCLUSIVE, HeldFor: int32(time.Since(h.since).Milliseconds()),
		Remaining: int32(time.Until(h.deadline).Milliseconds()),
	}
}

// asOf is the lease time now.
func (t *table) asOf() int64 { return int64(time.Since(t.start)) + 1 }
