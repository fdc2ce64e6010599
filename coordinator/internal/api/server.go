package api

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/health"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
	"github.com/lychgate/lychgate/coordinator/ticket"
)

// Sizes of messages. A request is a few names; an answer is at most a page of List.
const (
	maxRequest  = 16 << 10
	maxResponse = 4 << 20
)

// waitSlack is how long after its wait a call is left to the cluster, which ends waits itself, before the node
// that holds the call does it.
const waitSlack = 500 * time.Millisecond

// Config is what a Server is made from.
type Config struct {
	Node     string
	Members  []Member      // all nodes of the cluster
	Patience time.Duration // how long a call looks for a leader
	Budget   time.Duration // how long a call may take, a wait not counted
	MaxCalls int           // calls in progress
	Release  uint32        // the newest cluster version that the node knows; 0: lock.MaxVersion

	Signer  *ticket.Signer // until Keys has another
	Keys    KeyHolder      // nil: the key is never rotated
	Metrics *Metrics
	// Journal is fed by the groups. Without one, watches are served by other nodes, and the progress of waits by nobody.
	Journal *Journal
	Beat    time.Duration // how often a watch is told that it misses nothing; 0 means 5 s
	Probe   time.Duration // how often deadlocks across groups are looked for, where they are possible; 0 means 1 s
	Steady  time.Duration // how long a node has to have been fit before it is given a leadership; 0 means 5 s
	Logger  *slog.Logger

	Security Security
}

// Member is a node and its addresses.
type Member struct{ ID, Peer, GRPC, HTTP string }

// Server implements both services of package lockpb for one node. Run keeps it informed of the leader.
type Server struct {
	lockpb.UnimplementedLocksServer
	lockpb.UnimplementedClusterServer

	config  Config
	shards  []*shard                             // by number of the group, which is part of lease ids and tickets
	callers func(context.Context) lease.Identity // who calls, for tests; nil: everybody is the same
	peers   *peers
	news    *news         // of leaders
	stall   time.Duration // how long the reader of a stream may take nothing
	sight   sight         // of watches
	health  *health.Server
	closing context.Context // done once the node is stopping
	close   context.CancelFunc
	calls   atomic.Int64
	leave   func() // counts a call out
	cluster atomic.Pointer[string]
	signer  atomic.Pointer[ticket.Signer]
	roster  atomic.Pointer[[]Member]

	rotating sync.Mutex
	watchman *watchman // of callers

	oversight oversight

	requestTimeout time.Duration

	digesting  chan struct{} // capacity 1
	saving     chan struct{} // capacity 1
	firstReady chan struct{}
}

// New checks the configuration and does no I/O. The groups, in the order of their numbers, may start later.
func New(config Config, groups ...Group) (*Server, error) {
	switch {
	case len(groups) == 0 || len(groups) > lease.MaxGroups:
		return nil, fmt.Errorf("api: %d groups", len(groups))
	case config.Node == "":
		return nil, errors.New("api: no node id")
	case config.Metrics == nil:
		return nil, errors.New("api: no metrics")
	case config.Signer == nil && !remote(groups):
		return nil, errors.New("api: no ticket signer")
	case config.Patience <= 0 || config.Budget <= 0 || config.MaxCalls <= 0:
		return nil, errors.New("api: patience, budget and calls must be positive")
	}
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	config.Release = cmp.Or(config.Release, lock.MaxVersion)
	config.Steady = cmp.Or(config.Steady, defaultSteady)
	config.Probe = cmp.Or(config.Probe, defaultProbe)
	s := &Server{config: config, peers: newPeers(nil, config.Security.dial()), news: newNews(), stall: sessionStall, health: newHealth(), digesting: make(chan struct{}, 1), saving: make(chan struct{}, 1), firstReady: make(chan struct{})}
	s.leave = func() { s.calls.Add(-1) }
	s.signer.Store(config.Signer)
	s.SetMembers(config.Members)
	s.closing, s.close = context.WithCancel(context.Background())
	s.watchman = newWatchman(config.Metrics.registerer, config.Logger)
	s.oversight.streams = make(map[*overseen]struct{})
	s.requestTimeout = requestTimeout
	for i, g := range groups {
		s.shards = append(s.shards, newShard(s, uint16(i), g))
	}
	s.sight.every, s.sight.news = cmp.Or(config.Beat, defaultBeat), newNews()
	config.Metrics.watch(s.shards)
	return s, nil
}

// remote reports whether all groups are elsewhere.
func remote(groups []Group) bool {
	for _, g := range groups {
		if _, ok := g.(summarised); !ok {
			return false
		}
	}
	return true
}

// Stop ends all calls, those that wait too, with STOPPING, and refuses new ones. It does not wait for them.
func (s *Server) Stop() { s.close() }

// enter counts a call in. Beyond nine tenths of the bound only calls that keep or end leases get in.
func (s *Server) enter(keeps bool) (leave func(), refused *refusal) {
	limit := int64(s.config.MaxCalls)
	if !keeps {
		limit -= limit / 10
	}
	if s.calls.Add(1) > limit {
		s.calls.Add(-1)
		return nil, refuse(lockpb.Reason_OVERLOADED, "this node has too many calls in progress").retryAfter(time.Second)
	}
	return s.leave, nil
}

// clusterName is empty until the cluster is initialised; then it never changes, and is the same in all groups.
func (s *Server) clusterName() string {
	if name := s.cluster.Load(); name != nil {
		return *name
	}
	name := s.shards[0].info().Cluster
	if name != "" {
		s.cluster.Store(&name)
	}
	return name
}

// within bounds a call that does not wait. Where the caller has a deadline, it ends a little earlier, so that the
// caller learns what happened instead of nothing.
func (s *Server) within(ctx context.Context) (context.Context, context.CancelFunc) {
	budget := s.config.Budget
	if deadline, ok := ctx.Deadline(); ok {
		left := time.Until(deadline)
		budget = min(budget, left-min(left/10, 100*time.Millisecond))
	}
	return context.WithTimeout(ctx, budget)
}

func newLeaseID(group uint16) lease.ID {
	var random [14]byte
	_, _ = rand.Read(random[:]) // never fails (crypto/rand)
	return lease.NewID(group, random)
}

// newCall numbers a call that waits: unique, and not 0, which means that nobody waits.
func newCall() uint64 {
	var random [8]byte
	_, _ = rand.Read(random[:])
	return binary.BigEndian.Uint64(random[:]) | 1
}
