package lock

import (
	"crypto/ed25519"
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// LeaseTime is an instant on the cluster's lease clock: nanoseconds of lease time since the cluster was
// created. It is carried in the log and never compared with any machine's clock.
type LeaseTime int64

// MaxLeaseTime is the last instant that the machine can reckon with, 146 years after the cluster's creation.
const MaxLeaseTime = LeaseTime(1) << 62

// Add returns t moved by d.
func (t LeaseTime) Add(d time.Duration) LeaseTime { return t + LeaseTime(d) }

// Sub returns the duration t − u.
func (t LeaseTime) Sub(u LeaseTime) time.Duration { return time.Duration(t - u) }

// Command is one request to the machine, as it stands in the log. It is sealed: one struct each, below.
// Everything that a command needs (ids, keys, defaults) travels in it; the machine adds nothing of its own.
//
//sumtype:decl
type Command interface{ command() }

// Init is the first command of a cluster. A second one is a no-op, so that every new leader may propose it.
type Init struct {
	Cluster string // random name of the cluster, signed into tickets
	Version uint32 // cluster version: gates the commands that later releases add
	Config  Config
}

// Config is replicated state, so that two releases with other defaults agree. Zero fields are invalid.
type Config struct {
	DefaultTTL  time.Duration // of an acquire that names none
	MinTTL      time.Duration
	MaxTTL      time.Duration
	MaxWait     time.Duration // longest wait of one acquire
	RetryWindow time.Duration // a request older than MaxWait + RetryWindow is refused, not executed
	Grace       time.Duration // how long an unattached waiter keeps its place
	ClaimWindow time.Duration // how long a grant to a waiter stands without a renewal
	HeadStart   time.Duration // after an election only the head of a queue is granted for this long
	MaxWaiters  int           // of one resource
	MaxRequests int           // remembered requests of one client
	MaxExpiries int           // overdue leases ended by one log entry, besides those that it touches

	// MaxTenantRequests is how many requests of one tenant are remembered at most, live ones included, unless its policy says
	// otherwise. 0 is without a bound, as in clusters that were created in version 1.
	MaxTenantRequests int
}

// NewLeader is the first command of a leader in its term: it un-attaches every waiter, since the calls that
// waited hung on the old leader, and starts the head's second (Config.HeadStart).
type NewLeader struct {
	Node string
	Term uint64
}

// PutKey adds the public half of a node's ticket key. The private half never leaves the node.
type PutKey struct {
	Node   string
	KeyID  string
	Public ed25519.PublicKey
}

// Acquire asks for a lease, and waits in the queue if Wait is above 0.
// The same (Identity, Client, Request) again is a retry: it reports the first one's effect as it stands now.
type Acquire struct {
	Identity lease.Identity
	Client   lease.ClientID
	Request  lease.RequestID
	Owner    string // node of the wait-for graph; empty means the client
	Resource lease.Resource
	Mode     lease.Mode
	TTL      time.Duration // 0 means Config.DefaultTTL
	Wait     time.Duration // 0 means: grant now or refuse
	Lease    lease.ID      // the id that a grant will have
	Call     uint64        // number of the call that waits; unique, 0 if nobody waits
	// AsOf is the lease time that the caller, or the first node that took the call, knew when the request
	// was first made. It is the same on each retry; a request whose AsOf has left the window is too old.
	AsOf LeaseTime
	// Sequence numbers a client's requests, the same on each retry; Acknowledged says that all up to it will never be
	// retried, and their records may go. Both 0 for a client that does not number.
	Sequence     uint64
	Acknowledged uint64
}

// Renew extends a lease to now + TTL. It never re-creates one.
type Renew struct {
	Identity lease.Identity
	Lease    lease.ID
	TTL      time.Duration // 0 keeps the lease's
}

// Release ends a lease.
type Release struct {
	Identity lease.Identity
	Lease    lease.ID
}

// Cancel ends whatever the request with this id has become: unknown, waiting or granted. TimedOut says that the
// wait of one copy of the request is over by the clock of the node that holds it. Then a wait ends as timed out, and a
// lease stays, because another copy may have been answered with it.
type Cancel struct {
	Identity lease.Identity
	Client   lease.ClientID
	Request  lease.RequestID
	AsOf     LeaseTime

	TimedOut bool
}

// Detach says that the call with this number went away without cancelling. With an old number it does nothing.
type Detach struct {
	Identity lease.Identity
	Client   lease.ClientID
	Request  lease.RequestID
	Call     uint64
}

// Break force-releases a resource: its leases end, a new token is issued to nobody, the next waiter is granted.
// It works on a free resource too, whose last holder may still write with its ticket.
type Break struct {
	Identity lease.Identity
	Resource lease.Resource
}

// RenewMany extends many leases of one identity, each as a Renew that keeps the lease's TTL would. RenewedMany answers it.
type RenewMany struct {
	Identity lease.Identity
	Leases   []lease.ID
}

// KillWait ends the wait of a request that is the victim of a deadlock across groups, if the wait still is as those who
// found the deadlock saw it: it stands in the queue, its caller is there, and what it waits for is still there too.
type KillWait struct {
	Identity lease.Identity
	Client   lease.ClientID
	Request  lease.RequestID
	Lease    lease.ID   // the live lease that it waits for; zero if it waits for an earlier waiter
	Ahead    RequestRef // that waiter
	Cycle    []Owner    // for the caller and the audit log; the victim first
}

// RequestRef names an acquire across its copies.
type RequestRef struct {
	Identity lease.Identity
	Client   lease.ClientID
	Request  lease.RequestID
}

// Owner is a node of the wait-for graph. Name is what acquires gave as their owner, or else the client's id.
type Owner struct {
	Identity lease.Identity
	Name     string
}

// Tick does nothing but carry the entry's lease time. Reads and expiry ride on it.
type Tick struct{}

func (Init) command()      {}
func (NewLeader) command() {}
func (PutKey) command()    {}
func (Acquire) command()   {}
func (Renew) command()     {}
func (Release) command()   {}
func (Cancel) command()    {}
func (Detach) command()    {}
func (Break) command()     {}
func (RenewMany) command() {}
func (KillWait) command()  {}
func (Tick) command()      {}
