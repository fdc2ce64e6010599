package primary

import (
	"errors"
	"fmt"
	"strings"
)

// Attrs is which host may be the server, in libpq's words. Those that ask for a standby are missing: nothing can be bound
// there.
type Attrs string

// The attributes.
const (
	ReadWrite Attrs = "read-write" // not in recovery, and its transactions may write
	Primary   Attrs = "primary"    // not in recovery
	Any       Attrs = "any"        // whichever answers; on a standby nothing can be bound
)

// AllAttrs are all of them.
func AllAttrs() []string { return []string{string(ReadWrite), string(Primary), string(Any)} }

// Answer is what a host says of itself.
type Answer struct {
	Recovery bool   // it is a standby
	ReadOnly bool   // its transactions are read-only unless they say otherwise
	System   uint64 // identifier of the database cluster, which a server and its standbys share
	Timeline uint32 // grows with each promotion; of a standby: at least this
}

// look is what all hosts said at one time.
type look struct {
	answers []Answer
	errs    []error // of each host; nil: it answered
}

// memory is what is kept from one look to the next.
type memory struct {
	current  int    // index of the host; -1: none yet
	system   uint64 // of the current host; 0: none yet
	timeline uint32 // the largest that was seen of the system
}

// choose decides which host is the server. The current one stays until another shows a larger timeline, which is what a
// promotion does, or until it is not eligible and another is. A server of a timeline below the largest that was seen is never
// chosen: a failover has left it behind, whatever it says of itself. Nor is one of another system: it is another database.
//
// The second result is why each host is not eligible; nil for those that are. The current host of the memory may be
// one that is not: there is nowhere else to go.
func choose(attrs Attrs, m memory, l look) (memory, []error) {
	m = m.learn(l)
	reasons := make([]error, len(l.errs))
	best := -1
	for i := range l.errs {
		reasons[i] = m.ineligible(attrs, l.answers[i], l.errs[i])
		if reasons[i] != nil {
			continue
		}
		switch {
		case best < 0, l.answers[i].Timeline > l.answers[best].Timeline,
			i == m.current && l.answers[i].Timeline == l.answers[best].Timeline:
			best = i
		}
	}
	if best >= 0 {
		m.current = best
		if m.system == 0 {
			m.system = l.answers[best].System
			return choose(attrs, m, l) // the timelines of this system count now
		}
	}
	return m, reasons
}

// learn notes the largest timeline.
func (m memory) learn(l look) memory {
	for i, a := range l.answers {
		if l.errs[i] == nil && m.system != 0 && a.System == m.system {
			m.timeline = max(m.timeline, a.Timeline)
		}
	}
	return m
}

func (m memory) ineligible(attrs Attrs, a Answer, err error) error {
	switch {
	case err != nil:
		return err
	case m.system != 0 && a.System != m.system:
		return fmt.Errorf("belongs to another database cluster: its system identifier is %d, not %d", a.System, m.system)
	case attrs != Any && a.Recovery:
		return errors.New("is a standby")
	case attrs == ReadWrite && a.ReadOnly:
		return errors.New("is read-only")
	case !a.Recovery && a.Timeline < m.timeline:
		return fmt.Errorf("was left behind by a failover: its timeline is %d, and %d exists", a.Timeline, m.timeline)
	}
	return nil
}

// NoServerError names each host with the reason why it is not the server.
type NoServerError struct {
	Hosts   []string
	Reasons []error // nil: eligible
}

func (e *NoServerError) Error() string {
	parts := make([]string, len(e.Hosts))
	for i, host := range e.Hosts {
		reason := "can be used"
		if e.Reasons[i] != nil {
			reason = e.Reasons[i].Error()
		}
		parts[i] = host + ": " + reason
	}
	return strings.Join(parts, "; ")
}
