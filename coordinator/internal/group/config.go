package group

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// Config is what a Group is made from. New validates it and does no I/O.
type Config struct {
	Node    string   // own id, one of Members
	Group   uint16   // number of the Raft group; names its files
	Members []Member // the same list on every node; used once, when the stores are empty
	Dir     string   // where the log and the snapshots live; unused if Stores is set
	Port    *Port    // the peer port that the node's groups share; it listens already, and outlives Run
	Listen  string   // without Port: TCP address of a port of the group's own; empty means the own member's Peer

	// Cluster is the name that this node proposes if it turns out to be the one that initialises the
	// cluster; later it is read from the state. Where the cluster has several groups, all but the first have a Name
	// instead, which blocks until the first one's state has the cluster's name, or its context ends. Lock is
	// proposed with it, and so is Version.
	Cluster string
	Name    func(context.Context) (string, error)
	Version uint32
	Lock    lock.Config

	// Key is the public half of the node's ticket key. A leader registers its own before it serves.
	// The zero value registers nothing. SetKey replaces it.
	Key lock.PutKey

	Timing Timing // zero fields take their default
	Limits Limits // zero fields take their default

	// OnApply is called once for each entry that this replica applies, in log order, from the goroutine that
	// applies; it must not block and must not call back into the group. A restart replays what came after
	// the last snapshot; those entries are marked. May be nil.
	OnApply func(Applied)
	// OnRestore is called, from the same goroutine, when the state was replaced by a snapshot, with the index of
	// the snapshot's last entry: what OnApply was not called for up to there has been skipped. May be nil.
	OnRestore func(index uint64)
	// DescribeRenewals has lock.RenewedMany in Applied tell its Grants.
	DescribeRenewals bool
	Observer         Observer // may be nil
	Logger           *slog.Logger

	// Peers tells whether the cluster exists when the stores are empty. Nil: it does not; the node creates it and asks
	// nobody, which is only right for a node that cannot have lost anything.
	Peers Peers

	// Releases tells what the programs of other members know. Nil: the cluster version is never raised, but for a node alone.
	Releases Releases
	// MaxVersion is what this program knows; zero means lock.MaxVersion. Another one is for tests.
	MaxVersion uint32

	// For tests: in-memory replacements. Nil opens files under Dir and a TCP listener.
	Stores    *Stores
	Transport raft.Transport
	stamped   func(term uint64, stamp lock.LeaseTime) // told of each stamp as it is assigned; may be nil
	noSeam    bool                                    // leaves the log as the library does
}

// Member is a node of the group. Peer is host:port, where the others reach it; a host name is looked up at
// each connection.
type Member struct {
	ID   string
	Peer string
}

// Timing is the group's use of time. The defaults give a new leader within about 1.5 s of the loss of a machine, and at once
// after that of a process.
type Timing struct {
	Heartbeat   time.Duration // a follower without contact for this long, up to twice, stands for election
	Election    time.Duration // a candidate without a majority for this long tries again
	LeaderLease time.Duration // a leader without contact to a majority for this long steps down
	Commit      time.Duration // an idle leader tells its followers the commit index this often
	Tick        time.Duration // an idle leader commits an entry this often, or more often where TTLs are short, while something timed is pending
	RPC         time.Duration // bound on one exchange between peers
	Stop        time.Duration // bound on an orderly stop
	Disk        time.Duration // a node whose disk has not answered for this long does not take part
	Stuck       time.Duration // a replica that applies nothing for this long, although there is something, says so
	Snapshot    time.Duration // how often the need for a snapshot is looked at
}

// Limits bounds what the group holds in memory and puts into one entry.
type Limits struct {
	Queue         int    // commands waiting to be proposed; the last quarter is for renewals
	Waits         int    // registered Waits
	Reads         int    // reads waiting for an entry
	BatchCommands int    // commands in one entry
	BatchBytes    int    // estimated bytes of one entry
	InFlight      int    // entries proposed and not yet applied
	SnapshotEvery uint64 // entries between two snapshots
	SnapshotBytes int64  // bytes of entries between two snapshots
	TrailingLogs  uint64 // entries kept behind a snapshot, for followers that lag
}

// DefaultTiming is what zero fields stand for.
func DefaultTiming() Timing { return Timing{}.withDefaults() }

func (t Timing) withDefaults() Timing {
	set(&t.Heartbeat, 500*time.Millisecond)
	set(&t.Election, t.Heartbeat)
	set(&t.LeaderLease, t.Heartbeat) // a busy machine is silent for longer than half of it now and then
	set(&t.Commit, 50*time.Millisecond)
	set(&t.Tick, 200*time.Millisecond)
	set(&t.RPC, 5*time.Second)
	set(&t.Stop, 5*time.Second)
	set(&t.Disk, max(8*t.Heartbeat, 4*time.Second)) // a busy disk is slow for a second now and then
	set(&t.Stuck, max(20*t.Heartbeat, 10*time.Second))
	set(&t.Snapshot, 30*time.Second)
	return t
}

func (l Limits) withDefaults() Limits {
	set(&l.Queue, 1<<15)
	set(&l.Waits, 1<<17)
	set(&l.Reads, 1<<13)
	set(&l.BatchCommands, 1024)
	set(&l.BatchBytes, 256<<10)
	set(&l.InFlight, 3)
	set(&l.SnapshotEvery, 8192)
	set(&l.SnapshotBytes, 64<<20)
	set(&l.TrailingLogs, 1024)
	return l
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Failover is how long the group is normally without a leader after its leader's machine is gone: the wait for a
// heartbeat, one repeated check, and an election.
func (t Timing) Failover() time.Duration {
	t = t.withDefaults()
	return 2*t.Heartbeat + t.Election
}

func (t Timing) validate() error {
	switch {
	case t.Heartbeat < 5*time.Millisecond:
		return errors.New("timing: the heartbeat is below 5ms")
	case t.Election < t.Heartbeat:
		return fmt.Errorf("timing: the election timeout %s is below the heartbeat %s", t.Election, t.Heartbeat)
	case t.LeaderLease < 5*time.Millisecond || t.LeaderLease > t.Heartbeat:
		return fmt.Errorf("timing: the leader lease %s is not between 5ms and the heartbeat %s", t.LeaderLease, t.Heartbeat)
	case t.Commit < time.Millisecond:
		return errors.New("timing: the commit interval is below 1ms")
	case t.Tick < time.Millisecond || t.RPC < time.Millisecond || t.Stop < 0 || t.Disk < 10*time.Millisecond || t.Snapshot < 5*time.Millisecond:
		return errors.New("timing: tick, rpc, stop, disk and snapshot must be positive")
	}
	return nil
}

func (l Limits) validate() error {
	if l.Queue < 4 || l.Waits < 1 || l.Reads < 1 || l.BatchCommands < 4 || l.BatchBytes < 4096 || l.InFlight < 1 {
		return errors.New("limits: a bound is too small")
	}
	return nil
}

// normalise fills the defaults in, sorts the members, and validates.
func (c Config) normalise() (Config, error) {
	c.Timing = c.Timing.withDefaults()
	c.Limits = c.Limits.withDefaults()
	set(&c.MaxVersion, lock.MaxVersion)
	set(&c.Version, c.MaxVersion)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Name == nil && c.Cluster != "" {
		c.Name = func(context.Context) (string, error) { return c.Cluster, nil }
	}
	if c.Observer == nil {
		c.Observer = nobody{}
	}
	if c.OnRestore == nil {
		c.OnRestore = func(uint64) {}
	}
	if c.OnApply == nil {
		c.OnApply = func(Applied) {}
	}
	c.Members = slices.Clone(c.Members)
	slices.SortFunc(c.Members, func(a, b Member) int { return strings.Compare(a.ID, b.ID) })
	return c, c.validate()
}

func (c Config) validate() error {
	if c.Name == nil {
		return errors.New("group: no cluster name to propose")
	}
	if c.Version > c.MaxVersion {
		return fmt.Errorf("group: version %d is above %d, which this program knows", c.Version, c.MaxVersion)
	}
	if c.Dir == "" && c.Stores == nil {
		return errors.New("group: no directory")
	}
	if err := c.validateMembers(); err != nil {
		return fmt.Errorf("group: %w", err)
	}
	if err := c.Timing.validate(); err != nil {
		return fmt.Errorf("group: %w", err)
	}
	if err := c.Limits.validate(); err != nil {
		return fmt.Errorf("group: %w", err)
	}
	if err := c.Lock.Validate(); err != nil {
		return fmt.Errorf("group: lock: %w", err)
	}
	return nil
}

func (c Config) validateMembers() error {
	peers := make(map[string]string)
	for i, m := range c.Members {
		switch {
		case m.ID == "" || m.Peer == "":
			return errors.New("a member has no id or no peer address")
		case i > 0 && c.Members[i-1].ID == m.ID:
			return fmt.Errorf("two members have the id %q", m.ID)
		case peers[m.Peer] != "":
			return fmt.Errorf("members %q and %q have the peer address %q", peers[m.Peer], m.ID, m.Peer)
		}
		peers[m.Peer] = m.ID
	}
	if _, ok := c.member(c.Node); !ok {
		return fmt.Errorf("node %q is not a member", c.Node)
	}
	return nil
}

func (c Config) member(id string) (Member, bool) {
	i := slices.IndexFunc(c.Members, func(m Member) bool { return m.ID == id })
	if i < 0 {
		return Member{}, false
	}
	return c.Members[i], true
}
