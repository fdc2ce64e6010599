package lock

import (
	"cmp"
	"math"
	"slices"

	"github.com/lychgate/lychgate/chaos/seeded"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// The wait-for graph. Its nodes are owners. A waiter whose caller is there waits for those who hold the resource in a
// mode that its own does not fit, and for the waiters ahead of it whose callers are there and whose mode it does not
// fit. An edge begins with an acquire that is queued or a waiter whose caller comes back, so a cycle can begin nowhere
// else: that command is refused, and the graph never has one.
//
// What is stored is who waits; who holds is found from the resources. A search goes from resource to resource, and
// looks at those alone who wait on another one, so a queue of thousands costs no more than a short one.

// maxSearch bounds the steps of one search: holders, waiters and owners looked at. A request whose search comes to the
// bound is taken for harmless; if it is not, the wait's deadline ends the deadlock.
const maxSearch = 20_000

// watch puts a waiter whose caller is there into the graph.
func (m *Machine) watch(w slot) {
	rec := m.waiters.peek(w)
	o := m.ownerOf(rec.request)
	own := append(m.waits[o], w)
	slices.SortFunc(own, m.bySeq)
	m.waits[o] = own
	switch len(own) {
	case 1:
	case 2:
		m.torn[o] = struct{}{}
		m.tornWaits += 2
	default:
		m.tornWaits++
	}
	r := m.resources[m.resourceOf(rec.request)]
	r.attached++
	if rec.mode == lease.Exclusive {
		r.barriers++
	}
	m.watched++
	if m.isNamed(rec.request) {
		m.namedWaits++
	}
}

// unwatch takes it out.
func (m *Machine) unwatch(w slot) {
	rec := m.waiters.peek(w)
	o := m.ownerOf(rec.request)
	own := m.waits[o]
	own = slices.DeleteFunc(own, func(x slot) bool { return x == w })
	switch len(own) {
	case 0:
		delete(m.waits, o)
	case 1:
		delete(m.torn, o)
		m.tornWaits -= 2
		m.waits[o] = own
	default:
		m.tornWaits--
		m.waits[o] = own
	}
	r := m.resources[m.resourceOf(rec.request)]
	r.attached--
	if rec.mode == lease.Exclusive {
		r.barriers--
	}
	m.watched--
	if m.isNamed(rec.request) {
		m.namedWaits--
	}
}

func (m *Machine) bySeq(a, b slot) int {
	return cmp.Compare(m.waiters.peek(a).seq, m.waiters.peek(b).seq)
}

// ownerOf is the node of the graph that a claim belongs to.
func (m *Machine) ownerOf(q slot) Owner {
	r := m.requests.peek(q)
	identity := m.clients.peek(r.client).identity
	if !m.texts.owned(r.text()) {
		return Owner{identity, string(m.nameOf(r.client))}
	}
	return Owner{identity, m.wordsOf(q).owner}
}

// isNamed reports whether a claim's owner is another than its client.
func (m *Machine) isNamed(q slot) bool {
	r := m.requests.peek(q)
	return m.texts.owned(r.text()) && m.wordsOf(q).owner != string(m.clients.peek(r.client).nameIn(&m.rolls))
}

// cycleOf finds the cycle that a new request would close by waiting, nil if it closes none.
func (m *Machine) cycleOf(c Acquire) []Owner {
	if m.version < 2 || seeded.Is(seeded.DeadlockUnseen) {
		return nil
	}
	goal := Owner{c.Identity, cmp.Or(c.Owner, string(c.Client))}
	s := search{m: m, goal: goal}
	s.nodes = append(s.nodes, node{owner: goal, resource: c.Resource, mode: c.Mode, seq: math.MaxUint64, from: -1})
	return s.run()
}

// cycleThrough finds a cycle that goes through a waiter, which was put into the graph just now, nil if there is none. The
// waiter's being there bars the way for those behind it, so the cycle may leave its owner by another wait.
func (m *Machine) cycleThrough(w slot) []Owner {
	if m.version < 2 {
		return nil
	}
	goal := m.ownerOf(m.waiters.peek(w).request)
	s := search{m: m, goal: goal}
	s.add(w, -1)
	for _, other := range m.waits[goal] {
		if other != w {
			s.add(other, -1)
		}
	}
	return s.run()
}

// search looks for a way from the first nodes back to their owner, the nearest first.
type search struct {
	m     *Machine
	goal  Owner
	nodes []node
	seen  map[slot]struct{}           // waiters that are nodes
	ahead map[lease.Resource]uint64   // all that is ahead of this place was looked at
	held  map[lease.Resource]struct{} // the holders were looked at
	steps int
}

// node is a wait that was reached from another one.
type node struct {
	owner    Owner
	resource lease.Resource
	mode     lease.Mode
	seq      uint64 // its place: what is ahead has lower ones
	from     int    // index of the wait that waits for this one's owner, or -1
}

func (s *search) run() []Owner {
	for i := 0; i < len(s.nodes) && s.steps < maxSearch; i++ {
		if s.meets(i) {
			return s.path(i)
		}
	}
	return nil
}

// path lists the owners from the goal to a node that waits for the goal.
func (s *search) path(i int) []Owner {
	var owners []Owner
	for ; i >= 0; i = s.nodes[i].from {
		owners = append(owners, s.nodes[i].owner)
	}
	slices.Reverse(owners)
	return owners
}

// meets reports whether a node waits for the goal, and adds the waits of those whom it waits for.
func (s *search) meets(i int) bool {
	n := s.nodes[i]
	r := s.m.lookUp(n.resource)
	if r == nil {
		return false
	}
	if n.mode == lease.Shared {
		if w, ok := s.barrier(r, n.seq); ok {
			o := s.m.ownerOf(s.m.waiters.peek(w).request)
			s.addAll(o, i)
			return o == s.goal
		}
		if s.m.sharesWith(r, lease.Shared) {
			return false
		}
		return s.meetsHolders(r, i)
	}
	if s.ahead[n.resource] < n.seq {
		if s.ahead == nil {
			s.ahead = make(map[lease.Resource]uint64)
		}
		s.ahead[n.resource] = n.seq
		if s.meetsQueue(i) {
			return true
		}
	}
	return s.meetsHolders(r, i)
}

// barrier finds the exclusive waiter next ahead of a shared one's place.
func (s *search) barrier(r *resource, seq uint64) (slot, bool) {
	if r.barriers == 0 {
		return none, false
	}
	at, _ := s.m.place(r, seq)
	for at--; at >= 0; at-- {
		s.steps++
		if w := s.m.waiters.peek(r.queue[at]); w.attached && w.mode == lease.Exclusive {
			return r.queue[at], true
		}
	}
	return none, false
}

// meetsQueue looks at those ahead of an exclusive waiter. Their waits on this resource lead nowhere that its own does not.
func (s *search) meetsQueue(i int) bool {
	n := s.nodes[i]
	for _, w := range s.m.waits[s.goal] {
		s.steps++
		if rec := s.m.waiters.peek(w); s.m.isOn(rec.request, n.resource) && rec.seq < n.seq {
			return true
		}
	}
	s.addTorn(i)
	return false
}

// addTorn adds the other waits of those ahead of a node who wait on more than one resource. It looks at the queue or at
// all such owners, whatever is less.
func (s *search) addTorn(i int) {
	n := s.nodes[i]
	r := s.m.lookUp(n.resource)
	if !s.afford(min(len(r.queue), s.m.tornWaits)) {
		return
	}
	if s.m.tornWaits <= len(r.queue) {
		for _, o := range inOrder(s.m, s.m.torn, func(o Owner) bool { return s.isAhead(o, n) }) {
			s.addAll(o, i)
		}
		return
	}
	for _, w := range r.queue {
		rec := s.m.waiters.peek(w)
		if rec.seq >= n.seq {
			return
		}
		if o := s.m.ownerOf(rec.request); rec.attached && len(s.m.waits[o]) > 1 {
			s.addAll(o, i)
		}
	}
}

// afford takes steps, or ends the search if it has not so many left.
func (s *search) afford(steps int) bool {
	s.steps += steps
	return s.steps < maxSearch
}

// isAhead reports whether the owner waits ahead of a node, on its resource.
func (s *search) isAhead(o Owner, n node) bool {
	return slices.ContainsFunc(s.m.waits[o], func(w slot) bool {
		rec := s.m.waiters.peek(w)
		return s.m.isOn(rec.request, n.resource) && rec.seq < n.seq
	})
}

// meetsHolders looks at those who hold a node's resource.
func (s *search) meetsHolders(r *resource, i int) bool {
	name := s.nodes[i].resource
	if _, again := s.held[name]; again || r.holders() == 0 {
		return false
	}
	if s.held == nil {
		s.held = make(map[lease.Resource]struct{})
	}
	s.held[name] = struct{}{}
	if s.holds(r, s.goal) {
		return true
	}
	if s.m.watched > int(r.attached) || s.mayWaitHere(r) {
		s.addHolders(r, i)
	}
	return false
}

// mayWaitHere reports whether an owner might have a lease and a wait on the same resource. A client cannot, so it takes
// two of them, and a name that is not the client's.
func (s *search) mayWaitHere(r *resource) bool {
	switch {
	case s.m.namedWaits > 0:
		return true
	case r.crowd != nil:
		return r.crowd.named > 0
	}
	return s.m.isNamed(r.holder)
}

// addHolders adds the waits of those who hold a node's resource. It looks at the holders or at all who wait, whatever is
// less; at the holders too if it would have to look through them for each who waits.
func (s *search) addHolders(r *resource, i int) {
	if len(s.m.waits) == 0 || !s.afford(min(r.holders(), len(s.m.waits))) {
		return
	}
	if r.holders() <= len(s.m.waits) || r.crowd.named > 0 {
		if !s.afford(r.holders()) {
			return
		}
		for l := range r.all() {
			s.addAll(s.m.ownerOf(l), i)
		}
		return
	}
	for _, o := range inOrder(s.m, s.m.waits, func(o Owner) bool { return s.holds(r, o) }) {
		s.addAll(o, i)
	}
}

// holds reports whether an owner has a lease on the resource. In a crowd its client of the same name is found at once;
// only leases with owners of their own are looked through.
func (s *search) holds(r *resource, o Owner) bool {
	m := s.m
	if r.crowd == nil {
		return r.holder != none && m.ownerOf(r.holder) == o
	}
	if client, ok := m.findClient(o.Identity, lease.ClientID(o.Name)); ok {
		if l, ok := m.leaseOf(r, client); ok && m.ownerOf(l) == o {
			return true
		}
	}
	if r.crowd.named == 0 {
		return false
	}
	if !s.afford(r.holders()) {
		return false
	}
	for l := range r.all() {
		if m.ownerOf(l) == o {
			return true
		}
	}
	return false
}

// inOrder lists the owners that pass, by their oldest waits: the same on every replica, whatever the map's order.
func inOrder[V any](m *Machine, set map[Owner]V, pass func(Owner) bool) []Owner {
	var owners []Owner
	for o := range set {
		if pass(o) {
			owners = append(owners, o)
		}
	}
	slices.SortFunc(owners, func(a, b Owner) int { return m.bySeq(m.waits[a][0], m.waits[b][0]) })
	return owners
}

func (s *search) addAll(o Owner, from int) {
	for _, w := range s.m.waits[o] {
		s.steps++
		s.add(w, from)
	}
}

// add makes a wait a node, once.
func (s *search) add(w slot, from int) {
	if _, again := s.seen[w]; again {
		return
	}
	if s.seen == nil {
		s.seen = make(map[slot]struct{})
	}
	s.seen[w] = struct{}{}
	rec := s.m.waiters.peek(w)
	s.nodes = append(s.nodes, node{owner: s.m.ownerOf(rec.request), resource: s.m.resourceOf(rec.request), mode: rec.mode, seq: rec.seq, from: from})
}
