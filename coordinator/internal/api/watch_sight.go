package api

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/feed"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// defaultBeat is how often a node with watchers asks the leaders how far their logs are.
const defaultBeat = 5 * time.Second

// sight is what a node knows of how far the logs are, for all its watches. Each beat asks the leaders, so it says that
// the cluster lives, and a watch that has come as far has missed nothing that was acknowledged before the question.
type sight struct {
	every time.Duration
	news  *news // of each attempt, also one in vain

	mu    sync.Mutex
	count uint64 // of the beats that were answered
	at    []feed.Position
	asked time.Time
}

// blindAfter is how long a watch goes on without certainty.
func (p *sight) blindAfter() time.Duration { return 3 * p.every }

func (p *sight) last() (count uint64, at []feed.Position, asked time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.count, p.at, p.asked
}

// runSight beats until ctx is done, while there are watches.
func (s *Server) runSight(ctx context.Context) {
	ticker := time.NewTicker(s.sight.every)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		if s.config.Journal.feed.Watchers() > 0 {
			s.beat(ctx)
		}
	}
}

func (s *Server) beat(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, s.sight.every)
	defer cancel()
	asked := time.Now()
	at, _, refused := s.frontiers(ctx)
	if refused == nil {
		s.sight.mu.Lock()
		s.sight.count++
		s.sight.at, s.sight.asked = at, asked
		s.sight.mu.Unlock()
	}
	s.sight.news.tell()
}

// frontier is how far the group's log is: at least as far as anything that was acknowledged before the call, anywhere.
func (sh *shard) frontier(ctx context.Context) (uint64, *refusal) {
	return anywhere(ctx, sh, false,
		func(ctx context.Context) (index uint64, refused *refusal) {
			refused = sh.read(ctx, func(m *lock.Machine) { index = m.Info().Index })
			return index, refused
		},
		func(ctx context.Context, _ lockpb.LocksClient) (uint64, error) {
			leader, _ := sh.group.Leader()
			conn, err := sh.peers.conn(leader)
			if err != nil {
				return 0, refuse(lockpb.Reason_NO_LEADER, err.Error())
			}
			answer, err := lockpb.NewClusterClient(conn).Meet(ctx, &lockpb.MeetRequest{
				Node: sh.config.Node, Group: uint32(sh.number), Groups: uint32(len(sh.shards)),
			})
			switch {
			case err != nil:
				return 0, err
			case answer.GetTerm() == 0: // only a leader proves itself
				return 0, refuse(lockpb.Reason_NO_LEADER, fmt.Sprintf("node %s does not lead group %d", leader, sh.number))
			}
			return answer.GetIndex(), nil
		})
}

// runJournal keeps everything going that follows from the journal, until ctx is done.
func (s *Server) runJournal(ctx context.Context) {
	if s.config.Journal == nil {
		return
	}
	var parts sync.WaitGroup
	parts.Go(func() { s.config.Journal.feed.Run(ctx) })
	parts.Go(func() { s.runSight(ctx) })
	for _, sh := range s.shards {
		parts.Go(func() { s.config.Journal.groups[sh.number].queues.run(ctx, sh.group.View) })
	}
	parts.Wait()
}
