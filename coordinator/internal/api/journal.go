package api

import (
	"github.com/lychgate/lychgate/coordinator/internal/feed"
	"github.com/lychgate/lychgate/coordinator/internal/group"
)

// Journal is told of every entry that the replicas of this node apply, for what follows from them here: watches, the
// progress of waits, hot resources, figures. It holds no replica up.
type Journal struct {
	feed   *feed.Feed
	groups []*groupJournal
}

// groupJournal is the part of it that is about one group.
type groupJournal struct {
	queues *queues
	tally  *tally
}

// NewJournal is for so many groups. It is given to the groups, as OnApply and OnRestore, and to the server.
func NewJournal(groups int, metrics *Metrics) *Journal {
	j := &Journal{feed: feed.New(feed.Config{Groups: groups})}
	for range groups {
		j.groups = append(j.groups, &groupJournal{queues: newQueues(), tally: newTally(metrics)})
	}
	metrics.follow(j.feed)
	return j
}

// Applied takes an entry that the replica of a group applied.
func (j *Journal) Applied(number uint16, a group.Applied) {
	j.feed.Applied(number, a.Index, a.Now, a.Events)
	g := j.groups[number]
	g.queues.applied(a.Events)
	if !a.Replayed {
		g.tally.applied(a)
	}
}

// Restored says that a group's state was replaced by one at this index.
func (j *Journal) Restored(number uint16, index uint64) {
	j.feed.Restored(number, index)
	j.groups[number].queues.all()
	j.groups[number].tally.restored()
}
