package invariant

import (
	"fmt"
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// exclusion is invariant 1: at each position of the log a resource has at most one exclusive lease, or shared ones.
func exclusion(h *history, e Event) string {
	g, ok := e.(Granted)
	if !ok {
		return ""
	}
	for _, l := range h.holders[g.Resource] {
		if g.Mode != lease.Shared || l.Mode != lease.Shared {
			return fmt.Sprintf("granted while %v holds it with token %v", l.Request, l.Token)
		}
	}
	if _, twice := h.leases[g.Lease]; twice {
		return "two live leases have the same id"
	}
	return ""
}

// tokens is invariant 2: each grant that is not a join to a live shared period takes a new, larger token.
type tokens struct{ last lease.Token }

func newTokens() *tokens { return &tokens{} }

func (t *tokens) judge(h *history, e Event) string {
	switch e := e.(type) {
	case Granted:
		if holders := h.holders[e.Resource]; len(holders) > 0 && e.Mode == lease.Shared {
			if e.Token != holders[0].Token {
				return fmt.Sprintf("joined with another token than the period's %v", holders[0].Token)
			}
			return ""
		}
		return t.next(e.Token)
	case TokenIssued:
		return t.next(e.Token)
	}
	return ""
}

func (t *tokens) next(token lease.Token) string {
	switch {
	case token <= t.last:
		return fmt.Sprintf("the token is not above the last one, %v", t.last)
	case token > lease.MaxToken:
		return "the token is above 2^53-1"
	}
	t.last = token
	return ""
}

// ownership is invariant 5: only the identity that owns a live lease renews or releases it, and it ends once.
func ownership(h *history, e Event) string {
	switch e := e.(type) {
	case Renewed:
		return owns(h, e.Lease, e.By)
	case Ended:
		if e.Cause == Released || e.Cause == Cancelled {
			return owns(h, e.Lease, e.By)
		}
		return owns(h, e.Lease, ownerOf(h, e.Lease))
	}
	return ""
}

func owns(h *history, id lease.IDHash, by lease.Identity) string {
	switch l := h.leases[id]; {
	case l == nil:
		return "the lease is not live"
	case l.Request.Identity != by:
		return fmt.Sprintf("the lease belongs to %q", l.Request.Identity)
	}
	return ""
}

func ownerOf(h *history, id lease.IDHash) lease.Identity {
	if l := h.leases[id]; l != nil {
		return l.Request.Identity
	}
	return ""
}

// expiry is invariant 9: no lease expires before its TTL has passed since its last grant or renewal, up to the
// clock's error; nor later than was promised.
func expiry(o Options) func(*history, Event) string {
	return func(h *history, e Event) string {
		ended, ok := e.(Ended)
		if !ok || ended.Cause != Expired {
			return ""
		}
		l := h.leases[ended.Lease]
		if l == nil {
			return "" // invariant 5
		}
		lived := time.Duration(ended.At - l.stamped)
		if tolerance := l.stands / 1e6 * time.Duration(o.ClockError); lived < l.stands-tolerance {
			return fmt.Sprintf("expired %v after it was stamped for %v", lived, l.stands)
		}
		if o.MaxLate > 0 && lived > l.stands+o.MaxLate {
			return fmt.Sprintf("expired %v after it was stamped for %v, promised was %v more at most", lived, l.stands, o.MaxLate)
		}
		return ""
	}
}
