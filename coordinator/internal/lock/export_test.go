package lock

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// Check compares what the machine derives with what it derives it from, and looks for a waiter that should have
// been granted.
func (m *Machine) Check() error {
	for _, check := range []func() error{m.checkClients, m.checkRequests, m.checkClaims, m.checkResources, m.checkGraph, m.checkTenants} {
		if err := check(); err != nil {
			return err
		}
	}
	if over, idle := m.oblivions.len(), m.departures.len(); over > m.requests.count || idle > m.clients.count {
		return fmt.Errorf("%d requests and %d clients are timed, of %d and %d", over, idle, m.requests.count, m.clients.count)
	}
	return nil
}

func (m *Machine) checkClients() error {
	if m.byClient.count != m.clients.count {
		return fmt.Errorf("%d clients are indexed, of %d", m.byClient.count, m.clients.count)
	}
	for _, i := range m.clients.slots() {
		c := m.clients.get(i)
		if found, ok := m.findClient(c.identity, m.nameOf(i)); !ok || found != i {
			return fmt.Errorf("client %v is found as %d, %v", c, found, ok)
		}
		n := 0
		for _, q := range m.requests.slots() {
			if m.requests.get(q).client == i {
				n++
			}
		}
		if n != int(c.requests) || n > max(m.config.MaxRequests, 0) {
			return fmt.Errorf("client %q has %d requests and counts %d, %d are allowed", m.nameOf(i), n, c.requests, m.config.MaxRequests)
		}
		for _, n := range m.numberedOf(&c, int(c.numbered)) {
			if m.requests.get(n).client != i || m.sequenceOf(n) <= c.acknowledged {
				return fmt.Errorf("client %q has a wrong number %v", m.nameOf(i), n)
			}
		}
	}
	return nil
}

func (m *Machine) checkRequests() error {
	if m.byRequest.count != m.requests.count {
		return fmt.Errorf("%d requests are indexed, of %d", m.byRequest.count, m.requests.count)
	}
	over, held := 0, 0
	for _, q := range m.requests.slots() {
		r := m.requests.get(q)
		text := m.texts.words(r.text())
		if found, ok := m.findRequest(r.client, text.id); !ok || found != q {
			return fmt.Errorf("request %v of %v is found as %d, %v", text, r, found, ok)
		}
		if claims, _ := headOf(m.texts.peek(r.text())); claims == r.stage.over() {
			return fmt.Errorf("request %v has the words %v", r, text)
		}
		if r.stage.over() {
			over++
		}
		if r.stage == StageHeld {
			held++
		}
	}
	if held != m.held {
		return fmt.Errorf("%d leases, %d counted", held, m.held)
	}
	if over != m.oblivions.len() {
		return fmt.Errorf("%d requests are over, %d timed", over, m.oblivions.len())
	}
	return nil
}

func (m *Machine) checkClaims() error {
	if n := m.held + m.waiters.count; m.byLease.count != n {
		return fmt.Errorf("%d lease ids are indexed, of %d", m.byLease.count, n)
	}
	if m.expiries.len() != m.held || m.endings.len() != m.waiters.count || len(m.awaits) != m.waiters.count {
		return fmt.Errorf("%d and %d timers and %d claims for %d leases and %d waiters",
			m.expiries.len(), m.endings.len(), len(m.awaits), m.held, m.waiters.count)
	}
	for q := range m.byLease.all {
		r, t := m.requests.get(q), m.termsOf(q)
		if r.stage.over() || !t.claims || (t.waiter == none) != (r.stage == StageHeld) {
			return fmt.Errorf("request %d has a lease id, %+v and %+v", q, r, t)
		}
		if found, ok := m.findClaim(t.lease); !ok || found != q {
			return fmt.Errorf("request %d has the terms %v, found as %d, %v", q, t, found, ok)
		}
		if t.waiter == none {
			continue
		}
		if w := m.waiters.get(t.waiter); w.request != q || w.mode != r.mode || w.seq != r.seq {
			return fmt.Errorf("request %d has the waiter %+v", q, w)
		}
	}
	return nil
}

func (m *Machine) checkResources() error {
	leases, waiters := 0, 0
	for name, r := range m.everyResource {
		leases += r.holders()
		waiters += len(r.queue)
		if err := m.checkHolders(r); err != nil {
			return fmt.Errorf("resource %q: %w", name, err)
		}
		if kept := m.resources[name] != nil; kept == (r.crowd == nil && len(r.queue) == 0 && r.delay == none) {
			return fmt.Errorf("resource %q is kept: %v, for %+v", name, kept, r)
		}
		if !slices.IsSortedFunc(r.queue, func(a, b slot) int {
			return int(m.waiters.get(a).seq) - int(m.waiters.get(b).seq)
		}) {
			return fmt.Errorf("the queue of %q is not in order", name)
		}
		if len(r.queue) > m.config.MaxWaiters && len(m.policies) == 0 {
			return fmt.Errorf("resource %q has %d waiters", name, len(r.queue))
		}
		if run := m.nextRun(r); len(run) > 0 && (m.counter < maxCounter || r.holders() > 0) {
			return fmt.Errorf("resource %q can be had and %v is not granted", name, m.waiterOf(run[0]))
		}
	}
	if leases != m.held || waiters != m.waiters.count {
		return fmt.Errorf("resources have %d leases and %d waiters, of %d and %d", leases, waiters, m.held, m.waiters.count)
	}
	return nil
}

// everyResource walks the resources that are held, awaited or closed.
func (m *Machine) everyResource(yield func(lease.Resource, *resource) bool) {
	for name, r := range m.resources {
		if !yield(name, r) {
			return
		}
	}
	for q := range m.byResource.all {
		name := m.resourceOf(q)
		if !yield(name, m.lookUp(name)) {
			return
		}
	}
}

// SpendTokens leaves n tokens of the incarnation.
func (m *Machine) SpendTokens(n uint64) { m.counter = maxCounter - n }

// checkHolders looks for a resource whose leases do not go together, or are not found.
func (m *Machine) checkHolders(r *resource) error {
	var last uint64
	n, named := 0, 0
	for l := range r.all() {
		rec, seq, token := m.requests.get(l), m.leaseSeq(l), m.termsOf(l).token
		client := rec.client
		switch found, ok := m.leaseOf(r, client); {
		case !ok || found != l:
			return fmt.Errorf("the lease of client %d is found as %d, %v", client, found, ok)
		case seq <= last:
			return fmt.Errorf("its leases are not in order")
		case n > 0 && (rec.mode != lease.Shared || token != m.termsOf(r.first()).token):
			return fmt.Errorf("lease %d does not fit the first one", l)
		}
		if m.isNamed(l) {
			named++
		}
		last, n = seq, n+1
	}
	switch {
	case n != r.holders():
		return fmt.Errorf("it has %d leases and counts %d", n, r.holders())
	case r.crowd != nil && (n < 2 || r.crowd.named != named || len(r.crowd.slots) > 2*n+8):
		return fmt.Errorf("its crowd of %d has %d named and %d places", n, r.crowd.named, len(r.crowd.slots))
	}
	attached, barriers := 0, 0
	for _, w := range r.queue {
		if rec := m.waiters.get(w); rec.attached {
			attached++
			if rec.mode == lease.Exclusive {
				barriers++
			}
		}
	}
	if attached != int(r.attached) || barriers != int(r.barriers) {
		return fmt.Errorf("%d waiters are attached, %d of them exclusive; it counts %d and %d", attached, barriers, r.attached, r.barriers)
	}
	return nil
}

// checkGraph compares the wait-for graph with the waiters.
func (m *Machine) checkGraph() error {
	waits, named := make(map[Owner][]slot), 0
	for _, w := range m.waitersInOrder() {
		if rec := m.waiters.get(w); rec.attached {
			waits[m.ownerOf(rec.request)] = append(waits[m.ownerOf(rec.request)], w)
			if m.isNamed(rec.request) {
				named++
			}
		}
	}
	watched, torn, tornWaits := 0, 0, 0
	for o, own := range waits {
		if !slices.Equal(own, m.waits[o]) {
			return fmt.Errorf("owner %v waits with %v, the graph has %v", o, own, m.waits[o])
		}
		watched += len(own)
		if _, ok := m.torn[o]; ok != (len(own) > 1) {
			return fmt.Errorf("owner %v with %d waits is torn: %v", o, len(own), ok)
		}
		if len(own) > 1 {
			torn, tornWaits = torn+1, tornWaits+len(own)
		}
	}
	if named != m.namedWaits || len(waits) != len(m.waits) || watched != m.watched || torn != len(m.torn) || tornWaits != m.tornWaits {
		return fmt.Errorf("the graph counts %d owners and %d waits, %d and %d torn; want %d, %d, %d, %d",
			len(m.waits), m.watched, len(m.torn), m.tornWaits, len(waits), watched, torn, tornWaits)
	}
	return nil
}

// CheckAcyclic looks for an owner that waits for itself. There is none unless it began in cluster version 1.
func (m *Machine) CheckAcyclic() error {
	if o, found := cyclic(m.everyEdge(none)); found {
		return fmt.Errorf("owner %v waits for itself", o)
	}
	return nil
}

// ProvesCycle checks that a command which was refused for a deadlock would have closed the cycle that it was told.
func (m *Machine) ProvesCycle(c Acquire, cycle []Owner) error {
	back := none
	if q, ok := m.find(c.Identity, c.Client, c.Request); ok {
		back = m.termsOf(q).waiter
	}
	edges := m.everyEdge(back)
	goal := Owner{c.Identity, cmp.Or(c.Owner, string(c.Client))}
	for i, from := range cycle {
		to := cycle[(i+1)%len(cycle)]
		if !edges[from][to] && !(i == 0 && back == none && m.inTheWay(c, to)) {
			return fmt.Errorf("%v does not wait for %v in %v", from, to, cycle)
		}
	}
	if len(cycle) == 0 || cycle[0] != goal {
		return fmt.Errorf("the cycle %v does not begin with %v", cycle, goal)
	}
	return nil
}

// inTheWay reports whether a new request would wait for the owner.
func (m *Machine) inTheWay(c Acquire, o Owner) bool {
	r := m.lookUp(c.Resource)
	for l := range r.all() {
		if held := m.requests.get(l); m.ownerOf(l) == o && (held.mode == lease.Exclusive || c.Mode == lease.Exclusive) {
			return true
		}
	}
	return slices.ContainsFunc(r.queue, func(w slot) bool {
		rec := m.waiters.get(w)
		return rec.attached && m.ownerOf(rec.request) == o && (rec.mode == lease.Exclusive || c.Mode == lease.Exclusive)
	})
}

// everyEdge lists the graph plainly: each waiter with everything that is in its way. back is a waiter that is taken for
// attached.
func (m *Machine) everyEdge(back slot) map[Owner]map[Owner]bool {
	edges := make(map[Owner]map[Owner]bool)
	add := func(a, b slot) {
		from, to := m.ownerOf(a), m.ownerOf(b)
		if edges[from] == nil {
			edges[from] = make(map[Owner]bool)
		}
		edges[from][to] = true
	}
	for _, r := range m.everyResource {
		for i, w := range r.queue {
			rec := m.waiters.get(w)
			if !rec.attached && w != back {
				continue
			}
			for _, v := range r.queue[:i] {
				if other := m.waiters.get(v); (other.attached || v == back) && (other.mode == lease.Exclusive || rec.mode == lease.Exclusive) {
					add(rec.request, other.request)
				}
			}
			for l := range r.all() {
				if held := m.requests.get(l); held.mode == lease.Exclusive || rec.mode == lease.Exclusive {
					add(rec.request, l)
				}
			}
		}
	}
	return edges
}

// cyclic takes away who waits for nobody, until nobody is left or nobody can go.
func cyclic(edges map[Owner]map[Owner]bool) (Owner, bool) {
	for len(edges) > 0 {
		before := len(edges)
		for from, to := range edges {
			for o := range to {
				if edges[o] == nil {
					delete(to, o)
				}
			}
			if len(to) == 0 {
				delete(edges, from)
			}
		}
		if len(edges) == before {
			for o := range edges {
				return o, true
			}
		}
	}
	return Owner{}, false
}

func (m *Machine) checkTenants() error {
	counts := make(map[string]tenantRecord)
	for _, i := range m.clients.slots() {
		c := m.clients.get(i)
		t := counts[c.identity.Tenant()]
		t.name = c.identity.Tenant()
		t.clients++
		counts[t.name] = t
	}
	for _, q := range m.requests.slots() {
		r := m.requests.get(q)
		t := counts[m.clients.get(r.client).identity.Tenant()]
		t.requests++
		switch r.stage {
		case StageWaiting:
			t.waiters++
		case StageHeld:
			t.leases++
		case StageEnded, StageCancelled, StageForestalled:
		}
		counts[t.name] = t
	}
	if len(counts) != len(m.byTenant) || len(counts) != m.tenants.count {
		return fmt.Errorf("%d tenants, %d indexed, %d kept", len(counts), len(m.byTenant), m.tenants.count)
	}
	for name, want := range counts {
		want.latest = m.tenants.get(m.byTenant[name]).latest
		if got := m.tenants.get(m.byTenant[name]); got != want {
			return fmt.Errorf("tenant %q counts %+v, want %+v", name, got, want)
		}
	}
	return nil
}
