package client

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// maxHeartbeat bounds the leases of one message, as the API says.
const maxHeartbeat = 1000

// heartbeat is one message that renews some leases, in flight. A lease is in at most one.
type heartbeat struct {
	client  *Client
	leases  []*Lease
	ids     []lease.ID
	keyID   string // of the key that signed their tickets
	timeout time.Duration
	ctx     context.Context
	cancel  context.CancelFunc
	wanted  atomic.Int32 // by so many of the leases
}

// leave says that one of the leases is over: its renewal is of no interest any more. When none is of interest the
// message is called off.
func (h *heartbeat) leave() {
	if h.wanted.Add(-1) == 0 {
		h.cancel()
	}
}

// renewTogether renews a lease that is due and, in the same message, those that are going to be soon, nearest their
// deadline first. Those that go to another leader, or have tickets of another key, have messages of their own.
//
// The caller is the loop, so the client's work cannot have been waited for yet. The messages in flight are bounded by
// the leases, and each by a timeout.
func (c *Client) renewTogether(due *Lease, now time.Duration) {
	found := c.agenda.upTo(now+ahead(due.TTL()), maxHeartbeat)
	if !slices.Contains(found, due) {
		found = append(found[:min(len(found), maxHeartbeat-1)], due) // the bound has cut it off
	}
	type destination struct{ addr, keyID string }
	beats := make(map[destination]*heartbeat, 1)
	for _, l := range found {
		l.mu.Lock()
		if l.over == 0 && l.renewing == nil && !l.longest && now >= l.renewAt-ahead(l.ttl) {
			to := destination{c.nodes.leaderOf(l.id.Group()), c.keyOf(l.ticket)}
			if beats[to] == nil {
				beats[to] = newHeartbeat(c, to.keyID)
			}
			beats[to].add(l)
		}
		l.mu.Unlock()
	}
	for _, h := range beats {
		h.start()
	}
}

func newHeartbeat(c *Client, keyID string) *heartbeat {
	h := &heartbeat{client: c, keyID: keyID, timeout: c.cfg.AttemptTimeout}
	h.ctx, h.cancel = context.WithCancel(c.root)
	return h
}

// add takes a lease along. The caller holds its lock.
func (h *heartbeat) add(l *Lease) {
	h.leases = append(h.leases, l)
	h.timeout = min(h.timeout, l.attemptTimeout())
	h.wanted.Add(1)
	l.renewing = h
	l.plan()
}

func (h *heartbeat) start() {
	deadlines := make(map[*Lease]time.Duration, len(h.leases))
	for _, l := range h.leases {
		l.mu.Lock()
		deadlines[l] = l.deadline
		l.mu.Unlock()
	}
	slices.SortStableFunc(h.leases, func(a, b *Lease) int { return cmp.Compare(deadlines[a], deadlines[b]) })
	for _, l := range h.leases {
		h.ids = append(h.ids, l.id)
	}
	h.client.work.Go(func() {
		defer h.cancel()
		h.send()
	})
}

func (h *heartbeat) send() {
	c := h.client
	if c.single.is(c.clock.Now()) {
		h.sendEach()
		return
	}
	ctx := within(h.ctx, h.timeout, noAnswer)
	defer ctx.cancel()
	req := &lockpb.HeartbeatRequest{KeyId: h.keyID, LeaseIds: make([]string, len(h.ids))}
	for i, id := range h.ids {
		req.LeaseIds[i] = id.String()
	}
	sent := c.clock.Now()
	resp, err := c.locks.Heartbeat(ctx, req)
	if e, ok := errors.AsType[*Error](err); ok && e.Code == codes.Unimplemented {
		c.single.note(c.clock.Now())
		h.sendEach()
		return
	}
	again := pause(1, retryAfter(err))
	asOf := h.asOf(resp)
	for i, l := range h.leases {
		if err != nil {
			l.renewed(renewal{}, sent, err, again)
			continue
		}
		r, err := resultOf(resp, i, l)
		r.asOf = asOf
		l.renewed(r, sent, err, again)
	}
}

// asOf is the lease time of an answer. Each group has a clock of its own, and an answer of several says the latest of them,
// which is nothing to go by: then it is 0.
func (h *heartbeat) asOf(resp *lockpb.HeartbeatResponse) int64 {
	for _, id := range h.ids {
		if id.Group() != h.ids[0].Group() {
			return 0
		}
	}
	return resp.GetAsOf()
}

// resultOf is what a heartbeat's answer says of the lease at a place.
func resultOf(resp *lockpb.HeartbeatResponse, i int, l *Lease) (renewal, error) {
	if i >= len(resp.GetBeats()) || resp.GetBeats()[i].GetLeaseId() != l.id.String() {
		return renewal{}, &Error{Op: "renew", Resource: string(l.resource), Applied: lockpb.Applied_MAYBE, Code: codes.Internal, Message: "the coordinator's answer has no place for this lease"}
	}
	b := resp.GetBeats()[i]
	if b.GetRefusal() != nil {
		e := &Error{Op: "renew", Resource: string(l.resource), Code: codes.FailedPrecondition}
		e.fill(b.GetRefusal())
		return renewal{}, e
	}
	return renewal{remaining: millis(b.GetRemaining()), ticket: b.GetTicket()}, nil
}

// maxSingles bounds the renewals that are sent at once where there are no heartbeats.
const maxSingles = 32

// sendEach renews each lease by itself, at a coordinator that knows no heartbeats.
func (h *heartbeat) sendEach() {
	c := h.client
	places := make(chan struct{}, maxSingles)
	var sending sync.WaitGroup
	defer sending.Wait()
	for _, l := range h.leases {
		places <- struct{}{}
		sending.Go(func() {
			defer func() { <-places }()
			ctx := within(h.ctx, h.timeout, noAnswer)
			defer ctx.cancel()
			sent := c.clock.Now()
			resp, err := c.locks.Renew(ctx, &lockpb.RenewRequest{LeaseId: l.id.String()})
			l.renewed(renewalOf(resp), sent, err, pause(1, retryAfter(err)))
		})
	}
}

// renewed takes the answer to a renewal that left at sent. After a failure the next attempt is made when again has
// passed, or later if it is not the first.
func (l *Lease) renewed(r renewal, sent time.Duration, err error, again time.Duration) {
	var ended error
	l.mu.Lock()
	l.renewing = nil
	switch {
	case l.over != 0:
	case err == nil:
		l.extend(r, sent)
		l.plan()
	case gone(err):
		ended = err
	case errors.Is(err, ErrHoldTooLong):
		l.stop(err)
		l.plan()
	default:
		l.failure = err
		l.failures++
		l.renewAt = l.c.clock.Now() + min(max(again, shortestPause(l.failures)), l.ttl/10)
		l.plan()
	}
	l.mu.Unlock()
	switch {
	case ended != nil:
		l.lose(ended)
	case err != nil:
		l.c.log.Debug("renewal failed", "resource", l.resource, "token", uint64(l.token), "err", err)
	}
}

// shortestPause is the shortest pause after the nth failure in a row. It is the same for leases that failed together, so that
// they are renewed together again.
func shortestPause(nth int) time.Duration {
	if nth >= 6 {
		return maxPause / 2
	}
	return min(minPause<<(nth-1), maxPause) / 2
}

// belief is that the coordinator lacks something. It is looked at again after a minute: it may be upgraded.
type belief struct{ until atomic.Int64 }

func (b *belief) note(now time.Duration)    { b.until.Store(int64(now + plainFor)) }
func (b *belief) is(now time.Duration) bool { return int64(now) < b.until.Load() }
