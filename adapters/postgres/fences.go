package postgres

import (
	"slices"

	"github.com/lychgate/lychgate/adapters/postgres/internal/track"
	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/proxy/gate"
)

// fences is what a session is bound to, and what of that outlives the running transaction. It follows the setting
// fence.ticket: SET LOCAL ends with the transaction, SET counts if the transaction commits, RESET takes all away
// if it commits. Inside a transaction everything is in force together. The gate and the store know only the union;
// a binding that is too many is safe, one too few is not.
type fences struct {
	base     []fencestore.Claim // of the session
	local    []fencestore.Claim // of the running transaction
	next     []fencestore.Claim // takes base's place if the transaction commits
	replaces bool               // next counts, even if it is empty
	unwanted []fencestore.Claim // no longer in force; left when the session is idle
}

// any reports whether something is in force.
func (f *fences) any() bool { return len(f.base)+len(f.local)+len(f.next) > 0 }

// inForce lists what is in force in the running transaction.
func (f *fences) inForce() []fencestore.Claim { return union(union(f.base, f.local), f.next) }

// afterCommit lists what will be in force if the running transaction commits.
func (f *fences) afterCommit() []fencestore.Claim {
	if f.replaces {
		return f.next
	}
	return f.base
}

// add puts claims in force that the session has just joined.
func (f *fences) add(claims []fencestore.Claim, local bool) {
	if local {
		f.local = union(f.local, claims)
	} else {
		f.next, f.replaces = union(f.next, claims), true
	}
	f.unwanted = gate.Without(f.unwanted, claims)
}

// reset takes everything away, once the transaction commits. What the transaction itself has joined stays in force
// until its end.
func (f *fences) reset() {
	f.local = union(f.local, f.next)
	f.next, f.replaces = nil, true
}

// settle draws the line under a transaction.
func (f *fences) settle(outcome track.Outcome) {
	if outcome == track.Partial {
		f.blur()
		return
	}
	if !f.replaces && len(f.local) == 0 {
		return
	}
	before := f.inForce()
	kept := f.base
	switch {
	case !f.replaces, outcome == track.RolledBack:
	case outcome == track.Committed:
		kept = f.next
	default:
		kept = union(f.base, f.next)
	}
	f.unwanted = gate.Without(union(f.unwanted, gate.Without(before, kept)), kept)
	f.base = gate.Without(before, gate.Without(before, kept)) // kept, under the newest token that was joined
	f.local, f.next, f.replaces = nil, nil, false
}

// blur deals with a transaction of which a part has ended: which of the changes so far count is no longer known, so
// everything is kept, and nothing is taken away before the next change.
func (f *fences) blur() {
	f.base, f.next, f.replaces = union(f.base, f.next), nil, false
}

// takeUnwanted hands over what is to be left.
func (f *fences) takeUnwanted() []fencestore.Claim {
	claims := f.unwanted
	f.unwanted = nil
	return claims
}

// union lists the claims of both, for each resource the larger token.
func union(a, b []fencestore.Claim) []fencestore.Claim { return gate.Newest(slices.Concat(a, b)) }
