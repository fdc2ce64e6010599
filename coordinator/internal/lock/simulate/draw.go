package simulate

import (
	"math/rand/v2"
	"strings"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// Faults is a set of kinds of faults. Each seed draws which exist, and how strong: many kinds at once hide what few show.
type Faults uint32

// The kinds.
const (
	Loss          Faults = 1 << iota // of messages
	Doubles                          // of messages
	Delays                           // of messages, that let others overtake
	Partitions                       // between replicas
	Crashes                          // of replicas
	Freezes                          // of replicas
	Stalls                           // of the leader's disk
	Transfers                        // of leadership, by nobody's fault
	Drift                            // of clocks
	Suspends                         // of replicas with their clocks
	Pauses                           // of clients, which then go on
	ClientCrashes                    // with all that they knew
	StoreCrashes                     // with their sessions
	ProxyCrashes                     // with half of the sessions
	StuckSessions                    // that take seconds to end
	LostBinds                        // answers of stores
	Breaks                           // by an administrator
	Recoveries                       // without a majority
	allFaults     = 1<<iota - 1
)

var faultNames = []string{
	"loss", "doubles", "delays", "partitions", "crashes", "freezes", "stalls", "transfers", "drift", "suspends", "pauses",
	"client crashes", "store crashes", "proxy crashes", "stuck sessions", "lost binds", "breaks", "recoveries",
}

func (f Faults) String() string {
	var names []string
	for i, name := range faultNames {
		if f&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

var resources = [...]lease.Resource{"r1", "r2"}

const (
	longestElection = 5 * time.Second
	worstDrift      = 400 // parts in a million, either way
)

// drawn is what the seed decided in advance.
type drawn struct {
	kinds    Faults
	replicas int
	clients  int
	config   lock.Config
	loss     int           // in a thousand
	doubles  int           // in a thousand
	delays   int           // in a thousand
	every    time.Duration // a fault of each kind that strikes
	think    time.Duration // of a client between two locks
	hold     time.Duration
	shared   int // in a thousand
	waits    int // in a thousand
}

func draw(cfg Config) drawn {
	r := rand.New(rand.NewPCG(cfg.Seed, 1))
	ttl := []time.Duration{4 * time.Second, 10 * time.Second, 30 * time.Second, 60 * time.Second}[r.IntN(4)]
	d := drawn{
		kinds:    Faults(r.Uint32()) & allFaults,
		replicas: 3 + 2*r.IntN(2),
		clients:  2 + r.IntN(5),
		config: lock.Config{
			DefaultTTL: ttl, MinTTL: ttl / 2, MaxTTL: 2 * ttl, MaxWait: 4 * ttl, RetryWindow: 4 * ttl, Grace: ttl / 2,
			ClaimWindow: ttl / 2, HeadStart: time.Second, MaxWaiters: 8, MaxRequests: 200, MaxExpiries: 1 + r.IntN(4),
		},
		loss: 10 + r.IntN(200), doubles: 10 + r.IntN(300), delays: 10 + r.IntN(200),
		every:  ttl * time.Duration(2+r.IntN(60)),
		think:  ttl * time.Duration(1+r.IntN(40)) / 4,
		hold:   ttl * time.Duration(1+r.IntN(20)) / 4,
		shared: r.IntN(1000), waits: 300 + r.IntN(700),
	}
	if r.IntN(20) == 0 {
		d.kinds = 0
	}
	d.kinds &^= cfg.Without
	if cfg.Clients > 0 {
		d.clients = min(d.clients, cfg.Clients)
	}
	return d
}
