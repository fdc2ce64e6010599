package lock

import (
	"cmp"
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
func NewRestorer(h Header) (*Restorer, error) {
	if err := checkHeader(h); err != nil {
		return nil, err
	}
	m := New()
	m.initialised, m.cluster, m.version, m.incarnation = h.Initialised, h.Cluster, h.Version, h.Incarnation
	m.config, m.index, m.now = h.Config, h.Index, h.Now
	m.counter, m.seq, m.headStart = h.Counter, h.Seq, h.HeadStart
	m.keys, m.members = slices.Clone(h.Keys), slices.Clone(h.Members)
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

// Client adds a client. The requests added next are its own.
func (r *Restorer) Client(c SavedClient) error {
	key := clientKey{c.Identity, c.Client}
	if _, twice := r.m.byClient[key]; twice {
		return fmt.Errorf("client %q of %q is there twice", c.Client, c.Identity)
	}
	if err := r.takeSeq(c.Seq); err != nil {
		return fmt.Errorf("client %q: %w", c.Client, err)
	}
	r.settleClient()
	r.client = r.m.clients.add(clientRecord{
		identity: c.Identity, name: c.Client, seq: c.Seq, acknowledged: c.Acknowledged, until: c.Until,
	})
	r.any = true
	r.m.byClient[key] = r.client
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
	key := requestKey{r.client, s.Request}
	if _, twice := m.byRequest[key]; twice {
		return fmt.Errorf("request %q is there twice", s.Request)
	}
	if err := r.takeSeq(s.Seq); err != nil {
		return fmt.Errorf("request %q: %w", s.Request, err)
	}
	q := m.requests.add(requestRecord{
		id: s.Request, seq: s.Seq, fingerprint: s.Fingerprint, until: s.Until,
		sequence: s.Sequence, client: r.client, stage: s.Stage,
	})
	m.byRequest[key] = q
	c := m.clients.edit(r.client)
	c.requests++
	if s.Sequence > c.acknowledged {
		m.number(r.client, q, s.Sequence)
	}
	return r.claim(q, s)
}

func (r *Restorer) claim(q slot, s SavedRequest) error {
	switch s.Stage {
	case StageWaiting:
		return r.waiter(q, s)
	case StageHeld:
		return r.lease(q, s)
	case StageEnded, StageCancelled, StageForestalled:
		r.m.oblivions.set(q, s.Until, s.Seq)
		return nil
	}
	return fmt.Errorf("request %q is in the unknown stage %d", s.Request, s.Stage)
}

func (r *Restorer) newClaim(q slot, s SavedRequest) (claim, error) {
	c := s.Claim
	if _, twice := r.m.byLease[c.Lease]; twice || c.Lease.IsZero() {
		return claim{}, fmt.Errorf("request %q: its lease id is zero or in use", s.Request)
	}
	if c.Resource == "" || c.TTL <= 0 || c.Mode != lease.Exclusive {
		return claim{}, fmt.Errorf("request %q: its claim is not valid", s.Request)
	}
	r.m.byLease[c.Lease] = q
	return claim{resource: c.Resource, id: c.Lease, owner: c.Owner, ttl: c.TTL, request: q, mode: c.Mode}, nil
}

func (r *Restorer) waiter(q slot, s SavedRequest) error {
	c, err := r.newClaim(q, s)
	if err != nil {
		return err
	}
	m := r.m
	key := awaitKey{r.client, c.resource}
	if _, twice := m.awaits[key]; twice {
		return fmt.Errorf("request %q: its client awaits %q twice", s.Request, c.resource)
	}
	w := m.waiters.add(waiterRecord{
		claim: c, seq: s.Seq, deadline: s.Waiter.Deadline, grace: s.Waiter.Grace,
		call: s.Waiter.Call, attached: s.Waiter.Attached,
	})
	m.requests.edit(q).claim = w
	m.awaits[key] = q
	m.endings.set(w, m.waiters.get(w).ends(), s.Seq)
	res := m.resource(c.resource)
	res.queue = append(res.queue, w)
	return nil
}

func (r *Restorer) lease(q slot, s SavedRequest) error {
	c, err := r.newClaim(q, s)
	if err != nil {
		return err
	}
	m := r.m
	if err := r.takeSeq(s.Lease.Seq); err != nil {
		return fmt.Errorf("request %q: its lease: %w", s.Request, err)
	}
	res := m.resource(c.resource)
	switch {
	case len(res.holders) > 0:
		return fmt.Errorf("resource %q has two exclusive holders", c.resource)
	case s.Lease.Token == 0 || s.Lease.Token > m.lastToken():
		return fmt.Errorf("resource %q: the token %d was never issued", c.resource, s.Lease.Token)
	}
	l := m.leases.add(leaseRecord{
		claim: c, seq: s.Lease.Seq, token: s.Lease.Token, since: s.Lease.Since,
		deadline: s.Lease.Deadline, unclaimed: s.Lease.Unclaimed,
	})
	m.requests.edit(q).claim = l
	m.expiries.set(l, s.Lease.Deadline, s.Lease.Seq)
	res.holders = append(res.holders, l)
	return nil
}

// Machine ends the restoring and returns the machine. The Restorer is used up.
func (r *Restorer) Machine() (*Machine, error) {
	r.settleClient()
	m := r.m
	for _, res := range m.resources {
		slices.SortFunc(res.queue, func(a, b slot) int {
			return cmp.Compare(m.waiters.get(a).seq, m.waiters.get(b).seq)
		})
	}
	return m, nil
}
