package clienttest

import (
	"context"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func methodName(full string) string { return path.Base(full) }

// locks serves the table.
type locks struct {
	lockpb.UnimplementedLocksServer
	table *table
}

func (l locks) Acquire(ctx context.Context, m *lockpb.AcquireRequest) (*lockpb.AcquireResponse, error) {
	return l.table.acquire(ctx, m)
}

func (l locks) Renew(_ context.Context, m *lockpb.RenewRequest) (*lockpb.RenewResponse, error) {
	t := l.table
	t.mu.Lock()
	defer t.mu.Unlock()
	h, err := t.lease(m.GetLeaseId())
	if err != nil {
		return nil, err
	}
	if m.Ttl != nil {
		h.request.ttl = time.Duration(m.GetTtl()) * time.Millisecond
	}
	h.renew()
	return &lockpb.RenewResponse{
		LeaseId: m.GetLeaseId(), FencingToken: uint64(h.token), Resource: h.request.resource, Ticket: h.ticket(),
		Ttl: int32(h.request.ttl.Milliseconds()), Remaining: int32(h.request.ttl.Milliseconds()),
		AsOf: t.asOf(), Index: t.index,
	}, nil
}

// Heartbeat renews each lease as Renew does. It signs tickets only if they are asked for.
func (l locks) Heartbeat(_ context.Context, m *lockpb.HeartbeatRequest) (*lockpb.HeartbeatResponse, error) {
	t := l.table
	t.mu.Lock()
	defer t.mu.Unlock()
	resp := &lockpb.HeartbeatResponse{AsOf: t.asOf()}
	for _, id := range m.GetLeaseIds() {
		beat := &lockpb.Beat{LeaseId: id}
		if h, refusal := t.find(id); refusal != nil {
			beat.Refusal = refusal
		} else {
			h.renew()
			beat.FencingToken, beat.Remaining = uint64(h.token), int32(h.request.ttl.Milliseconds())
			if m.GetTickets() {
				beat.Ticket = h.ticket()
			}
		}
		resp.Beats = append(resp.Beats, beat)
	}
	return resp, nil
}

func (l locks) Release(_ context.Context, m *lockpb.ReleaseRequest) (*lockpb.ReleaseResponse, error) {
	t := l.table
	t.mu.Lock()
	defer t.mu.Unlock()
	h, err := t.lease(m.GetLeaseId())
	if err != nil {
		return nil, err
	}
	t.end(h, lockpb.Reason_REQUEST_ENDED)
	return &lockpb.ReleaseResponse{
		Resource: h.request.resource, FencingToken: uint64(h.token), AsOf: t.asOf(), Index: t.index,
	}, nil
}

// lease finds the lease of a renewal or release. The caller holds mu.
func (t *table) lease(raw string) (*holding, error) {
	h, refusal := t.find(raw)
	if refusal != nil {
		return nil, refuse(refusal)
	}
	return h, nil
}

func (t *table) find(raw string) (*holding, *lockpb.Refusal) {
	t.index++
	id, err := lease.ParseID(raw)
	if err != nil {
		return nil, &lockpb.Refusal{Reason: lockpb.Reason_INVALID, Applied: lockpb.Applied_NO, Field: "lease_id"}
	}
	h, ok := t.leases[id]
	if !ok {
		return nil, &lockpb.Refusal{Reason: lockpb.Reason_LEASE_ENDED, Applied: lockpb.Applied_NO}
	}
	return h, nil
}

// renew gives a lease a whole TTL from now. The caller holds the table's mu.
func (h *holding) renew() {
	h.renewals++
	h.deadline = time.Now().Add(h.request.ttl)
	h.timer.Reset(h.request.ttl)
}

func (l locks) Cancel(_ context.Context, m *lockpb.CancelRequest) (*lockpb.CancelResponse, error) {
	t := l.table
	t.mu.Lock()
	defer t.mu.Unlock()
	t.index++
	key := requestKey{m.GetClientId(), m.GetRequestId()}
	resp := &lockpb.CancelResponse{AsOf: t.asOf(), Index: t.index}
	r, known := t.requests[key]
	switch {
	case !known:
		t.requests[key] = &request{key: key, over: lockpb.Reason_REQUEST_CANCELLED}
		resp.Was = lockpb.RequestState_UNKNOWN
	case r.over != 0:
		resp.Was = lockpb.RequestState_ENDED
	case r.holding != nil:
		t.end(r.holding, lockpb.Reason_REQUEST_CANCELLED)
		resp.Was = lockpb.RequestState_HELD
	default:
		t.leave(r, lockpb.Reason_REQUEST_CANCELLED)
		resp.Was = lockpb.RequestState_WAITING
	}
	return resp, nil
}

func (l locks) Break(_ context.Context, m *lockpb.BreakRequest) (*lockpb.BreakResponse, error) {
	t := l.table
	t.mu.Lock()
	defer t.mu.Unlock()
	t.index++
	t.counter++
	resp := &lockpb.BreakResponse{FencingToken: t.counter, Index: t.index}
	if h := t.held[m.GetResource()]; h != nil {
		resp.Ended = append(resp.Ended, h.public())
		t.end(h, lockpb.Reason_REQUEST_ENDED)
	}
	return resp, nil
}

func (l locks) Get(_ context.Context, m *lockpb.GetRequest) (*lockpb.GetResponse, error) {
	t := l.table
	t.mu.Lock()
	defer t.mu.Unlock()
	return &lockpb.GetResponse{Lock: t.lock(m.GetResource()), AsOf: t.asOf(), Index: t.index}, nil
}

func (l locks) List(_ context.Context, m *lockpb.ListRequest) (*lockpb.ListResponse, error) {
	t := l.table
	t.mu.Lock()
	defer t.mu.Unlock()
	limit := int(m.GetLimit())
	if limit == 0 {
		limit = 100
	}
	resp := &lockpb.ListResponse{AsOf: t.asOf(), Index: t.index}
	for _, name := range t.names() {
		if !strings.HasPrefix(name, m.GetPrefix()) || name <= m.GetAfter() {
			continue
		}
		if len(resp.GetLocks()) == limit {
			resp.Next = resp.GetLocks()[limit-1].GetResource()
			break
		}
		resp.Locks = append(resp.Locks, t.lock(name))
	}
	return resp, nil
}

// names lists what is held or awaited. The caller holds mu.
func (t *table) names() []string {
	var names []string
	for name := range t.held {
		names = append(names, name)
	}
	for name, queue := range t.queues {
		if len(queue) > 0 && t.held[name] == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// lock is a resource as others may see it. The caller holds mu.
func (t *table) lock(name string) *lockpb.Lock {
	lock := &lockpb.Lock{Resource: name, Waiting: int32(len(t.queues[name]))}
	if h := t.held[name]; h != nil {
		lock.Holders, lock.Holding = append(lock.Holders, h.public()), 1
	}
	for _, r := range t.queues[name] {
		lock.Waiters = append(lock.Waiters, &lockpb.Waiter{
			ClientId: r.key.client, RequestId: r.key.id, Mode: lockpb.Mode_EXCLUSIVE, Attached: r.callers > 0,
		})
	}
	return lock
}

// cluster answers what a client asks of the cluster itself.
type cluster struct {
	lockpb.UnimplementedClusterServer
	table *table
}

func (c cluster) Status(context.Context, *lockpb.StatusRequest) (*lockpb.StatusResponse, error) {
	c.table.mu.Lock()
	defer c.table.mu.Unlock()
	return &lockpb.StatusResponse{
		Cluster: "clienttest", Node: "clienttest", Leader: "clienttest", State: "leader",
		AppliedIndex: c.table.index, AsOf: c.table.asOf(),
	}, nil
}
