package lock

import (
	"fmt"
	"slices"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// Restorer builds a machine from the parts of a snapshot, in the order in which the snapshot has them. It checks
// what the machine relies on, since the parts come from a disk or a peer.
type Restorer struct {
	m      *Machine
	client slot
	any    bool
	seqs   map[uint64]struct{}
}

// NewRestorer begins with the header.
func NewRestorer(h Header) (*Restorer, error) { return restorerInto(New(), h) }

// restorerInto begins with a machine before its first entry.
func restorerInto(m *Machine, h Header) (*Restorer, error) {
	if err := checkHeader(h); err != nil {
		return nil, err
	}
	m.initialised, m.cluster, m.version, m.incarnation = h.Initialised, h.Cluster, h.Version, h.Incarnation
	m.config, m.index, m.now = h.Config, h.Index, h.Now
	m.counter, m.seq, m.headStart = h.Counter, h.Seq, h.HeadStart
	m.keys, m.members = slices.Clone(h.Keys), slices.Clone(h.Members)
	m.rules = rulesOf(m.config)
	if err := m.restorePolicies(h.Policies); err != nil {
		return nil, err
	}
	return &Restorer{m: m, seqs: make(map[uint64]struct{})}, nil
}

func checkHeader(h Header) error {
	switch {
	case h.Counter > maxCounter:
		return fmt.Errorf("the token counter %d is above %d", h.Counter, maxCounter)
	case h.Incarnation > lease.MaxIncarnation:
		return fmt.Errorf("the incarnation %d is above %d", h.Incarnation, lease.MaxIncarnation)
	case h.Now < 0 || h.Now > MaxLeaseTime:
		return fmt.Errorf("the lease time %d is out of range", h.Now)
	case !slices.IsSortedFunc(h.Keys, compareKeys):
		return fmt.Errorf("the keys are not in order")
	case !slices.IsSortedFunc(h.Members, compareMembers):
		return fmt.Errorf("the members are not in order")
	case h.Version > MaxVersion:
		return fmt.Errorf("the cluster version is %d, this program knows %d", h.Version, MaxVersion)
	case !h.Initialised:
		return nil
	}
	if err := h.Config.Validate(); err != nil {
		return fmt.Errorf("config: %w", err)
	}
	return nil
}

func (m *Machine) restorePolicies(saved []SavedPolicy) error {
	for _, s := range saved {
		p := policyRecord{target: s.Target, policy: s.Policy, level: s.Level, at: s.At}
		switch {
		case !m.fits(s.Target, s.Policy):
			return fmt.Errorf("the policy of %v is not valid", s.Target)
		case s.Policy.AcquireRate == nil && (s.Level != 0 || s.At != 0),
			s.Policy.AcquireRate != nil && (s.Level < 0 || s.Level > p.burst()*oneAcquire || s.At < 0 || s.At > m.now):
			return fmt.Errorf("the bucket of %v is not valid", s.Target)
		case len(m.policies) >= maxPolicies:
			return fmt.Errorf("there are more than %d policies", maxPolicies)
		case len(m.policies) > 0 && compareTargets(m.policies[len(m.policies)-1].target, s.Target) >= 0:
			return fmt.Errorf("the policies are not in order")
		}
		m.policies = append(m.policies, p)
	}
	if !settlePolicies(m.policies, m.rules) {
		return fmt.Errorf("the policies do not fit one another")
	}
	return nil
}

// Delay adds a closed resource. The delays come before the clients.
func (r *Restorer) Delay(d SavedDelay) error {
	m := r.m
	if err := r.takeSeq(d.Seq); err != nil {
		return fmt.Errorf("delay of %q: %w", d.Resource, err)
	}
	res := m.resource(d.Resource)
	if d.Resource == "" || res.delay != none || d.Mode != lease.Exclusive && d.Mode != lease.Shared {
		return fmt.Errorf("the delay of %q is not valid", d.Resource)
	}
	res.delay = m.delays.add(delayRecord{resource: d.Resource, seq: d.Seq, until: d.Until, mode: d.Mode})
	m.openings.set(res.delay, d.Until, d.Seq)
	return nil
}

// Client adds a client. The requests added next are its own.
func (r *Restorer) Client(c SavedClient) error {
	if _, twice := r.m.findClient(c.Identity, c.Client); twice {
		return fmt.Errorf("client %q of %q is there twice", c.Client, c.Identity)
	}
	if err := r.takeSeq(c.Seq); err != nil {
		return fmt.Errorf("client %q: %w", c.Client, err)
	}
	r.settleClient()
	m, tenant := r.m, r.m.enter(c.Identity)
	r.client = m.addClient(clientRecord{
		identity: m.tenants.peek(tenant).latest, seq: c.Seq, acknowledged: c.Acknowledged, until: c.Until, tenant: tenant,
	}, c.Client)
	r.any = true
	return nil
}

// takeSeq checks that a sequence number was given out, and once.
func (r *Restorer) takeSeq(seq uint64) error {
	if _, twice := r.seqs[seq]; twice || seq == 0 || seq > r.m.seq {
		return fmt.Errorf("the sequence number %d is zero, in use or above %d", seq, r.m.seq)
	}
	r.seqs[seq] = struct{}{}
	return nil
}

// settleClient starts the timer of the last client if it had no requests.
func (r *Restorer) settleClient() {
	if !r.any {
		return
	}
	if c := r.m.clients.get(r.client); c.requests == 0 {
		r.m.departures.set(r.client, c.until.Add(1), c.seq)
	}
}

// Request adds a request of the last client, with its place in a queue or its lease.
func (r *Restorer) Request(s SavedRequest) error {
	if !r.any {
		return fmt.Errorf("request %q comes before any client", s.Request)
	}
	m := r.m
	if _, twice := m.findRequest(r.client, s.Request); twice {
		return fmt.Errorf("request %q is there twice", s.Request)
	}
	if err := r.takeSeq(s.Seq); err != nil {
		return fmt.Errorf("request %q: %w", s.Request, err)
	}
	t, err := r.terms(s)
	if err != nil {
		return err
	}
	w := words{resource: s.Claim.Resource, owner: s.Claim.Owner, id: s.Request}
	if s.Stage.over() {
		w = words{id: s.Request}
	}
	at := m.texts.spell(&w, &t)
	q := m.requests.add(requestRecord{
		seq: s.Seq, client: r.client, cell: at.cell, class: at.class, stage: s.Stage,
	})
	m.byRequest.add(m.hashOfRequest(q), q)
	c := m.clients.edit(r.client)
	c.requests++
	m.tenants.edit(c.tenant).requests++
	if s.Sequence > c.acknowledged {
		m.number(r.client, q, s.Sequence)
	}
	return r.stage(q, s, t)
}

// terms are those of a request, without the place of its waiter.
func (r *Restorer) terms(s SavedRequest) (terms, error) {
	t := terms{sequence: s.Sequence}
	t.imprint, t.fingerprint = imprintOf(s.Fingerprint)
	if s.Stage.over() {
		return t, nil
	}
	c := s.Claim
	if _, twice := r.m.findClaim(c.Lease); twice || c.Lease.IsZero() {
		return t, fmt.Errorf("request %q: its lease id is zero or in use", s.Request)
	}
	known := c.Mode == lease.Exclusive || c.Mode == lease.Shared && r.m.version >= 2
	if c.Resource == "" || c.TTL <= 0 || !known {
		return t, fmt.Errorf("request %q: its claim is not valid", s.Request)
	}
	switch s.Fingerprint {
	case fingerprintOf(c.Resource, c.Owner, c.Mode, c.TTL):
		t.imprint, t.fingerprint = imprintTTL, 0
	case fingerprintOf(c.Resource, c.Owner, c.Mode, 0):
		t.imprint, t.fingerprint = imprintNoTTL, 0
	}
	t.claims, t.lease, t.ttl, t.until, t.waiter = true, c.Lease, c.TTL, s.Until, none
	if s.Stage == StageHeld {
		t.token, t.since = s.Lease.Token, s.Lease.Since
		return t, nil
	}
	t.waiter = r.m.waiters.take()
	return t, nil
}

func (r *Restorer) stage(q slot, s SavedRequest, t terms) error {
	m := r.m
	rec := m.requests.edit(q)
	switch s.Stage {
	case StageWaiting:
		rec.mode = s.Claim.Mode
		return r.waiter(q, s, t)
	case StageHeld:
		rec.mode = s.Claim.Mode
		return r.lease(q, s)
	case StageEnded, StageCancelled, StageForestalled:
		rec.due = s.Until
		m.oblivions.add(q)
		return nil
	}
	return fmt.Errorf("request %q is in the unknown stage %d", s.Request, s.Stage)
}

func (r *Restorer) waiter(q slot, s SavedRequest, t terms) error {
	m := r.m
	name := s.Claim.Resource
	key := awaitKey{r.client, name}
	if _, twice := m.awaits[key]; twice {
		return fmt.Errorf("request %q: its client awaits %q twice", s.Request, name)
	}
	w := t.waiter
	m.waiters.put(w, waiterRecord{
		request: q, mode: s.Claim.Mode, seq: s.Seq, deadline: s.Waiter.Deadline, grace: s.Waiter.Grace,
		call: s.Waiter.Call, attached: s.Waiter.Attached,
	})
	m.byLease.add(m.hashOfLease(q), q)
	m.awaits[key] = q
	m.endings.set(w, m.waiters.peek(w).ends(), s.Seq)
	res := m.resource(name)
	res.queue = append(res.queue, w)
	m.tenants.edit(m.clients.peek(r.client).tenant).waiters++
	return nil
}

func (r *Restorer) lease(l slot, s SavedRequest) error {
	m := r.m
	if err := r.takeSeq(s.Lease.Seq); err != nil {
		return fmt.Errorf("request %q: its lease: %w", s.Request, err)
	}
	name := s.Claim.Resource
	res := m.lookUp(name)
	twice := false
	if res != nil {
		_, twice = m.leaseOf(res, r.client)
	}
	switch {
	case twice:
		return fmt.Errorf("request %q: its client holds %q twice", s.Request, name)
	case !m.sharesWith(res, s.Claim.Mode):
		return fmt.Errorf("resource %q has an exclusive holder and another one", name)
	case res.holders() > 0 && m.termsOf(res.first()).token != s.Lease.Token:
		return fmt.Errorf("resource %q has shared holders of two tokens", name)
	case s.Lease.Token == 0 || s.Lease.Token > m.lastToken():
		return fmt.Errorf("resource %q: the token %d was never issued", name, s.Lease.Token)
	}
	rec := m.requests.edit(l)
	rec.due, rec.unclaimed = s.Lease.Deadline, s.Lease.Unclaimed
	m.order(l, s.Lease.Seq)
	m.byLease.add(m.hashOfLease(l), l)
	m.held++
	m.expiries.add(l)
	m.join(name, l)
	m.tenants.edit(m.clients.peek(r.client).tenant).leases++
	return nil
}

// Machine ends the restoring and returns the machine. The Restorer is used up.
func (r *Restorer) Machine() (*Machine, error) {
	r.settleClient()
	m := r.m
	for _, res := range m.resources {
		slices.SortFunc(res.queue, m.bySeq)
		m.sortHolders(res)
	}
	for _, w := range m.waiters.slots() {
		if m.waiters.peek(w).attached {
			m.watch(w)
		}
	}
	return m, nil
}
