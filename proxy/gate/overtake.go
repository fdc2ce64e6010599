package gate

import (
	"context"
	"fmt"

	"github.com/lychgate/lychgate/fencestore"
)

// Leases is what is known of the coordinator's leases beside what the store has seen. It may lag behind or know
// nothing, and answers from memory. What it says of a token is only ever used to raise a floor to it: that the
// coordinator has issued the token for the resource has to be certain.
type Leases interface {
	// Newest is the newest token that is known to be issued for the resource; 0: none is known.
	Newest(cluster, resource string) fencestore.Token
	// Ended reports whether the lease of that hash is known to have ended.
	Ended(hash string) bool
}

// unknown is the Leases of a gate that nobody tells of any.
type unknown struct{}

func (unknown) Newest(string, string) fencestore.Token { return 0 }
func (unknown) Ended(string) bool                      { return false }

// Who caused a floor to rise, for the log.
const (
	byContact = "contact" // a holder's first contact
	byWatch   = "watch"   // the coordinator's word, before that
)

// Older reports whether a session of this gate is bound to the resource, or just being bound, under a token below.
func (g *Gate) Older(cluster, resource string, token fencestore.Token) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := key{cluster, resource}
	for s := range g.bound[k] {
		if s.held[k].claim.Token < token {
			return true
		}
	}
	return false
}

// Recorded asks the store whether the floor of the claim's resource is one that its token would raise: there is one,
// and it is lower. It blocks as Overtake does.
func (g *Gate) Recorded(ctx context.Context, claim fencestore.Claim) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, g.config.RaiseTimeout)
	defer cancel()
	floor, err := g.config.Store.Floor(ctx, claim.Cluster, claim.Resource)
	return err == nil && floor.Token > 0 && floor.Token < claim.Token, err
}

// Overtake raises the floor to a token that the coordinator has issued, before its holder has come, and ends older
// sessions as a holder's own contact does. No client is refused by it, so errors are the store's and are not counted.
// It blocks, at most for RaiseTimeout.
func (g *Gate) Overtake(ctx context.Context, claim fencestore.Claim) (fencestore.Accepted, error) {
	accepted, err := g.raise(ctx, claim)
	if err == nil {
		g.accepted(claim, accepted, byWatch)
	}
	return accepted, err
}

// EndLeaseOf is EndLease where the resource of the lease is known, which costs less.
func (g *Gate) EndLeaseOf(cluster, resource, hash string) int {
	if hash == "" {
		return 0
	}
	k := key{cluster, resource}
	var endings []ending
	g.mu.Lock()
	for s := range g.bound[k] {
		if c := s.held[k].claim; c.LeaseHash == hash {
			endings = append(endings, ending{s, leaseEnded(c)})
		}
	}
	g.mu.Unlock()
	return end(endings)
}

// foresee looks at a claim in the light of what the coordinator has told. A lease that has ended is refused where
// that ends its bindings too. Where a newer token is known the floor goes up to it first, so that a holder of the past
// who comes back is refused by the store. That is a favour, which may fail: the store decides either way.
func (g *Gate) foresee(ctx context.Context, claim fencestore.Claim) *Refusal {
	if newest := g.config.Leases.Newest(claim.Cluster, claim.Resource); newest > claim.Token {
		newer := fencestore.Claim{Cluster: claim.Cluster, Resource: claim.Resource, Token: newest}
		if _, err := g.Overtake(ctx, newer); err != nil {
			g.log.Debug("floor not raised to a newer token that is known", "listener", g.config.Listener,
				"resource", claim.Resource, "token", uint64(newest), "error", fmt.Sprint(err))
		}
		return nil
	}
	if g.config.CutEnded && claim.LeaseHash != "" && g.config.Leases.Ended(claim.LeaseHash) {
		return leaseEnded(claim)
	}
	return nil
}
