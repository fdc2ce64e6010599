package postgres

import (
	"strings"

	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
	"github.com/lychgate/lychgate/proxy/gate"
)

// replication is what a client asks for by the parameter of that name.
type replication uint8

const (
	noReplication replication = iota
	logical                   // of one database, in which SQL runs too: a session like any other
	physical                  // of the whole server: no database, no SQL
)

// replication takes everything that the server might take for a wish to replicate for one.
func (s *session) replication() replication {
	switch value := s.startup.Value(paramReplication); strings.ToLower(value) {
	case "", "false", "off", "no", "n", "f", "0":
		return noReplication
	case "database":
		return logical
	}
	return physical
}

const paramReplication = "replication"

// checkReplication refuses replication where the listener does not serve it, or where it would have to be bound and cannot
// be: a session is bound only after it has said itself which process it is, and a physical one has no words for that.
func (s *session) checkReplication(access gate.Access) error {
	kind := s.replication()
	refuse := func(detail, hint string) error {
		return s.server.config.Gate.Refused(&gate.Refusal{Reason: gate.NotAllowed, Detail: detail, Hint: hint})
	}
	switch {
	case s.asksTwice(paramReplication):
		return &wire.FrameError{Reason: "the parameter replication is there more than once"}
	case kind == noReplication:
		return nil
	case !s.server.config.Replication:
		return refuse("This listener serves no replication connections.", "Connect to the server itself, or configure replication: serve.")
	case kind == physical && access != gate.Open:
		return refuse("A physical replication connection cannot be asked for its process, and so cannot be bound.",
			"Connect to the server itself, without a ticket to a listener with policy allow, or use logical replication.")
	}
	return nil
}

func (s *session) asksTwice(name string) bool {
	count := 0
	for _, p := range s.startup.Params {
		if p.Name == name {
			count++
		}
	}
	return count > 1
}
