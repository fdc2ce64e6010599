package lock

import (
	"cmp"
	"slices"

	"github.com/lychgate/lychgate/chaos/seeded"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// Recover begins another life of the cluster, after a state was restored that may lack what its last life did: every
// lease and wait ends, and the incarnation rises, so that every later token is above all that were ever issued.
// Requests are remembered as ended. It is refused unless Cluster is the state's and Incarnation is above its own.
type Recover struct {
	Cluster     string
	Incarnation uint32
}

func (Recover) command() {}

// Recovered says that a life of the cluster began. What ended for it comes before.
type Recovered struct{ Incarnation uint32 }

func (Recovered) event() {}

// recover ends all that lives, waits first so that nothing is granted on the way, and begins the incarnation. It is as
// long as the state is large.
func (m *Machine) recover(c Recover) Result {
	switch {
	case c.Cluster != m.cluster:
		return Refused{Reason: ReasonOtherCluster}
	case c.Incarnation <= m.incarnation:
		return Refused{Reason: ReasonIncarnationTooLow, Count: int(m.incarnation)}
	case c.Incarnation > lease.MaxIncarnation:
		return Refused{Reason: ReasonIncarnationTooHigh, Count: int(lease.MaxIncarnation)}
	}
	for _, w := range m.waitersInOrder() {
		m.endWait(w, WaitRecovered)
	}
	leases := slices.DeleteFunc(m.requests.slots(), func(q slot) bool { return m.requests.peek(q).stage != StageHeld })
	slices.SortFunc(leases, func(a, b slot) int { return cmp.Compare(m.leaseSeq(a), m.leaseSeq(b)) })
	for _, l := range leases {
		m.end(l, EndRecovered)
	}
	for _, d := range m.delays.slots() {
		m.reopen(m.delays.peek(d).resource)
	}
	if !seeded.Is(seeded.TokenAfterRecovery) {
		m.incarnation = c.Incarnation
	}
	m.counter, m.headStart = 0, 0
	m.emit(Recovered{Incarnation: c.Incarnation})
	return Done{}
}
