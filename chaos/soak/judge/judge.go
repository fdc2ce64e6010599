// Package judge says whether what a database holds in the end is what successive holders of locks may have left there.
// It knows nothing of the system that it judges but the history that clients, the table and the floors tell, and
// translates that into the events of the invariants.
package judge

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/lychgate/lychgate/chaos/invariant"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// Row is one committed write. Place counts the writes of a resource from 1, in the order in which they were committed.
type Row struct {
	Resource string
	Place    int64
	Token    uint64
	Op       string // which attempt it was; unique
}

// Contact is a holder's first read under its token: it saw the resource's rows up to Seen, and no other.
type Contact struct {
	Resource string
	Token    uint64
	Seen     int64
}

// Floor is a floor as the store had it; they stand in the order in which they were read.
type Floor struct {
	Resource string
	Token    uint64
}

// Outcome is what a client was told of an attempt to write.
type Outcome uint8

// The outcomes.
const (
	Unknown Outcome = iota // nothing, or that it is not known: it may be there or not
	Acknowledged
	Refused // it has not taken effect, and never will
)

// Attempt is one attempt to write.
type Attempt struct {
	Resource string
	Token    uint64
	Outcome  Outcome
}

// History is what a run leaves behind.
type History struct {
	Rows     []Row // any order
	Attempts map[string]Attempt
	Contacts []Contact // any order
	Floors   []Floor
}

// Judge returns what cannot be of a run in which the fence held, each with its reason, at most a hundred; none if all is well.
func Judge(h History) []error {
	var found []error
	found = append(found, present(h)...)
	found = append(found, order(h)...)
	found = append(found, floors(h)...)
	return found[:min(len(found), 100)]
}

// present compares what clients were told with what is there.
func present(h History) (found []error) {
	there := map[string]bool{}
	for _, row := range h.Rows {
		attempt, known := h.Attempts[row.Op]
		switch {
		case !known:
			found = append(found, fmt.Errorf("%s: a row that nobody wrote: %+v", row.Op, row))
		case there[row.Op]:
			found = append(found, fmt.Errorf("%s: written twice: %+v", row.Op, row))
		case attempt.Outcome == Refused:
			found = append(found, fmt.Errorf("%s: refused, and there: %+v", row.Op, row))
		case attempt.Token != row.Token || attempt.Resource != row.Resource:
			found = append(found, fmt.Errorf("%s: written as %+v, and there as %+v", row.Op, attempt, row))
		}
		there[row.Op] = true
	}
	for op, attempt := range h.Attempts {
		if attempt.Outcome == Acknowledged && !there[op] {
			found = append(found, fmt.Errorf("%s: acknowledged, and not there: %+v", op, attempt))
		}
	}
	return found
}

// step is a row or a contact, at its place in the order of commits.
type step struct {
	resource string
	place    int64 // of the row, or of the last one that the contact saw
	contact  bool
	token    uint64
}

// order replays the commits of each resource, with each contact behind the last row that it saw: no row and no contact
// of a lower token may follow one of a higher.
func order(h History) (found []error) {
	var steps []step
	for _, r := range h.Rows {
		steps = append(steps, step{resource: r.Resource, place: r.Place, token: r.Token})
	}
	for _, c := range h.Contacts {
		steps = append(steps, step{resource: c.Resource, place: c.Seen, contact: true, token: c.Token})
	}
	slices.SortFunc(steps, compare)
	last := map[string]int64{}
	floor := map[string]uint64{}
	checker := invariant.New(invariant.Options{})
	for _, s := range steps {
		if !s.contact {
			if s.place != last[s.resource]+1 {
				found = append(found, fmt.Errorf("%s: behind the write at place %d comes one at %d", s.resource, last[s.resource], s.place))
			}
			last[s.resource] = s.place
		}
		if s.place > last[s.resource] {
			found = append(found, fmt.Errorf("%s: token %d saw %d writes, and there are %d", s.resource, s.token, s.place, last[s.resource]))
		}
		if err := observe(checker, s, floor); err != nil {
			return append(found, fmt.Errorf("at place %d of %s: %w", s.place, s.resource, err)) // the checker ends here
		}
	}
	return found
}

// compare orders by resource and place, a row before the contacts that have seen it, and these by token: of two that
// saw the same the order is not known.
func compare(a, b step) int {
	first := func(contact bool) int {
		if contact {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(a.resource, b.resource), cmp.Compare(a.place, b.place),
		cmp.Compare(first(a.contact), first(b.contact)), cmp.Compare(a.token, b.token))
}

// observe tells the invariants of a step. Whoever wrote or read under a token has raised the floor to it.
func observe(checker *invariant.Checker, s step, floor map[string]uint64) error {
	name, token := lease.Resource(s.resource), lease.Token(s.token)
	if !s.contact {
		if err := checker.Observe(invariant.WriteAccepted{Resource: name, Token: token}); err != nil {
			return err
		}
	}
	if s.contact || s.token > floor[s.resource] {
		if err := checker.Observe(invariant.FloorRaised{Resource: name, Token: token}); err != nil {
			return err
		}
		floor[s.resource] = s.token
	}
	return nil
}

// floors wants the floors never to go down, and to end where the last rows and contacts are, or above.
func floors(h History) (found []error) {
	checker := invariant.New(invariant.Options{})
	last := map[string]uint64{}
	for _, f := range h.Floors {
		if err := checker.Observe(invariant.FloorRead{Resource: lease.Resource(f.Resource), Token: lease.Token(f.Token)}); err != nil {
			return append(found, err) // the checker ends here
		}
		last[f.Resource] = max(last[f.Resource], f.Token)
	}
	accepted := map[string]uint64{}
	for _, r := range h.Rows {
		accepted[r.Resource] = max(accepted[r.Resource], r.Token)
	}
	for _, c := range h.Contacts {
		accepted[c.Resource] = max(accepted[c.Resource], c.Token)
	}
	for name, token := range accepted {
		if last[name] < token {
			found = append(found, fmt.Errorf("%s: token %d was accepted, and the floor is %d", name, token, last[name]))
		}
	}
	return found
}
