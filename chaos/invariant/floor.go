package invariant

import (
	"fmt"
	"maps"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// floors is invariants 3 (a floor never goes down), 4 (no write below it takes effect) and 12 (only a token that was
// issued for the resource raises it).
type floors struct {
	options Options
	floor   map[lease.Resource]lease.Token
	tokens  map[lease.Resource]map[lease.Token]bool
}

func newFloors(o Options) *floors {
	return &floors{
		options: o,
		floor:   make(map[lease.Resource]lease.Token),
		tokens:  make(map[lease.Resource]map[lease.Token]bool),
	}
}

func (f *floors) clone() *floors {
	twin := &floors{options: f.options, floor: maps.Clone(f.floor), tokens: make(map[lease.Resource]map[lease.Token]bool, len(f.tokens))}
	for name, tokens := range f.tokens {
		twin.tokens[name] = maps.Clone(tokens)
	}
	return twin
}

func (f *floors) neverDown(_ *history, e Event) string {
	var name lease.Resource
	var token lease.Token
	switch e := e.(type) {
	case FloorRaised:
		name, token = e.Resource, e.Token
	case FloorRead:
		name, token = e.Resource, e.Token
	default:
		return ""
	}
	if was := f.floor[name]; token < was {
		return fmt.Sprintf("the floor was %v", was)
	}
	f.floor[name] = token
	return ""
}

func (f *floors) writes(_ *history, e Event) string {
	w, ok := e.(WriteAccepted)
	if !ok {
		return ""
	}
	if floor := f.floor[w.Resource]; w.Token < floor {
		return fmt.Sprintf("a write below the floor %v took effect", floor)
	}
	return ""
}

func (f *floors) issued(_ *history, e Event) string {
	switch e := e.(type) {
	case Granted:
		f.issue(e.Resource, e.Token)
	case TokenIssued:
		f.issue(e.Resource, e.Token)
	case FloorRaised:
		if f.options.TokensSeen && !f.tokens[e.Resource][e.Token] {
			return "raised by a token that was not issued for this resource"
		}
	}
	return ""
}

func (f *floors) issue(name lease.Resource, token lease.Token) {
	if f.tokens[name] == nil {
		f.tokens[name] = make(map[lease.Token]bool)
	}
	f.tokens[name][token] = true
}
