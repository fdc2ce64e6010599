package lock

import (
	"github.com/lychgate/lychgate/chaos/seeded"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// SmallestLive is the smallest token of a lease that has not ended, or the next token where there is none. It never goes down
// from one entry to the next: a new lease has the next token, or joins one that is live. So a store may refuse every token
// below it for good, also when this replica lags. It looks at every request.
func (s *Snapshot) SmallestLive() lease.Token {
	smallest := lease.Token(uint64(s.header.Incarnation)<<lease.CounterBits + s.header.Counter + 1)
	for _, q := range s.requests.slots() {
		r := s.requests.peek(q)
		if seeded.Is(seeded.FoldedByIdleness) || r.stage.over() || r.stage == StageWaiting {
			continue
		}
		terms := s.texts.terms(r.text())
		smallest = min(smallest, terms.token)
	}
	return smallest
}
