package bench

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/load"
)

// ErrViolated is in the error of a run in which an invariant did not hold.
var ErrViolated = errors.New("an invariant did not hold")

// judge holds what holders saw against the invariants: the times for which they certainly held a lock, from the grant's
// answer to the sending of the release, must not overlap, and each grant has a larger token than the one before.
func judge(records []load.Record) error {
	byResource := map[uint32][]load.Record{}
	for _, r := range records {
		byResource[r.Resource] = append(byResource[r.Resource], r)
	}
	for _, rs := range byResource {
		slices.SortFunc(rs, func(a, b load.Record) int { return cmp.Compare(a.Granted, b.Granted) })
		for i := range rs[1:] {
			if err := judgePair(rs[i], rs[i+1]); err != nil {
				return err
			}
		}
	}
	return nil
}

// judgePair judges two grants of one resource that follow one another.
func judgePair(a, b load.Record) error {
	switch {
	case a.Released > b.Granted:
		return fmt.Errorf("%w: resource %d was granted to worker %d with token %d while worker %d held it with token %d, for another %v",
			ErrViolated, a.Resource, b.Worker, b.Token, a.Worker, a.Token, time.Duration(a.Released-b.Granted))
	case a.Token >= b.Token:
		return fmt.Errorf("%w: resource %d has token %d after %d", ErrViolated, a.Resource, b.Token, a.Token)
	}
	return nil
}

// judgeSummary looks at what the workers themselves found.
func judgeSummary(s load.Summary) error {
	if len(s.Violations) > 0 {
		return fmt.Errorf("%w: %s", ErrViolated, s.Violations[0])
	}
	return nil
}
