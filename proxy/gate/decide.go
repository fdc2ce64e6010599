package gate

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/fencestore"
)

// Policy is what a listener does with a connection that shows no ticket.
type Policy uint8

// The policies.
const (
	Require  Policy = iota + 1 // it may log in and show a ticket later; until then nothing is executed
	ReadOnly                   // it may read: a courtesy that the client can undo
	Allow                      // it is relayed, unfenced
)

func (p Policy) String() string {
	switch p {
	case Require:
		return "require"
	case ReadOnly:
		return "read-only"
	case Allow:
		return "allow"
	}
	return fmt.Sprintf("policy(%d)", uint8(p))
}

// ParsePolicy reads what String writes.
func ParsePolicy(s string) (Policy, error) {
	for _, p := range []Policy{Require, ReadOnly, Allow} {
		if s == p.String() {
			return p, nil
		}
	}
	return 0, fmt.Errorf("policy %q is unknown; known are require, read-only and allow", s)
}

// Access is what a session may do as it stands.
type Access uint8

// The kinds of access.
const (
	Fenced  Access = iota + 1 // everything, under its bindings
	Barred                    // nothing but to show a ticket
	Reading                   // read, by default
	Open                      // everything, unfenced
)

// Executes reports whether statements may be executed at all. The zero value is no access.
func (a Access) Executes() bool { return a == Fenced || a == Reading || a == Open }

// Without is the access of a session that has no ticket.
func (p Policy) Without() Access {
	switch p {
	case ReadOnly:
		return Reading
	case Allow:
		return Open
	case Require:
	}
	return Barred
}

// Plan is the decision for what a session has shown: what it may do, and what it has to be bound to before that.
type Plan struct {
	Access  Access
	Without Access             // what the session may do when it has no ticket any more
	Claims  []fencestore.Claim // sorted by resource, each resource once; bound in this order so that two sessions cannot deadlock
}

// ReadOnly reports whether the session is to be asked to be read-only: it has no ticket and may only read, or all of its
// tickets are shared. That is a courtesy, which a client can undo; with one exclusive ticket the store decides, resource by
// resource.
func (p Plan) ReadOnly() bool { return p.Access == Reading || AllShared(p.Claims) }

// AllShared reports whether there are claims and all of them are for reading.
func AllShared(claims []fencestore.Claim) bool {
	return len(claims) > 0 && !slices.ContainsFunc(claims, func(c fencestore.Claim) bool { return c.Mode == fencestore.Exclusive })
}

// Unsigned is a resource and token without a signature, as the client wrote them.
type Unsigned struct{ Resource, Token string }

// shown is what a session has shown, signatures already checked.
type shown struct {
	verified []fencestore.Claim
	unsigned []Unsigned
	cluster  string // that unsigned tokens are taken to be of
}

// rules are the parts of a listener's configuration that the decision needs.
type rules struct {
	policy        Policy
	allowUnsigned bool
	maxClaims     int
}

// decide says what a session that has shown s may do. It does not know the floors: only the store does.
func decide(r rules, s shown) (Plan, *Refusal) {
	claims := slices.Clone(s.verified)
	for _, u := range s.unsigned {
		claim, refusal := decideUnsigned(r, u, s.cluster)
		if refusal != nil {
			return Plan{}, refusal
		}
		claims = append(claims, claim)
	}
	if len(claims) > r.maxClaims {
		return Plan{}, &Refusal{
			Reason: TicketInvalid,
			Detail: fmt.Sprintf("%d tickets were shown; at most %d are accepted.", len(claims), r.maxClaims),
		}
	}
	for _, c := range claims {
		if c.Token == 0 || c.Token > fencestore.Token(lease.MaxToken) {
			return Plan{}, tokenOutOfRange(c)
		}
	}
	if len(claims) == 0 {
		return Plan{Access: r.policy.Without()}, nil
	}
	return Plan{Access: Fenced, Claims: Newest(claims)}, nil
}

func decideUnsigned(r rules, u Unsigned, cluster string) (fencestore.Claim, *Refusal) {
	if !r.allowUnsigned {
		return fencestore.Claim{}, &Refusal{
			Reason: TicketInvalid,
			Detail: "This listener accepts signed tickets only, no bare resource and token.",
			Hint:   "Set fence.ticket to the ticket that the lock was granted with.",
		}
	}
	if cluster == "" {
		return fencestore.Claim{}, &Refusal{
			Reason: NotReady,
			Detail: "The cluster that unsigned tokens are of is not known yet.",
			Hint:   "Retry when a coordinator can be reached.",
		}
	}
	resource, err := lease.ParseResource(u.Resource)
	if err != nil {
		return fencestore.Claim{}, &Refusal{Reason: TicketInvalid, Detail: "The " + err.Error() + "."}
	}
	claim := fencestore.Claim{Cluster: cluster, Resource: string(resource)}
	token, err := strconv.ParseUint(u.Token, 10, 64)
	if err != nil || token == 0 || token > uint64(lease.MaxToken) {
		return fencestore.Claim{}, tokenOutOfRange(claim)
	}
	claim.Token = fencestore.Token(token)
	return claim, nil
}

func tokenOutOfRange(c fencestore.Claim) *Refusal {
	return &Refusal{
		Reason: TicketInvalid, Claim: c,
		Detail: fmt.Sprintf("A token is a whole number from 1 to %d.", uint64(lease.MaxToken)),
	}
}

// Newest sorts claims and keeps the largest token of each resource: who shows 41 and 42 holds 42.
func Newest(claims []fencestore.Claim) []fencestore.Claim {
	slices.SortStableFunc(claims, func(a, b fencestore.Claim) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Resource, b.Resource), cmp.Compare(b.Token, a.Token))
	})
	return slices.CompactFunc(claims, func(a, b fencestore.Claim) bool { return keyOf(a) == keyOf(b) })
}

// key is what a floor is kept for.
type key struct{ cluster, resource string }

func keyOf(c fencestore.Claim) key { return key{c.Cluster, c.Resource} }

// Without lists the claims of old whose resource is not among kept: what is to be dropped when kept replaces old.
func Without(old, kept []fencestore.Claim) []fencestore.Claim {
	return slices.DeleteFunc(slices.Clone(old), func(o fencestore.Claim) bool {
		return slices.ContainsFunc(kept, func(k fencestore.Claim) bool { return keyOf(k) == keyOf(o) })
	})
}
