package lock

import (
	"bytes"
	"iter"
	"slices"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// Info is what a node reports about its replica.
type Info struct {
	Initialised bool
	Cluster     string
	Version     uint32
	Incarnation uint32
	Config      Config
	Index       uint64    // of the last entry applied
	Now         LeaseTime // of the last entry applied
	Leases      int
	Waiters     int
	Requests    int // remembered, live ones included
	Clients     int
}

// Info describes the machine as it stands.
func (m *Machine) Info() Info {
	return Info{
		Initialised: m.initialised,
		Cluster:     m.cluster,
		Version:     m.version,
		Incarnation: m.incarnation,
		Config:      m.config,
		Index:       m.index,
		Now:         m.now,
		Leases:      m.held,
		Waiters:     m.waiters.count,
		Requests:    m.requests.count,
		Clients:     m.clients.count,
	}
}

// Timed reports whether anything will happen by the passing of lease time alone, so that the leader must tick.
func (m *Machine) Timed() bool {
	return m.headStart != 0 || m.held > 0 || m.waiters.count > 0 || m.clients.count > 0 || m.delays.count > 0 ||
		slices.ContainsFunc(m.keys, Key.Retiring) ||
		slices.ContainsFunc(m.policies, func(p policyRecord) bool { return p.filling(m.now) })
}

// Keys lists the nodes' ticket keys by node and key id. The caller must not change them.
func (m *Machine) Keys() []Key { return slices.Clone(m.keys) }

// View is a resource as others may see it.
type View struct {
	Resource lease.Resource
	Holders  []Holder // in the order of their grants, the first MaxViewHolders of them; empty: free
	Holding  int      // all holders
	Waiters  []Waiter // head first, the first MaxViewWaiters of them
	Waiting  int      // all waiters
	// ClosedUntil is when a lock-delay is over; 0 if there is none.
	ClosedUntil LeaseTime
}

// MaxViewHolders bounds the holders in one View.
const MaxViewHolders = 100

// MaxViewWaiters bounds the waiters in one View.
const MaxViewWaiters = 100

// Waiter is a queued acquire as others may see it.
type Waiter struct {
	Resource lease.Resource
	Identity lease.Identity
	Client   lease.ClientID
	Request  lease.RequestID
	Mode     lease.Mode
	Attached bool      // its caller is there
	Deadline LeaseTime // when it gives up
}

// Get describes one resource.
func (m *Machine) Get(name lease.Resource) View {
	v := View{Resource: name}
	r := m.lookUp(name)
	if r == nil {
		return v
	}
	v.Holding = r.holders()
	for l := range r.all() {
		if len(v.Holders) == MaxViewHolders {
			break
		}
		v.Holders = append(v.Holders, m.holderOf(l))
	}
	if r.delay != none {
		v.ClosedUntil = m.delays.peek(r.delay).until
	}
	v.Waiting = len(r.queue)
	for _, w := range r.queue[:min(len(r.queue), MaxViewWaiters)] {
		v.Waiters = append(v.Waiters, m.waiterOf(w))
	}
	return v
}

// Queue walks the waiters of a resource from the head, all of them.
func (m *Machine) Queue(name lease.Resource) iter.Seq[Waiter] {
	return func(yield func(Waiter) bool) {
		r := m.lookUp(name)
		if r == nil {
			return
		}
		for _, w := range r.queue {
			if !yield(m.waiterOf(w)) {
				return
			}
		}
	}
}

// List describes the resources that are held or awaited, that begin with the prefix and that come after the given
// name ("" for the first page), in the order of their names, at most limit of them. It looks at every resource.
func (m *Machine) List(prefix string, after lease.Resource, limit int) []View {
	return m.ListWhere(prefix, after, limit, func(lease.Resource) bool { return true })
}

// ListWhere is List without the resources that show does not want.
func (m *Machine) ListWhere(prefix string, after lease.Resource, limit int, show func(lease.Resource) bool) []View {
	var names []lease.Resource // the first ones so far, in order
	for text := range m.texts.resources {
		full := len(names) >= limit && (limit <= 0 || string(text) >= string(names[limit-1]))
		if full || string(text) <= string(after) || !bytes.HasPrefix(text, []byte(prefix)) {
			continue
		}
		name := lease.Resource(text)
		at, again := slices.BinarySearch(names, name)
		if again || !show(name) {
			continue
		}
		names = slices.Insert(names, at, name)
		names = names[:min(len(names), limit)]
	}
	views := make([]View, len(names))
	for i, name := range names {
		views[i] = m.Get(name)
	}
	return views
}

// Deadline is that of a live lease; false if it never was or has ended.
func (m *Machine) Deadline(id lease.ID) (LeaseTime, bool) {
	l, ok := m.findLease(id)
	if !ok {
		return 0, false
	}
	return m.requests.peek(l).due, true
}

// Holder is the client of a live lease; false if it never was or has ended.
func (m *Machine) Holder(id lease.ID) (lease.ClientID, bool) {
	l, ok := m.findLease(id)
	if !ok {
		return "", false
	}
	return m.nameOf(m.requests.peek(l).client), true
}

// Lease describes a live lease; false if it never was or has ended.
func (m *Machine) Lease(id lease.ID) (Grant, bool) {
	l, ok := m.findLease(id)
	if !ok {
		return Grant{}, false
	}
	return m.grantOf(l), true
}

// Request tells what an acquire has become, and its lease if that is held.
func (m *Machine) Request(by lease.Identity, client lease.ClientID, id lease.RequestID) (RequestState, Grant) {
	q, ok := m.find(by, client, id)
	if !ok {
		return RequestUnknown, Grant{}
	}
	switch m.requests.peek(q).stage {
	case StageWaiting:
		return RequestWaiting, Grant{}
	case StageHeld:
		return RequestHeld, m.grantOf(q)
	case StageEnded, StageCancelled:
		return RequestEnded, Grant{}
	case StageForestalled:
	}
	return RequestUnknown, Grant{}
}

func (m *Machine) grantOf(l slot) Grant {
	t := m.termsOf(l)
	return m.describe(l, &t)
}

// describe is grantOf a lease whose terms these are.
func (m *Machine) describe(l slot, t *terms) Grant {
	q := m.requests.peek(l)
	text, name := m.partiesOf(q)
	return Grant{
		Resource: text.resource, Lease: t.lease, Token: t.token, Mode: q.mode,
		Identity: m.clients.peek(q.client).identity, Client: name, Request: text.id,
		TTL: t.ttl, Since: t.since, Deadline: q.due,
	}
}

func (m *Machine) holderOf(l slot) Holder { return m.grantOf(l).holder() }

func (g Grant) holder() Holder {
	return Holder{
		Resource: g.Resource, Hash: g.Lease.Hash(), Token: g.Token, Mode: g.Mode,
		Identity: g.Identity, Client: g.Client, Since: g.Since, Deadline: g.Deadline,
	}
}

func (m *Machine) waiterOf(w slot) Waiter {
	rec := m.waiters.peek(w)
	q := m.requests.peek(rec.request)
	c := m.clients.peek(q.client)
	text, name := m.partiesOf(q)
	return Waiter{
		Resource: text.resource, Identity: c.identity, Client: name, Request: text.id,
		Mode: rec.mode, Attached: rec.attached, Deadline: rec.deadline,
	}
}

// firstOf tells who is in the way of a newcomer.
func (m *Machine) firstOf(r *resource) Holder {
	if r.holders() > 0 {
		return m.holderOf(r.first())
	}
	w := m.waiterOf(r.queue[0])
	return Holder{Resource: w.Resource, Mode: w.Mode, Identity: w.Identity, Client: w.Client}
}

// Waiting tells how a request stands that is queued; false if it is not.
func (m *Machine) Waiting(by lease.Identity, client lease.ClientID, id lease.RequestID) (Waiting, bool) {
	q, ok := m.find(by, client, id)
	if !ok || m.requests.peek(q).stage != StageWaiting {
		return Waiting{}, false
	}
	return m.waitingOf(m.termsOf(q).waiter), true
}

func (m *Machine) waitingOf(w slot) Waiting {
	rec := m.waiters.get(w)
	r := m.resources[m.resourceOf(rec.request)]
	at, _ := m.place(r, rec.seq)
	out := Waiting{Position: at + 1, Deadline: rec.deadline}
	if at > 0 || r.holders() > 0 {
		out.Holder = m.firstOf(r)
	}
	return out
}
