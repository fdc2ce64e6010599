package lock

import "fmt"

// MaxVersion is the newest cluster version whose commands this program knows. A cluster's version is what all of its
// nodes know; SetVersion raises it once the last of them was upgraded.
const MaxVersion = 2

// SetVersion raises the cluster version. A lower one than the cluster has changes nothing.
type SetVersion struct{ Version uint32 }

func (SetVersion) command() {}

// VersionRaised says that the commands of a version may be used from here on.
type VersionRaised struct{ Version uint32 }

func (VersionRaised) event() {}

// Needs returns the cluster version that a command needs. Whoever proposes one looks at Info.Version first.
func Needs(c Command) uint32 {
	switch c := c.(type) {
	case Init:
		if c.Config.MaxTenantRequests != 0 {
			return 2
		}
		return 1
	case NewLeader, PutKey, Acquire, Renew, Release, Cancel, Detach, Break, Tick, SetVersion:
		return 1
	case RenewMany, KillWait, PutPolicy, DeletePolicy, RetireKey, PutMember, DropMember, Recover:
		return 2
	}
	panic("lock: a command of an unknown kind")
}

// Accepts says whether the machine can apply an entry. If not, its replica must stop, loudly, and apply nothing behind it:
// a later release wrote the entry, or a leader proposed what the cluster version does not have yet.
func (m *Machine) Accepts(e Entry) error {
	version, initialised := m.version, m.initialised
	for i, c := range e.Commands {
		switch c := c.(type) {
		case Init:
			if !initialised {
				version, initialised = c.Version, true
			}
		case SetVersion:
			version = max(version, c.Version)
		default:
		}
		switch needs := Needs(c); {
		case version > MaxVersion:
			return fmt.Errorf("command %d raises the cluster version to %d, this program knows %d", i+1, version, MaxVersion)
		case initialised && needs > version:
			return fmt.Errorf("command %d (%T) needs cluster version %d, the cluster has %d", i+1, c, needs, version)
		}
	}
	return nil
}

func (m *Machine) setVersion(c SetVersion) Result {
	if c.Version > m.version {
		m.version = c.Version
		m.emit(VersionRaised(c))
	}
	return Done{}
}
