package api

import (
	"context"
	"errors"
	"sync"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// remoteGroup is one group of a Remote. It implements Group and leads nowhere.
type remoteGroup struct {
	remote *Remote
	number int

	mu      sync.Mutex
	leader  string
	term    uint64
	info    lock.Info
	changed chan struct{}
}

// take believes the newest term about who leads, and the largest index about the state.
func (g *remoteGroup) take(said []*lockpb.StatusResponse) {
	g.mu.Lock()
	defer g.mu.Unlock()
	leader, term := "", g.term
	for _, status := range said {
		one := status.GetGroups()[g.number]
		if one.GetTerm() > term || (one.GetTerm() == term && leader == "") {
			leader, term = one.GetLeader(), one.GetTerm()
		}
		if one.GetAppliedIndex() >= g.info.Index || g.info.Incarnation < one.GetIncarnation() {
			g.info = lock.Info{
				Initialised: true, Cluster: status.GetCluster(), Version: status.GetVersion(), Incarnation: one.GetIncarnation(),
				Index: one.GetAppliedIndex(), Now: lock.LeaseTime(one.GetAsOf()), Leases: int(one.GetLeases()), Waiters: int(one.GetWaiters()),
			}
		}
	}
	if leader != g.leader {
		close(g.changed)
		g.changed = make(chan struct{})
	}
	g.leader, g.term = leader, term
}

// Info implements summarised.
func (g *remoteGroup) Info() lock.Info {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.info
}

// Doubt implements doubtful.
func (g *remoteGroup) Doubt() { g.remote.doubt() }

// Leader implements Group.
func (g *remoteGroup) Leader() (id string, self bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.leader, false
}

// Changed implements Group.
func (g *remoteGroup) Changed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.changed
}

// Status implements Group.
func (g *remoteGroup) Status() group.Status {
	g.mu.Lock()
	defer g.mu.Unlock()
	return group.Status{State: "gateway", Leader: g.leader, Term: g.term, Pending: g.remote.Fault()}
}

var errRemote = errors.New("a gateway has no part in the group")

// Propose implements Group.
func (g *remoteGroup) Propose(context.Context, lock.Command) (group.Outcome, error) {
	return group.Outcome{}, &group.Error{Kind: group.NotLeader, Err: errRemote}
}

// Read implements Group.
func (g *remoteGroup) Read(context.Context, func(*lock.Machine)) (group.Outcome, error) {
	return group.Outcome{}, &group.Error{Kind: group.NotLeader, Err: errRemote}
}

// Answer implements Group.
func (g *remoteGroup) Answer(context.Context, group.Question) (group.Answer, error) {
	return group.Answer{}, &group.Error{Kind: group.NotLeader, Err: errRemote}
}

// Await implements Group. Only what leads is asked for it.
func (g *remoteGroup) Await(lease.Identity, lease.ClientID, lease.RequestID) *group.Wait {
	panic("api: a wait in a group that is elsewhere")
}

// View implements Group: there is nothing to see.
func (g *remoteGroup) View(fn func(*lock.Machine)) { fn(lock.New()) }

// Freeze implements Group.
func (g *remoteGroup) Freeze() (*lock.Snapshot, lock.Info) { return lock.New().Snapshot(), g.Info() }

// doubtful is a group that learns of its leader from others, and learns faster when it is told that one is gone.
type doubtful interface{ Doubt() }

// doubt says that the leader could not be reached.
func (sh *shard) doubt() {
	if g, ok := sh.group.(doubtful); ok {
		g.Doubt()
	}
}
