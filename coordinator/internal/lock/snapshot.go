package lock

import (
	"cmp"
	"iter"
	"slices"
	"time"

	"github.com/lychgate/lychgate/chaos/seeded"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// Snapshot is a machine frozen at one log index. It shares memory with the machine, which copies a page of it before
// changing it, and it may be read by one other goroutine for as long as that likes.
type Snapshot struct {
	header   Header
	clients  *slab[clientRecord]
	requests *slab[requestRecord]
	waiters  *slab[waiterRecord]
	delays   *slab[delayRecord]
	texts    *texts
	rolls    *texts
}

// Header is the part of a snapshot that is not a client or a request.
type Header struct {
	Initialised bool
	Cluster     string
	Version     uint32
	Incarnation uint32
	Config      Config
	Index       uint64
	Now         LeaseTime
	Counter     uint64 // tokens issued in this incarnation
	Seq         uint64 // last sequence number in use
	HeadStart   LeaseTime
	Keys        []Key         // by node and key id
	Members     []Member      // by id
	Policies    []SavedPolicy // by target
}

// SavedPolicy is a policy with how far its bucket of acquires is filled.
type SavedPolicy struct {
	TargetedPolicy
	Level int64 // billionths of an acquire
	At    LeaseTime
}

// SavedDelay is a resource that is closed.
type SavedDelay struct {
	Resource lease.Resource
	Seq      uint64
	Until    LeaseTime
	Mode     lease.Mode // of the lease that expired
}

// SavedClient is a client in a snapshot; its requests follow it.
type SavedClient struct {
	Identity     lease.Identity
	Client       lease.ClientID
	Seq          uint64
	Acknowledged uint64
	Until        LeaseTime
}

// SavedRequest is a request in a snapshot, of the client before it.
type SavedRequest struct {
	Request     lease.RequestID
	Seq         uint64
	Fingerprint uint64
	Until       LeaseTime
	Sequence    uint64
	Stage       Stage
	Claim       SavedClaim // while it waits or holds
	Waiter      SavedWaiter
	Lease       SavedLease
}

// SavedClaim is what a request asked for.
type SavedClaim struct {
	Resource lease.Resource
	Lease    lease.ID
	Owner    string
	TTL      time.Duration
	Mode     lease.Mode
}

// SavedWaiter is a request's place in a queue.
type SavedWaiter struct {
	Deadline LeaseTime
	Grace    LeaseTime
	Call     uint64
	Attached bool
}

// SavedLease is a request's lease.
type SavedLease struct {
	Seq       uint64
	Token     lease.Token
	Since     LeaseTime
	Deadline  LeaseTime
	Unclaimed bool
}

// Snapshot freezes the machine as it stands. It costs one pointer for each pageSize records, and counts as a change of
// the machine: nobody may read it meanwhile.
func (m *Machine) Snapshot() *Snapshot {
	s := m.look()
	s.clients, s.requests = m.clients.freeze(), m.requests.freeze()
	s.waiters, s.delays = m.waiters.freeze(), m.delays.freeze()
	s.texts, s.rolls = m.texts.freeze(), m.rolls.freeze()
	return s
}

// look is a snapshot that is good until the next change.
func (m *Machine) look() *Snapshot {
	return &Snapshot{
		header: Header{
			Initialised: m.initialised,
			Cluster:     m.cluster,
			Version:     m.version,
			Incarnation: m.incarnation,
			Config:      m.config,
			Index:       m.index,
			Now:         m.now,
			Counter:     m.counter,
			Seq:         m.seq,
			HeadStart:   m.headStart,
			Keys:        m.keys,
			Members:     m.members,
			Policies:    m.savedPolicies(),
		},
		clients:  &m.clients,
		requests: &m.requests,
		waiters:  &m.waiters,
		delays:   &m.delays,
		texts:    &m.texts,
		rolls:    &m.rolls,
	}
}

func (m *Machine) savedPolicies() []SavedPolicy {
	var saved []SavedPolicy
	for _, p := range m.policies {
		saved = append(saved, SavedPolicy{TargetedPolicy{p.target, p.policy}, p.level, p.at})
	}
	return saved
}

// Delays walks the closed resources in the order of their sequence numbers.
func (s *Snapshot) Delays() iter.Seq[SavedDelay] {
	return func(yield func(SavedDelay) bool) {
		all := s.delays.slots()
		slices.SortFunc(all, func(a, b slot) int { return cmp.Compare(s.delays.get(a).seq, s.delays.get(b).seq) })
		for _, i := range all {
			d := s.delays.get(i)
			if !yield(SavedDelay{Resource: d.resource, Seq: d.seq, Until: d.until, Mode: d.mode}) {
				return
			}
		}
	}
}

// Header returns what is neither a client nor a request. The caller must not change its keys.
func (s *Snapshot) Header() Header { return s.header }

// Clients walks the clients in the order of their sequence numbers, each with its requests in the order of theirs:
// the same on every replica.
func (s *Snapshot) Clients() iter.Seq2[SavedClient, iter.Seq[SavedRequest]] {
	return func(yield func(SavedClient, iter.Seq[SavedRequest]) bool) {
		clients := s.clientsInOrder()
		requests, ends := s.requestsInOrder(clients)
		from := int32(0)
		for _, c := range clients {
			if !yield(s.savedClient(c), s.savedRequests(requests[from:ends[c]])) {
				return
			}
			from = ends[c]
		}
	}
}

func (s *Snapshot) clientsInOrder() []slot {
	all := s.clients.slots()
	if seeded.Is(seeded.SnapshotInMapOrder) {
		return inMapOrder(all)
	}
	slices.SortFunc(all, func(a, b slot) int { return cmp.Compare(s.clients.peek(a).seq, s.clients.peek(b).seq) })
	return all
}

// requestsInOrder lists the requests of one client after the other, each client's in their order, and says by client where its
// own end. They are counted into their places, since sorting a million of them would take a second.
func (s *Snapshot) requestsInOrder(clients []slot) (requests []slot, ends []int32) {
	all := s.requests.slots()
	if seeded.Is(seeded.MemoryNotInSnapshot) {
		all = s.live(all)
	}
	counts := make([]int32, s.clients.next)
	for _, q := range all {
		counts[s.requests.peek(q).client]++
	}
	ends, total := make([]int32, s.clients.next), int32(0)
	for _, c := range clients {
		ends[c] = total // for now where they begin
		total += counts[c]
	}
	requests = make([]slot, len(all))
	for _, q := range all {
		c := s.requests.peek(q).client
		requests[ends[c]] = q
		ends[c]++
	}
	for _, c := range clients {
		own := requests[ends[c]-counts[c] : ends[c]]
		slices.SortFunc(own, func(a, b slot) int { return cmp.Compare(s.requests.peek(a).seq, s.requests.peek(b).seq) })
	}
	return requests, ends
}

func (s *Snapshot) savedRequests(slots []slot) iter.Seq[SavedRequest] {
	return func(yield func(SavedRequest) bool) {
		for _, q := range slots {
			if !yield(s.savedRequest(q)) {
				return
			}
		}
	}
}

func (s *Snapshot) savedClient(i slot) SavedClient {
	c := s.clients.get(i)
	return SavedClient{
		Identity: c.identity, Client: lease.ClientID(c.nameIn(s.rolls)), Seq: c.seq,
		Acknowledged: c.acknowledged, Until: c.until,
	}
}

func (s *Snapshot) savedRequest(q slot) SavedRequest {
	r := s.requests.peek(q)
	w, t := s.texts.words(r.text()), s.texts.terms(r.text())
	saved := SavedRequest{
		Request: w.id, Seq: r.seq, Fingerprint: fingerprintIn(&w, &t, r.mode),
		Until: t.until, Sequence: t.sequence, Stage: r.stage,
	}
	if r.stage.over() {
		saved.Until = r.due
		return saved
	}
	saved.Claim = SavedClaim{Resource: w.resource, Lease: t.lease, Owner: w.owner, TTL: t.ttl, Mode: r.mode}
	if r.stage == StageWaiting {
		w := s.waiters.peek(t.waiter)
		saved.Waiter = SavedWaiter{Deadline: w.deadline, Grace: w.grace, Call: w.call, Attached: w.attached}
		return saved
	}
	saved.Lease = SavedLease{
		Seq: leaseSeq(r, s.texts), Token: t.token, Since: t.since, Deadline: r.due, Unclaimed: r.unclaimed,
	}
	return saved
}
