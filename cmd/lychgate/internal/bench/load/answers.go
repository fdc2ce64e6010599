package load

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// How long a call that could not be served now waits before it is sent again, and for how long it is.
const (
	retryPause = 20 * time.Millisecond
	patience   = 30 * time.Second
)

// answered takes an answer of the wire.
func (d *driver) answered(a *lockpb.Answer) {
	now := Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.pending[a.GetId()]
	if c == nil {
		return // of the opening, or of a wire that broke
	}
	if f := a.GetFailure(); f != nil && d.retry(c, f) {
		return
	}
	delete(d.pending, c.id)
	switch c.class {
	case acquires:
		d.acquired(c, a, now)
	case releases:
		d.released(c, a, now)
	case renewals:
		d.renewed(c, a, now)
	}
	d.end()
}

// retry puts a call aside that may be served later, and reports whether it did.
func (d *driver) retry(c *call, f *lockpb.Failure) bool {
	if codes.Code(f.GetCode()) == codes.Unimplemented && len(c.beats) > 0 {
		d.single = true // a node without heartbeats
		delete(d.pending, c.id)
		for _, slot := range c.beats {
			if id := d.clients[c.client].slots[slot].id; id != "" {
				one := d.newCall(renewals, c.client, slot, c.due)
				one.msg.Kind = &lockpb.Call_Renew{Renew: &lockpb.RenewRequest{LeaseId: id}}
				d.again = append(d.again, one)
			}
		}
		return true
	}
	if !temporary(f) || d.now() > c.due+patience {
		return false
	}
	c.maybe = c.maybe || f.GetRefusal().GetApplied() != lockpb.Applied_NO
	c.notBefore = d.now() + max(retryPause, time.Duration(f.GetRefusal().GetRetryAfter())*time.Millisecond)
	d.again = append(d.again, c)
	return true
}

// temporary reports whether the same call may well succeed a little later.
func temporary(f *lockpb.Failure) bool {
	switch f.GetRefusal().GetReason() {
	case lockpb.Reason_OVERLOADED, lockpb.Reason_NO_LEADER, lockpb.Reason_OUTCOME_UNKNOWN, lockpb.Reason_STOPPING,
		lockpb.Reason_ALREADY_HELD: // its release is on the way
		return true
	case lockpb.Reason_REASON_UNSPECIFIED:
		return slices.Contains([]codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.Canceled, codes.Aborted, codes.ResourceExhausted}, codes.Code(f.GetCode()))
	default:
		return false
	}
}

func (d *driver) acquired(c *call, a *lockpb.Answer, now int64) {
	m := &d.clients[c.client]
	s := &m.slots[c.slot]
	m.open = slices.DeleteFunc(m.open, func(n uint64) bool { return n == c.sequence })
	s.asking = false
	if c.fill {
		d.filling--
		if d.got++; d.got == len(d.clients)*d.plan.Mix.Leases {
			close(d.filled)
		}
	}
	got := a.GetAcquire()
	if got == nil {
		d.failed(c, a)
		return
	}
	if last := s.tokens[s.side]; got.GetFencingToken() <= last {
		d.violated("%s: token %d after %d", got.GetResource(), got.GetFencingToken(), last)
	}
	s.tokens[s.side] = got.GetFencingToken()
	s.id, s.deadline = got.GetLeaseId(), c.sent+int64(got.GetRemaining())*int64(time.Millisecond)
	d.done(c, now, 1)
	if d.plan.Mix.Keep && d.measured(c) {
		d.records = append(d.records, Record{
			Worker: uint32(d.number(c.client)), Resource: uint32(d.number(c.client)*d.plan.Mix.Leases+c.slot)*2 + uint32(s.side),
			Asked: At(d.began.Add(c.due)), Granted: now, Token: got.GetFencingToken(),
		})
	}
}

func (d *driver) released(c *call, a *lockpb.Answer, now int64) {
	f := a.GetFailure()
	switch {
	case f == nil:
		d.done(c, now, 1)
	case f.GetRefusal().GetReason() == lockpb.Reason_LEASE_ENDED && c.maybe:
		d.done(c, now, 1)
	case f.GetRefusal().GetReason() == lockpb.Reason_LEASE_ENDED:
		d.lost++
	default:
		d.failed(c, a)
	}
}

func (d *driver) renewed(c *call, a *lockpb.Answer, now int64) {
	switch {
	case a.GetRenew() != nil:
		d.extend(c, c.slot, a.GetRenew().GetLeaseId(), a.GetRenew().GetRemaining())
		d.done(c, now, 1)
	case a.GetHeartbeat() != nil:
		n := 0
		for _, b := range a.GetHeartbeat().GetBeats() {
			if b.GetRefusal() == nil {
				d.extendAny(c, b.GetLeaseId(), b.GetRemaining())
				n++
				continue
			}
			d.refused(c, b.GetLeaseId(), b.GetRefusal(), now)
		}
		d.done(c, now, n)
	default:
		id := c.msg.GetRenew().GetLeaseId()
		if r := a.GetFailure().GetRefusal(); r.GetReason() == lockpb.Reason_LEASE_ENDED && id != "" {
			d.refused(c, id, r, now)
			return
		}
		d.failed(c, a)
	}
}

func (d *driver) extend(c *call, slot int, id string, remaining int32) {
	if s := &d.clients[c.client].slots[slot]; s.id == id {
		s.deadline = max(s.deadline, c.sent+int64(remaining)*int64(time.Millisecond))
	}
}

func (d *driver) extendAny(c *call, id string, remaining int32) {
	for _, slot := range c.beats {
		d.extend(c, slot, id, remaining)
	}
}

// refused takes the refusal of one lease's renewal. A lease that the client has given back meanwhile is none of it.
func (d *driver) refused(c *call, id string, r *lockpb.Refusal, now int64) {
	for i := range d.clients[c.client].slots {
		s := &d.clients[c.client].slots[i]
		if s.id != id {
			continue
		}
		if r.GetReason() != lockpb.Reason_LEASE_ENDED {
			d.failure(fmt.Sprintf("renew: %v", r.GetReason()))
			return
		}
		s.id = ""
		d.lost++
		if d.to == 0 { // its holder takes the lock anew
			d.again = append(d.again, d.acquire(c.client, i, d.now()))
		}
		if now < s.deadline {
			d.violated("client %d: a lease ended %v before its time", d.number(c.client), time.Duration(s.deadline-now))
		}
		return
	}
}

func (d *driver) measured(c *call) bool {
	return d.from > 0 && c.due >= d.from && (d.to == 0 || c.due < d.to)
}

// done counts a call that did n lease operations: what is answered in the measured time is done in it, and the latency is
// of those that were to be sent in it.
func (d *driver) done(c *call, now int64, n int) {
	if d.from > 0 && now >= At(d.began.Add(d.from)) && (d.to == 0 || now < At(d.began.Add(d.to))) {
		d.operations += int64(n)
	}
	if d.measured(c) {
		d.latencies[c.class].Add(time.Duration(now - At(d.began.Add(c.due))))
	}
}

func (d *driver) failed(c *call, a *lockpb.Answer) {
	f := a.GetFailure()
	d.failure(fmt.Sprintf("%s: %v: %s", c.class, codes.Code(f.GetCode()), cmp.Or(f.GetMessage(), f.GetRefusal().GetReason().String())))
}

func (d *driver) failure(text string) {
	d.fails++
	d.fail = cmp.Or(d.fail, text)
}

// maxViolations bounds what is told; one is enough to refuse the run.
const maxViolations = 10

func (d *driver) violated(format string, args ...any) {
	if len(d.violations) < maxViolations {
		d.violations = append(d.violations, fmt.Sprintf(format, args...))
	}
}
