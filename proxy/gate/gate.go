// Package gate decides, for all adapters, whether a client's connection may carry statements to a store. It checks
// the ticket, knows the listener's policy for connections without one, binds sessions through the fence store,
// keeps the table of live bindings, ends them, and counts every refusal.
//
// An adapter uses it in this order:
//
//	plan, err := g.Admit(ctx, shown)        // verify, decide, raise floors: before the store's own connection is opened
//	s := g.Session(id, client, end)         // the adapter has connected and knows the session's real name
//	err = s.Join(ctx, plan.Claims)          // bind: only now may statements pass
//	defer s.Close(ctx)                      // when the connection is gone
//
// Floors are raised before connecting because a stale holder may fill every connection slot of the store.
// The decision itself is pure and stands in the decide files.
package gate

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lychgate/lychgate/chaos/seeded"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/ticket"
	"github.com/lychgate/lychgate/fencestore"
)

// Verifier checks a ticket's signature. *ticket.Remote is one. Its errors are *ticket.Error.
type Verifier interface {
	Verify(ctx context.Context, raw string) (ticket.Claims, error)
}

// Observer is told what happens. Its methods return at once and are safe for concurrent use.
type Observer interface {
	Refused(adapter string, reason Reason)                       // one client was told so
	Bound(adapter string, delta int)                             // live bindings changed by delta
	BindTook(adapter string, took time.Duration)                 // the store accepted a binding, takeovers included
	TookOver(adapter string, took time.Duration, endedOlder int) // a floor went up
}

// Config is a gate. Zero numbers and durations take the default named beside them.
type Config struct {
	Listener string   // names the listener in logs and the table
	Adapter  string   // "postgres": the label of metrics
	Policy   Policy   // at the start; SetPolicy replaces it
	Verifier Verifier // nil: no ticket verifies, for tests of unsigned listeners
	Store    fencestore.Store
	Cluster  func() string // the cluster of unsigned tokens; nil where they are not allowed

	Leases   Leases // what the coordinator has told; nil: nothing
	CutEnded bool   // refuse a claim whose lease is known to have ended, although nobody came after it

	AllowUnsigned bool          // accept a bare resource and token: development only
	RaiseTimeout  time.Duration // of one Raise or Bind; must be longer than the store's own takeover timeout: 15 s
	ExplainFor    time.Duration // how long a floor may take to become visible after it ended a session: 2 s
	GoneFor       time.Duration // how long Close waits for a session to be gone before it leaves the row: 30 s
	MaxClaims     int           // tickets of one session: 8
	MaxBindings   int           // of all live sessions: 100,000

	Numbers  *atomic.Uint64 // gives connections their numbers, where several gates share them; nil: one of its own
	Observer Observer       // nil: nobody
	Logger   *slog.Logger   // nil: none
}

// Gate is one listener's gate. It is safe for concurrent use.
type Gate struct {
	config Config
	log    *slog.Logger
	policy atomic.Uint32 // a Policy

	mu       sync.Mutex
	bound    map[key]map[*Session]struct{} // the table of live bindings: who; what stands in Session.held
	bindings int
}

// New checks the configuration and does no I/O.
func New(config Config) (*Gate, error) {
	switch {
	case config.Policy < Require || config.Policy > Allow:
		return nil, errors.New("gate: policy is missing")
	case config.Store == nil:
		return nil, errors.New("gate: store is missing")
	case config.Adapter == "":
		return nil, errors.New("gate: adapter is missing")
	case config.AllowUnsigned && config.Cluster == nil:
		return nil, errors.New("gate: unsigned tokens are allowed but their cluster is missing")
	case config.Verifier == nil && !config.AllowUnsigned:
		return nil, errors.New("gate: verifier is missing")
	}
	setDefault(&config.RaiseTimeout, 15*time.Second)
	setDefault(&config.ExplainFor, 2*time.Second)
	setDefault(&config.GoneFor, 30*time.Second)
	setDefault(&config.MaxClaims, 8)
	setDefault(&config.MaxBindings, 100_000)
	if config.Logger == nil {
		config.Logger = slog.New(slog.DiscardHandler)
	}
	if config.Numbers == nil {
		config.Numbers = new(atomic.Uint64)
	}
	if config.Observer == nil {
		config.Observer = nobody{}
	}
	if config.Leases == nil {
		config.Leases = unknown{}
	}
	g := &Gate{config: config, log: config.Logger, bound: map[key]map[*Session]struct{}{}}
	g.SetPolicy(config.Policy)
	return g, nil
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

type nobody struct{}

func (nobody) Refused(string, Reason)              {}
func (nobody) Bound(string, int)                   {}
func (nobody) BindTook(string, time.Duration)      {}
func (nobody) TookOver(string, time.Duration, int) {}

// Policy is the listener's policy.
func (g *Gate) Policy() Policy { return Policy(g.policy.Load()) }

// SetPolicy replaces it for plans from now on: a session goes by the policy of its Plan.
func (g *Gate) SetPolicy(p Policy) { g.policy.Store(uint32(p)) }

// Shown is what a client has shown: raw tickets, and bare tokens where the listener allows them.
type Shown struct {
	Tickets  []string
	Unsigned []Unsigned
}

// Plan verifies what a client has shown and decides what it may do. It asks no store. It may block while keys are
// fetched. Every error is a *Refusal and has been counted.
func (g *Gate) Plan(ctx context.Context, what Shown) (Plan, error) {
	s := shown{unsigned: what.Unsigned}
	if len(what.Tickets) > g.config.MaxClaims {
		return Plan{}, g.Refused(&Refusal{
			Reason: TicketInvalid,
			Detail: fmt.Sprintf("%d tickets were shown; at most %d are accepted.", len(what.Tickets), g.config.MaxClaims),
		})
	}
	for _, raw := range what.Tickets {
		claim, refusal := g.verify(ctx, raw)
		if refusal != nil {
			return Plan{}, g.Refused(refusal)
		}
		s.verified = append(s.verified, claim)
	}
	if g.config.Cluster != nil {
		s.cluster = g.config.Cluster()
	}
	policy := g.Policy()
	plan, refusal := decide(rules{policy, g.config.AllowUnsigned, g.config.MaxClaims}, s)
	if refusal != nil {
		return Plan{}, g.Refused(refusal)
	}
	plan.Without = policy.Without()
	return plan, nil
}

func (g *Gate) verify(ctx context.Context, raw string) (fencestore.Claim, *Refusal) {
	if g.config.Verifier == nil {
		return fencestore.Claim{}, &Refusal{Reason: TicketInvalid, Detail: "This listener knows no keys."}
	}
	c, err := g.config.Verifier.Verify(ctx, raw)
	if err != nil {
		return fencestore.Claim{}, invalidTicket(err)
	}
	return fencestore.Claim{
		Cluster: c.Cluster, Resource: string(c.Resource), Token: fencestore.Token(c.Token), Mode: modeOf(c.Mode),
		LeaseHash: c.Lease.String(),
	}, nil
}

// modeOf takes everything that is not exclusive for the mode with fewer rights.
func modeOf(m lease.Mode) fencestore.Mode {
	if m == lease.Exclusive {
		return fencestore.Exclusive
	}
	return fencestore.Shared
}

// invalidTicket words each way in which a ticket fails. The error never carries the ticket. Where no key could be had
// the ticket may be good: that is not a reason to take the lock again.
func invalidTicket(err error) *Refusal {
	r := &Refusal{Reason: TicketInvalid, Err: err}
	var e *ticket.Error
	if !errors.As(err, &e) {
		r.Detail = "The ticket could not be verified."
		return r
	}
	switch e.Reason {
	case ticket.Malformed:
		r.Detail = "It is malformed."
		r.Hint = "A ticket is the whole text that the lock was granted with, not the token's number."
	case ticket.TooLong:
		r.Detail = fmt.Sprintf("It is longer than %d bytes.", ticket.MaxSize)
	case ticket.BadSignature:
		r.Detail = "Its signature does not fit: it was changed, or signed by somebody else."
	case ticket.UnknownKey:
		r.Detail = "It is signed with a key that this cluster does not publish."
	case ticket.OtherCluster:
		r.Detail = "It is of another cluster."
	case ticket.Unavailable:
		r.Reason = NotReady
		r.Detail = "The ticket could not be verified because no coordinator gave out its keys."
		r.Hint = "Retry with the same ticket when a coordinator can be reached."
	}
	return r
}

// Admit is Plan, then makes sure that every floor is at least the claim's, ending older sessions. It needs no
// connection of the client's. It blocks while a takeover runs. Every error is a *Refusal and has been counted.
func (g *Gate) Admit(ctx context.Context, what Shown) (Plan, error) {
	plan, err := g.Plan(ctx, what)
	if err != nil {
		return Plan{}, err
	}
	return plan, g.Raise(ctx, plan.Claims)
}

// Raise makes sure that the floors are at least the claims', as Admit does.
func (g *Gate) Raise(ctx context.Context, claims []fencestore.Claim) error {
	for _, claim := range claims {
		if refusal := g.foresee(ctx, claim); refusal != nil {
			return g.Refused(refusal)
		}
		accepted, err := g.raise(ctx, claim)
		if err != nil {
			return g.Refused(refusedByStore(claim, err))
		}
		g.accepted(claim, accepted, byContact)
	}
	return nil
}

func (g *Gate) raise(ctx context.Context, claim fencestore.Claim) (fencestore.Accepted, error) {
	ctx, cancel := context.WithTimeout(ctx, g.config.RaiseTimeout)
	defer cancel()
	return g.config.Store.Raise(ctx, claim)
}

// accepted notes a takeover and tells this proxy's own sessions of older tokens why they were ended.
func (g *Gate) accepted(claim fencestore.Claim, a fencestore.Accepted, by string) {
	if !a.Takeover {
		return
	}
	g.config.Observer.TookOver(g.config.Adapter, a.Took, a.Ended)
	g.log.Info("floor raised", "listener", g.config.Listener, "cluster", claim.Cluster, "resource", claim.Resource,
		"token", uint64(claim.Token), "by", by, "ended", a.Ended, "took", a.Took)
	if !seeded.Is(seeded.OlderNotTold) {
		g.endOlder(claim)
	}
}

// Refused counts a refusal, the adapter's own included, and returns it.
func (g *Gate) Refused(r *Refusal) *Refusal {
	g.config.Observer.Refused(g.config.Adapter, r.Reason)
	attrs := []any{"listener", g.config.Listener, "reason", r.Reason.String(), "resource", r.Claim.Resource, "token", uint64(r.Claim.Token)}
	if r.Reason == StaleToken {
		attrs = append(attrs, "floor", uint64(r.Floor.Token))
	}
	if r.Err != nil {
		attrs = append(attrs, "cause", r.Err.Error())
	}
	g.log.Debug("refused", attrs...)
	return r
}
