// Package lock is the state machine that every replica of a coordinator group runs over the same log: who holds
// which resource, who waits, which requests were seen. It is pure: no clock, no randomness, no goroutine, no I/O;
// time, ids and defaults come in with the commands. Equal logs give equal machines, results and events.
package lock

import (
	"hash/maphash"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// Entry is one log entry: commands that take effect together at one instant of lease time.
type Entry struct {
	Now      LeaseTime // the leader's stamp, 0 to MaxLeaseTime; the machine uses the larger of it and its own
	Commands []Command
}

// Machine is the state of one group. It is not safe for concurrent use. The zero value is not usable; see New.
type Machine struct {
	initialised bool
	cluster     string
	version     uint32
	incarnation uint32
	config      Config
	index       uint64
	now         LeaseTime
	counter     uint64         // tokens issued in this incarnation
	seq         uint64         // last sequence number given to a client, request or lease
	headStart   LeaseTime      // until then only heads of queues are granted; 0 when that is over
	keys        []Key          // by node and key id
	members     []Member       // by id
	policies    []policyRecord // by target

	clients  slab[clientRecord]
	requests slab[requestRecord]
	waiters  slab[waiterRecord]
	delays   slab[delayRecord]
	texts    texts // of the requests
	rolls    texts // of the clients

	// Derived from the above.
	hashes     hashes
	byClient   *index                       // clients by identity and client id
	byRequest  *index                       // requests by client and request id
	byLease    *index                       // requests by the lease ids of their claims
	byResource *index                       // requests by what they hold, one holder being all that there is of the resource
	resources  map[lease.Resource]*resource // the other ones
	awaits     map[awaitKey]slot            // the request with which a client awaits a resource
	held       int                          // leases
	expiries   calendar                     // leases by their deadlines
	endings    timers                       // waiters by ends()
	oblivions  calendar                     // requests that are over, by when they are forgotten
	departures timers                       // clients without requests, by until
	openings   timers                       // delays by until
	rules      rules                        // of resources that no policy is about
	tenants    slab[tenantRecord]
	byTenant   map[string]slot
	waits      map[Owner][]slot   // waiters whose callers are there, in order; the wait-for graph
	namedWaits int                // of them, those whose owner is not their client
	watched    int                // how many they are
	torn       map[Owner]struct{} // owners with several of them
	tornWaits  int                // how many those are

	events    []Event // of the entry that is being applied
	usual     int     // how many the entry before had
	describes bool    // see DescribeRenewals
}

type awaitKey struct {
	client   slot
	resource lease.Resource
}

// New returns the machine of a group before its first log entry.
func New() *Machine {
	m := &Machine{
		hashes:    hashes{maphash.MakeSeed()},
		awaits:    make(map[awaitKey]slot),
		resources: make(map[lease.Resource]*resource),
		byTenant:  make(map[string]slot),
		waits:     make(map[Owner][]slot),
		torn:      make(map[Owner]struct{}),
	}
	pos := new([]int32)
	m.expiries, m.oblivions = newCalendar(m.turnOf, pos), newCalendar(m.turnOf, pos)
	m.byClient, m.byRequest = newIndex(m.hashOfClient), newIndex(m.hashOfRequest)
	m.byLease, m.byResource = newIndex(m.hashOfLease), newIndex(m.hashOfHeld)
	return m
}

// DescribeRenewals has RenewedMany tell its Grants from now on, for those who write each renewal down. It is no part of
// the state.
func (m *Machine) DescribeRenewals() { m.describes = true }

// Apply runs one log entry and returns one result for each command, in their order, and what became true, in order.
// The renewals of leases that have not ended run first, so that a stall in front of the log expires nobody whose
// renewal was waiting in it; with them a NewLeader, so that nothing is granted to a caller of the old leader. Then
// what is overdue ends, bounded by Config.MaxExpiries; then the rest runs in order.
func (m *Machine) Apply(index uint64, e Entry) ([]Result, []Event) {
	m.index = index
	m.now = max(m.now, e.Now)
	results := make([]Result, len(e.Commands))
	for i, c := range e.Commands {
		if m.goesFirst(c) {
			results[i] = m.apply(c)
		}
	}
	m.expire(e.Commands)
	for i, c := range e.Commands {
		if results[i] == nil {
			results[i] = m.apply(c)
		}
	}
	events := m.events
	m.events, m.usual = nil, len(events)
	return results, events
}

func (m *Machine) goesFirst(c Command) bool {
	switch c := c.(type) {
	case Renew:
		return m.holds(c.Lease)
	case NewLeader, RenewMany:
		return true
	case Init, PutKey, Acquire, Release, Cancel, Detach, Break, Tick, KillWait, PutPolicy, DeletePolicy, RetireKey,
		SetVersion, PutMember, DropMember, Recover:
	}
	return false
}

func (m *Machine) apply(c Command) Result {
	switch c := c.(type) {
	case Init:
		return m.init(c)
	case NewLeader:
		return m.newLeader(c)
	case PutKey:
		return m.putKey(c)
	case Tick:
		return Done{}
	default:
	}
	if !m.initialised {
		return Refused{Reason: ReasonNotInitialised}
	}
	switch c := c.(type) {
	case Acquire, Renew, RenewMany, Release, Cancel, Detach, Break, KillWait:
		return m.applyLock(c)
	case PutPolicy, DeletePolicy, RetireKey, SetVersion, PutMember, DropMember, Recover:
		return m.applyCluster(c)
	case Init, NewLeader, PutKey, Tick:
	}
	panic("lock: a command of an unknown kind reached the machine")
}

func (m *Machine) applyLock(c Command) Result {
	switch c := c.(type) {
	case Acquire:
		return m.acquire(c)
	case Renew:
		return m.renew(c)
	case Release:
		return m.release(c)
	case Cancel:
		return m.cancel(c)
	case Detach:
		return m.detach(c)
	case Break:
		return m.breakResource(c)
	case RenewMany:
		return m.renewMany(c)
	case KillWait:
		return m.killWait(c)
	case Init, NewLeader, PutKey, Tick, PutPolicy, DeletePolicy, RetireKey, SetVersion, PutMember, DropMember, Recover:
	}
	panic("lock: not a command on locks")
}

func (m *Machine) applyCluster(c Command) Result {
	switch c := c.(type) {
	case SetVersion:
		return m.setVersion(c)
	case PutPolicy:
		return m.putPolicy(c)
	case DeletePolicy:
		return m.deletePolicy(c)
	case RetireKey:
		return m.retireKey(c)
	case PutMember:
		return m.putMember(c)
	case DropMember:
		return m.dropMember(c)
	case Recover:
		return m.recover(c)
	case Init, NewLeader, PutKey, Tick, Acquire, Renew, RenewMany, Release, Cancel, Detach, Break, KillWait:
	}
	panic("lock: not a command on the cluster")
}

func (m *Machine) emit(e Event) {
	if m.events == nil {
		m.events = make([]Event, 0, max(m.usual, 1))
	}
	m.events = append(m.events, e)
}

func (m *Machine) nextSeq() uint64 {
	m.seq++
	return m.seq
}
