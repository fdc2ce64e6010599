package gate

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lychgate/lychgate/fencestore"
)

// entry is one row of the table of live bindings.
type entry struct {
	claim fencestore.Claim
	since time.Time
}

// BindingView is a live binding of this gate as the admin side shows it.
type BindingView struct {
	ID        uint64 // of the connection in this process; what Cut takes
	Listener  string
	Adapter   string
	Remote    string // network address of the client
	Cluster   string
	Resource  string
	Token     uint64
	Mode      string // "exclusive" or "shared"
	LeaseHash string
	Session   string // as the store names it
	Since     time.Time
}

// Bindings lists the live bindings, sorted by resource and token.
func (g *Gate) Bindings() []BindingView {
	g.mu.Lock()
	views := make([]BindingView, 0, g.bindings)
	for k, sessions := range g.bound {
		for s := range sessions {
			e := s.held[k]
			views = append(views, BindingView{
				ID: s.number, Listener: g.config.Listener, Adapter: g.config.Adapter, Remote: s.client,
				Cluster: e.claim.Cluster, Resource: e.claim.Resource, Token: uint64(e.claim.Token),
				Mode: e.claim.Mode.String(), LeaseHash: e.claim.LeaseHash,
				Session: strconv.FormatInt(s.id.PID, 10), Since: e.since,
			})
		}
	}
	g.mu.Unlock()
	slices.SortFunc(views, func(a, b BindingView) int {
		return cmp.Or(cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.Token, b.Token), a.Since.Compare(b.Since))
	})
	return views
}

// EndLease ends every session that is bound under a lease, named by its hash, and reports how many bindings that
// were. Other holders of the same shared token go on.
func (g *Gate) EndLease(hash string) int {
	if hash == "" {
		return 0
	}
	var endings []ending
	g.mu.Lock()
	for k, sessions := range g.bound {
		for s := range sessions {
			if c := s.held[k].claim; c.LeaseHash == hash {
				endings = append(endings, ending{s, leaseEnded(c)})
			}
		}
	}
	g.mu.Unlock()
	return end(endings)
}

// Cut ends the bound connection of that number, by an operator's wish, and reports whether there is one. The floor stays:
// the client may come back with the same ticket.
func (g *Gate) Cut(number uint64) bool {
	var endings []ending
	g.mu.Lock()
	for k, sessions := range g.bound {
		for s := range sessions {
			if s.number == number && len(endings) == 0 {
				endings = append(endings, ending{s, &Refusal{
					Reason: LeaseEnded, Claim: s.held[k].claim, Detail: "An operator has cut this connection.",
					Hint: "Ask the operator before you come back.",
				}})
			}
		}
	}
	g.mu.Unlock()
	return end(endings) > 0
}

func leaseEnded(c fencestore.Claim) *Refusal {
	return &Refusal{
		Reason: LeaseEnded, Claim: c,
		Detail: fmt.Sprintf("The lease of resource %s under token %d has ended.", c.Resource, c.Token),
		Hint:   "Stop this work; take the lock again before any new write.",
	}
}

// endOlder tells the sessions that a takeover has ended why. Those of other proxies learn it through Explain.
func (g *Gate) endOlder(by fencestore.Claim) {
	floor := fencestore.Floor{Resource: by.Resource, Token: by.Token, Since: time.Now()}
	var endings []ending
	g.mu.Lock()
	for s := range g.bound[keyOf(by)] {
		if c := s.held[keyOf(by)].claim; c.Token < by.Token {
			endings = append(endings, ending{s, stale(&Refusal{Claim: c, Floor: floor})})
		}
	}
	g.mu.Unlock()
	end(endings)
}

// ending is carried out outside of the lock: what it signals may come back to the table.
type ending struct {
	session *Session
	refusal *Refusal
}

func end(endings []ending) int {
	for _, e := range endings {
		e.session.end(e.refusal)
	}
	return len(endings)
}

// Claims lists what the session is bound to, sorted by resource.
func (s *Session) Claims() []fencestore.Claim {
	s.gate.mu.Lock()
	defer s.gate.mu.Unlock()
	claims := make([]fencestore.Claim, 0, len(s.held))
	for _, e := range s.held {
		claims = append(claims, e.claim)
	}
	return Newest(claims)
}

// enter puts a claim into the table, in place of what the session had for the same resource, which it returns.
func (g *Gate) enter(s *Session, claim fencestore.Claim) (before entry, had bool, _ *Refusal) {
	g.mu.Lock()
	defer g.mu.Unlock()
	k := keyOf(claim)
	before, had = s.held[k]
	if !had && g.bindings >= g.config.MaxBindings {
		return entry{}, false, &Refusal{
			Reason: NotReady, Claim: claim,
			Detail: fmt.Sprintf("This proxy holds %d bindings, its maximum.", g.bindings), Hint: "Retry, or use another proxy.",
		}
	}
	if g.bound[k] == nil {
		g.bound[k] = map[*Session]struct{}{}
	}
	g.bound[k][s], s.held[k] = struct{}{}, entry{claim, time.Now()}
	if !had {
		g.count(+1)
	}
	return before, had, nil
}

// restore takes back what enter did.
func (g *Gate) restore(s *Session, claim fencestore.Claim, before entry, had bool) {
	if !had {
		g.leave(s, claim)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	s.held[keyOf(claim)] = before
}

func (g *Gate) leave(s *Session, claim fencestore.Claim) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remove(keyOf(claim), s)
}

func (g *Gate) leaveAll(s *Session) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for k := range s.held {
		g.remove(k, s)
	}
}

// remove and count want g.mu held.
func (g *Gate) remove(k key, s *Session) {
	if _, ok := s.held[k]; !ok {
		return
	}
	delete(s.held, k)
	delete(g.bound[k], s)
	if len(g.bound[k]) == 0 {
		delete(g.bound, k)
	}
	g.count(-1)
}

func (g *Gate) count(delta int) {
	g.bindings += delta
	g.config.Observer.Bound(g.config.Adapter, delta)
}
