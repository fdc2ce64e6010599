package api

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Several groups are worth their price only if several nodes lead. Each group has a member that leads it by preference,
// the same in everybody's eyes, and whoever else leads hands over to it: gently, once that member has been seen up, in the
// same term and caught up for a while, and less and less often if it does not stay.

const (
	defaultSteady = 5 * time.Second // for so long the preferred one has to be as it should, and this node has to have led
	restOfSteady  = 4               // times that, between two attempts for one group; doubled each time
	maxRest       = 10 * time.Minute
	spreadLag     = 1000 // entries that the preferred one may lag behind; the library sends the rest before it hands over
)

// spreadEvery is how often a leader looks at the preferred ones.
func (s *Server) spreadEvery() time.Duration { return s.config.Steady / 5 }

// preferred is the member that leads a group if it can: they take turns in the order of their ids.
func preferred(number uint16, members []string) string {
	if len(members) == 0 {
		return ""
	}
	members = slices.Sorted(slices.Values(members))
	return members[int(number)%len(members)]
}

// turn is what a node remembers for one group of which it is not the preferred leader.
type turn struct {
	hold    time.Duration // see Config.Steady
	term    uint64        // in which this node leads; 0: it does not
	leading time.Time     // since then
	steady  time.Time     // the preferred one has been as it should since then; zero: it is not
	rest    time.Duration
	next    time.Time // no attempt before
}

// due reports whether to hand over now, from what was seen of the group at an instant: the term in which this node leads
// (0: it does not), and whether the preferred member is up and caught up.
func (t *turn) due(now time.Time, term uint64, fit bool) bool {
	if term != t.term {
		t.term, t.leading, t.steady = term, now, time.Time{}
	}
	switch {
	case term == 0 || !fit:
		t.steady = time.Time{}
		return false
	case t.steady.IsZero():
		t.steady = now
	}
	if now.Sub(t.leading) < t.hold || now.Sub(t.steady) < t.hold || now.Before(t.next) {
		return false
	}
	// One that has stayed for long begins anew.
	if t.rest == 0 || now.Sub(t.next) > maxRest {
		t.rest = restOfSteady * t.hold
	} else {
		t.rest = min(2*t.rest, maxRest)
	}
	t.next = now.Add(t.rest)
	t.steady = time.Time{}
	return true
}

// transferable is a group whose leadership can be given to a certain member.
type transferable interface {
	Transfer(ctx context.Context, to string) error
}

// Spread hands leaderships over to the preferred members until ctx is done. With one group it does nothing: which
// node leads does not matter then.
func (s *Server) Spread(ctx context.Context) {
	if len(s.shards) == 1 {
		<-ctx.Done()
		return
	}
	turns := make([]turn, len(s.shards))
	for i := range turns {
		turns[i].hold = s.config.Steady
	}
	ticker := time.NewTicker(s.spreadEvery())
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.spread(ctx, turns, time.Now())
		case <-ctx.Done():
			return
		}
	}
}

// spread looks at each group once.
func (s *Server) spread(ctx context.Context, turns []turn, now time.Time) {
	var members []string
	for _, m := range s.members() {
		members = append(members, m.ID)
	}
	seen := s.look(ctx, members)
	for i, sh := range s.shards {
		to := preferred(sh.number, members)
		term := uint64(0)
		if _, leads := sh.group.Leader(); leads && to != s.config.Node {
			term = sh.group.Status().Term
		}
		if turns[i].due(now, term, sh.fit(seen[to], term)) {
			sh.give(ctx, to)
		}
	}
}

// look asks the members that this node would hand over to how they are. Those that do not answer in time are missing.
func (s *Server) look(ctx context.Context, members []string) map[string]*lockpb.StatusResponse {
	wanted := make(map[string]bool)
	for _, sh := range s.shards {
		if _, leads := sh.group.Leader(); leads {
			wanted[preferred(sh.number, members)] = true
		}
	}
	delete(wanted, s.config.Node)
	ctx, cancel := context.WithTimeout(s.asSelf(ctx), s.spreadEvery())
	defer cancel()
	var mu sync.Mutex
	seen := make(map[string]*lockpb.StatusResponse)
	var asking sync.WaitGroup
	for id := range wanted {
		asking.Go(func() {
			conn, err := s.peers.conn(id)
			if err != nil {
				return
			}
			// One that is down is asked again in a moment; there is nothing to say.
			if status, err := lockpb.NewClusterClient(conn).Status(s.shards[0].outgoing(ctx), &lockpb.StatusRequest{}); err == nil {
				mu.Lock()
				defer mu.Unlock()
				seen[id] = status
			}
		})
	}
	asking.Wait()
	return seen
}

// fit reports whether a member, as it says of itself, could lead the group.
func (sh *shard) fit(status *lockpb.StatusResponse, term uint64) bool {
	if int(sh.number) >= len(status.GetGroups()) {
		return false
	}
	theirs := status.GetGroups()[sh.number]
	return theirs.GetPending() == "" && theirs.GetLeader() == sh.config.Node && theirs.GetTerm() == term &&
		theirs.GetAppliedIndex()+spreadLag >= sh.info().Index
}

func (sh *shard) give(ctx context.Context, to string) {
	g, ok := sh.group.(transferable)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, sh.config.Patience)
	defer cancel()
	if err := g.Transfer(ctx, to); err != nil {
		sh.config.Logger.Info("the preferred leader did not take over", "group", sh.number, "node", to, "error", err)
		return
	}
	sh.config.Logger.Info("leadership given to the preferred leader", "group", sh.number, "node", to)
}
