package load

import (
	"slices"
	"time"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// call is one that has no answer yet.
type call struct {
	id           uint64
	class        string
	client, slot int
	due          time.Duration // since the start: when it was to be sent
	sent         int64
	maybe        bool // an earlier copy may have taken effect
	fill         bool
	notBefore    time.Duration
	sequence     uint64
	beats        []int // slots of a heartbeat
	msg          *lockpb.Call
}

func (d *driver) newCall(class string, client, slot int, due time.Duration) *call {
	d.ids++
	c := &call{id: d.ids, class: class, client: client, slot: slot, due: due, sent: Now(), msg: &lockpb.Call{Id: d.ids}}
	d.pending[c.id] = c
	return c
}

// number is what a client of this driver is called among all.
func (d *driver) number(client int) int { return client*max(1, d.plan.Mix.Streams) + d.share }

// acquire asks for the resource of a slot's side. The caller holds mu, as of all here.
func (d *driver) acquire(client, slot int, due time.Duration) *call {
	m := &d.clients[client]
	s := &m.slots[slot]
	s.asking = true
	c := d.newCall(acquires, client, slot, due)
	m.sequence++
	c.sequence = m.sequence
	m.open = append(m.open, c.sequence)
	n := d.number(client)
	ttl := d.plan.TTL
	if d.plan.Mix.Together > 0 {
		ttl = time.Duration(d.plan.Mix.Together - Now())
	}
	c.msg.Kind = &lockpb.Call_Acquire{Acquire: &lockpb.AcquireRequest{
		Resource: resourceName(d.plan.Prefix, n, slot, int(s.side)), ClientId: clientName(d.plan.Prefix, n),
		RequestId: requestName(n, c.sequence), Ttl: new(int32(ttl.Milliseconds())),
		Sequence: c.sequence, Acknowledged: slices.Min(m.open) - 1, NoTicket: !d.plan.Ticketed,
	}}
	return c
}

// change has a client give one of its leases back and take another in its place.
func (d *driver) change(calls []*lockpb.Call, k int, due time.Duration) []*lockpb.Call {
	client := k % len(d.clients)
	slot := k / len(d.clients) % d.plan.Mix.Leases
	s := &d.clients[client].slots[slot]
	if s.asking {
		return calls // the answer to the last one has not come: it counts there
	}
	if s.id != "" {
		c := d.newCall(releases, client, slot, due)
		c.msg.Kind = &lockpb.Call_Release{Release: &lockpb.ReleaseRequest{LeaseId: s.id}}
		s.id = ""
		calls = append(calls, c.msg)
	}
	s.side ^= 1
	return append(calls, d.acquire(client, slot, due).msg)
}

// beat has a client renew all that it holds.
func (d *driver) beat(calls []*lockpb.Call, client int, due time.Duration) []*lockpb.Call {
	m := &d.clients[client]
	var ids []string
	var slots []int
	for i, s := range m.slots {
		if s.id == "" {
			continue
		}
		if d.single {
			c := d.newCall(renewals, client, i, due)
			c.msg.Kind = &lockpb.Call_Renew{Renew: &lockpb.RenewRequest{LeaseId: s.id}}
			calls = append(calls, c.msg)
			continue
		}
		ids, slots = append(ids, s.id), append(slots, i)
	}
	if len(ids) == 0 {
		return calls
	}
	c := d.newCall(renewals, client, 0, due)
	c.beats = slots
	c.msg.Kind = &lockpb.Call_Heartbeat{Heartbeat: &lockpb.HeartbeatRequest{LeaseIds: ids}}
	return append(calls, c.msg)
}
