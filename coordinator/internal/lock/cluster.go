package lock

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lychgate/lychgate/chaos/seeded"
)

// Validate reports the first field that is missing or does not fit the others. Init with such a Config is refused.
func (c Config) Validate() error {
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"DefaultTTL", c.DefaultTTL},
		{"MinTTL", c.MinTTL},
		{"MaxTTL", c.MaxTTL},
		{"MaxWait", c.MaxWait},
		{"RetryWindow", c.RetryWindow},
		{"Grace", c.Grace},
		{"ClaimWindow", c.ClaimWindow},
		{"HeadStart", c.HeadStart},
	} {
		if d.value <= 0 || d.value > maxDuration {
			return fmt.Errorf("%s is %v; it must be above 0 and at most %v", d.name, d.value, maxDuration)
		}
	}
	switch {
	case c.MinTTL > c.DefaultTTL || c.DefaultTTL > c.MaxTTL:
		return errors.New("DefaultTTL is not between MinTTL and MaxTTL")
	case c.MaxWaiters <= 0:
		return errors.New("MaxWaiters is not above 0")
	case c.MaxRequests <= 0:
		return errors.New("MaxRequests is not above 0")
	case c.MaxExpiries <= 0:
		return errors.New("MaxExpiries is not above 0")
	case c.MaxTenantRequests < 0:
		return errors.New("MaxTenantRequests is below 0")
	}
	return nil
}

// maxDuration keeps sums of lease time and durations far from overflow.
const maxDuration = 10 * 365 * 24 * time.Hour

// init starts the cluster; all but the first do nothing, since every new leader may propose it.
func (m *Machine) init(c Init) Result {
	if m.initialised {
		return Done{}
	}
	if c.Config.Validate() != nil {
		return Refused{Reason: ReasonConfigInvalid}
	}
	m.initialised = true
	m.cluster, m.version, m.config = c.Cluster, c.Version, c.Config
	m.rules = rulesOf(m.config)
	return Done{}
}

// newLeader un-attaches every waiter, because its call hung on the old leader, and gives the heads their start.
func (m *Machine) newLeader(c NewLeader) Result {
	for _, w := range m.waitersInOrder() {
		m.unattach(w)
	}
	if seeded.Is(seeded.DeadlinesAtElection) {
		m.renewAll()
	}
	if m.initialised {
		m.headStart = m.now.Add(m.config.HeadStart)
	}
	m.emit(LeaderStarted(c))
	return Done{}
}

// waitersInOrder lists all waiters by sequence number.
func (m *Machine) waitersInOrder() []slot {
	all := m.waiters.slots()
	slices.SortFunc(all, func(a, b slot) int {
		return cmp.Compare(m.waiters.get(a).seq, m.waiters.get(b).seq)
	})
	return all
}
