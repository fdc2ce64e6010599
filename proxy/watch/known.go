package watch

import (
	"sync"

	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/proxy/gate"
)

// DefaultKnown is how many resources, and how many leases, a Known remembers at least.
const DefaultKnown = 50_000

// Known remembers what was told lately: the newest token of a resource, and which leases have ended. It is bounded and
// forgets the oldest, which is safe: the store decides. It implements gate.Leases.
type Known struct {
	cluster func() string

	mu     sync.Mutex
	tokens generations[fencestore.Token]
	ended  generations[struct{}]
}

var _ gate.Leases = (*Known)(nil)

// NewKnown remembers at least so many of each, and at most twice as many, of one cluster.
func NewKnown(atLeast int, cluster func() string) *Known {
	return &Known{cluster: cluster, tokens: newGenerations[fencestore.Token](atLeast), ended: newGenerations[struct{}](atLeast)}
}

// Newest implements gate.Leases.
func (k *Known) Newest(cluster, resource string) fencestore.Token {
	if cluster != k.cluster() {
		return 0
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	token, _ := k.tokens.get(resource)
	return token
}

// Ended implements gate.Leases.
func (k *Known) Ended(hash string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	_, ended := k.ended.get(hash)
	return ended
}

func (k *Known) note(c Change) {
	k.issued(c.Resource, c.Token)
	if c.Kind != Granted && c.Lease != "" {
		k.end(c.Lease)
	}
}

// issued notes a token. One that is older than what is known, as after a change of coordinators, changes nothing.
func (k *Known) issued(resource string, token fencestore.Token) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if before, _ := k.tokens.get(resource); token > before {
		k.tokens.put(resource, token)
	}
}

func (k *Known) end(hash string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ended.put(hash, struct{}{})
}

// generations is a map that forgets what was put longest ago, half of it at a time.
type generations[V any] struct {
	half     int
	old, new map[string]V
}

func newGenerations[V any](half int) generations[V] {
	return generations[V]{half: max(1, half), new: map[string]V{}}
}

func (g *generations[V]) get(name string) (V, bool) {
	if v, ok := g.new[name]; ok {
		return v, true
	}
	v, ok := g.old[name]
	return v, ok
}

func (g *generations[V]) put(name string, v V) {
	if _, has := g.new[name]; !has && len(g.new) >= g.half {
		g.old, g.new = g.new, map[string]V{}
	}
	g.new[name] = v
}
