package coordinator

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/group"
)

// Config is what a coordinator node is made from; the koanf tags are its keys in YAML. DefaultConfig fills in
// everything but Node, Dir and Members. Durations must be positive, sizes too.
type Config struct {
	Node    string   `koanf:"node"`    // own id, one of Members
	Dir     string   `koanf:"dir"`     // log, snapshots, the private ticket key, the audit log
	Members []Member `koanf:"members"` // the same list on every node
	Groups  int      `koanf:"groups"`  // Raft groups among which the resources are divided; fixed at creation, the same on every node

	Listen Listen `koanf:"listen"`
	Timing Timing `koanf:"timing"`
	Lease  Lease  `koanf:"lease"`
	Limits Limits `koanf:"limits"`
	Audit  Audit  `koanf:"audit"`
	Log    Log    `koanf:"log"`

	TLS    *TLS    `koanf:"tls"`    // absent: plain text, and nobody is authenticated
	Access *Access `koanf:"access"` // absent: everybody may do everything
	// Insecure lets a node without TLS listen where other machines can reach it.
	Insecure bool `koanf:"insecure"`
}

// Member is a node of the cluster with the addresses (host:port) at which others reach it.
type Member struct {
	ID   string `koanf:"id"`
	Peer string `koanf:"peer"` // Raft, between coordinators
	GRPC string `koanf:"grpc"` // the API
	HTTP string `koanf:"http"` // REST, keys, metrics, health
}

// Listen says where the node itself listens, if that differs from its entry in Members.
type Listen struct {
	Peer string `koanf:"peer"`
	GRPC string `koanf:"grpc"`
	HTTP string `koanf:"http"`
}

// Timing is how fast the cluster notices a dead leader. It must be the same on every node.
type Timing struct {
	Heartbeat   time.Duration `koanf:"heartbeat"`    // a follower without contact for this long, up to twice, stands for election
	Election    time.Duration `koanf:"election"`     // a candidate without a majority for this long tries again
	LeaderLease time.Duration `koanf:"leader_lease"` // a leader without contact to a majority for this long steps down
	Commit      time.Duration `koanf:"commit"`       // an idle leader tells its followers what is committed this often
	Call        time.Duration `koanf:"call"`         // how long a call looks for a leader before it is refused with NO_LEADER
	Disk        time.Duration `koanf:"disk"`         // a node whose disk has not answered for this long leaves the group to the others
	Stuck       time.Duration `koanf:"stuck"`        // a replica that applies nothing for this long, although there is something, says so
}

// Failover is how long the cluster is normally without a leader after its leader's machine is gone. The end of its process alone
// is noticed sooner.
func (t Timing) Failover() time.Duration { return t.group().Failover() }

// group is the part that the Raft group keeps to.
func (t Timing) group() group.Timing {
	return group.Timing{
		Heartbeat: t.Heartbeat, Election: t.Election, LeaderLease: t.LeaderLease, Commit: t.Commit, Disk: t.Disk, Stuck: t.Stuck,
	}
}

// Lease is the cluster's policy. It is written into the replicated state when the cluster is created, and from
// then on that counts: two nodes with other files still agree.
type Lease struct {
	DefaultTTL  time.Duration `koanf:"default_ttl"` // of an acquire that names none
	MinTTL      time.Duration `koanf:"min_ttl"`
	MaxTTL      time.Duration `koanf:"max_ttl"`
	MaxWait     time.Duration `koanf:"max_wait"`     // longest wait of one acquire
	RetryWindow time.Duration `koanf:"retry_window"` // an acquire older than max_wait + this is refused, not executed
	Grace       time.Duration `koanf:"grace"`        // how long a waiter whose call went away keeps its place
	ClaimWindow time.Duration `koanf:"claim_window"` // how long a grant to a waiter stands without a renewal
	HeadStart   time.Duration `koanf:"head_start"`   // after an election only the head of a queue is granted for this long
	MaxWaiters  int           `koanf:"max_waiters"`  // of one resource
	MaxRequests int           `koanf:"max_requests"` // remembered requests of one client
	MaxExpiries int           `koanf:"max_expiries"` // overdue leases ended by one log entry
	// Remembered requests of one tenant in each group, those of leases and waits included; a tenant's policy goes before it.
	MaxTenantRequests int `koanf:"max_tenant_requests"`
}

// Limits bounds what one node holds for its callers. Past a bound the answer is OVERLOADED.
type Limits struct {
	Connections int `koanf:"connections"` // open connections of each port; more are closed at once
	Calls       int `koanf:"calls"`       // calls in progress, waiting ones included; the last tenth is for renewals
}

// Audit is the log of decisions: one JSON line each, in log order.
type Audit struct {
	File     string `koanf:"file"`      // empty: audit.jsonl in dir; "off": none; that of group 1 is audit.group-1.jsonl
	MaxBytes int64  `koanf:"max_bytes"` // of one file; then it is renamed to FILE.INDEX and a new one begins
	Keep     int    `koanf:"keep"`      // renamed files that are kept
	Renewals bool   `koanf:"renewals"`  // also write renewals that worked; refused ones are always written
}

// AuditOff as Audit.File writes no audit log.
const AuditOff = "off"

// Log is the node's own log.
type Log struct {
	Level  string `koanf:"level"`  // debug, info, warn, error
	Format string `koanf:"format"` // text, json
}

// DefaultConfig is a Config whose Node, Dir and Members are still to be filled in.
func DefaultConfig() Config {
	timing := group.DefaultTiming()
	return Config{
		Groups: 1,
		Timing: Timing{
			Heartbeat:   timing.Heartbeat,
			Election:    timing.Election,
			LeaderLease: timing.LeaderLease,
			Commit:      timing.Commit,
			Call:        2 * time.Second,
			Disk:        timing.Disk,
			Stuck:       timing.Stuck,
		},
		Lease: Lease{
			DefaultTTL:  30 * time.Second,
			MinTTL:      5 * time.Second,
			MaxTTL:      time.Hour,
			MaxWait:     5 * time.Minute,
			RetryWindow: time.Minute,
			Grace:       10 * time.Second,
			ClaimWindow: 10 * time.Second,
			HeadStart:   time.Second,
			MaxWaiters:  10_000,
			MaxRequests: 10_000,
			MaxExpiries: 2_500,

			MaxTenantRequests: 4_000_000,
		},
		Limits: Limits{Connections: 10_000, Calls: 100_000},
		Audit:  Audit{MaxBytes: 100 << 20, Keep: 10},
		Log:    Log{Level: "info", Format: "text"},
	}
}

// groupAuditFile is the path of one group's audit log, empty for none: "audit.jsonl" of the first group, and
// "audit.group-1.jsonl" of the next.
func (c Config) groupAuditFile(number uint16) string {
	path := c.auditFile()
	if number == 0 || path == "" {
		return path
	}
	extension := filepath.Ext(path)
	return fmt.Sprintf("%s.group-%d%s", strings.TrimSuffix(path, extension), number, extension)
}

// auditFile is the path of the first group's audit log, empty for none.
func (c Config) auditFile() string {
	switch c.Audit.File {
	case AuditOff:
		return ""
	case "":
		return filepath.Join(c.Dir, "audit.jsonl")
	}
	return c.Audit.File
}

// member is the entry of a node, and whether there is one.
func (c Config) member(id string) (Member, bool) {
	for _, m := range c.Members {
		if m.ID == id {
			return m, true
		}
	}
	return Member{}, false
}

// resolved fills the listen addresses in from the node's own entry.
func (c Config) resolved() Config {
	self, _ := c.member(c.Node)
	for _, pair := range []struct {
		listen   *string
		fallback string
	}{
		{&c.Listen.Peer, self.Peer},
		{&c.Listen.GRPC, self.GRPC},
		{&c.Listen.HTTP, self.HTTP},
	} {
		if *pair.listen == "" {
			*pair.listen = pair.fallback
		}
	}
	return c
}
