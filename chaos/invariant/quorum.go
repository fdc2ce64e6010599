package invariant

import (
	"fmt"
	"slices"
)

// quorum is invariant 6: nothing is granted, queued, renewed, released or reported without a quorum. What takes
// effect does so with a log entry, and a majority of the replicas has that before.
type quorum struct {
	options Options
	stored  int // replicas that have the entry at hand
}

func newQuorum(o Options) *quorum { return &quorum{options: o} }

func (q *quorum) judge(_ *history, e Event) string {
	if q.options.Replicas == 0 {
		return ""
	}
	switch e := e.(type) {
	case Stored:
		q.stored = distinct(e.Replicas)
	case Granted, Renewed, Ended, Queued, Unqueued, Forestalled, Reported, TokenIssued:
		if 2*q.stored <= q.options.Replicas {
			return fmt.Sprintf("took effect with its entry on %d of %d replicas", q.stored, q.options.Replicas)
		}
	}
	return ""
}

func distinct(names []string) int {
	return len(slices.Compact(slices.Sorted(slices.Values(names))))
}
