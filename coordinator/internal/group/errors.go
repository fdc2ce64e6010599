package group

import (
	"errors"
	"fmt"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lychgate/lychgate/chaos/seeded"
)

// Kind says what became of a command that got no result. All kinds but Unknown mean: not applied.
type Kind uint8

// The kinds.
const (
	NotLeader     Kind = iota + 1 // another node leads, or nobody does; retry there
	Overloaded                    // the queue is full; retry after RetryAfter
	Stopping                      // this node is going down
	Abandoned                     // the caller's context ended while the command was still queued
	Malformed                     // the command cannot be written to the log
	VersionTooLow                 // not every member's program knows the command yet
	Unknown                       // it may have been applied, now or later; retry with the same request id
)

func (k Kind) String() string {
	switch k {
	case NotLeader:
		return "not the leader"
	case Overloaded:
		return "overloaded"
	case Stopping:
		return "stopping"
	case Abandoned:
		return "abandoned"
	case Malformed:
		return "malformed"
	case VersionTooLow:
		return "cluster version too low"
	case Unknown:
		return "outcome unknown"
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// Error is what Propose and Read return, and what ends a Wait, when there is no result.
type Error struct {
	Kind       Kind
	Leader     string        // id of the node that leads as far as this one knows; empty if none
	RetryAfter time.Duration // for Overloaded
	Err        error         // the cause, may be nil
}

func (e *Error) Error() string {
	if e.Err == nil {
		return "group: " + e.Kind.String()
	}
	return "group: " + e.Kind.String() + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// MaybeApplied reports whether the command may have taken effect, or may still. False is certain.
func (e *Error) MaybeApplied() bool { return e.Kind == Unknown }

// Causes that a caller may want to tell apart.
var (
	errNotServing = errors.New("this node does not lead the group")
	errDeposed    = errors.New("leadership ended")
	errStopped    = errors.New("the node is stopping")
	errQueueFull  = errors.New("the queue of commands is full")
	errNoResponse = errors.New("the replica gave no result for the entry")
	errEncoding   = errors.New("it cannot be encoded")
	errTooMany    = errors.New("too many calls wait on this node")
)

// classify maps an error of an entry to what it says about it, above all one of the Raft library. The library's documentation
// calls some of these a failure; what counts here is whether the entry can still be committed by somebody.
func classify(err error) Kind {
	switch {
	case errors.Is(err, raft.ErrNotLeader),
		errors.Is(err, raft.ErrLeadershipLost) && seeded.Is(seeded.LostLeadershipFails),
		errors.Is(err, raft.ErrLeadershipTransferInProgress),
		errors.Is(err, raft.ErrAbortedByRestore):
		return NotLeader // refused before it reached the log, or its effects were taken out again
	case errors.Is(err, raft.ErrEnqueueTimeout):
		return Overloaded // never reached the leader's loop
	case errors.Is(err, errEncoding):
		return Malformed // never reached the library
	}
	// ErrLeadershipLost: in the log, and the next leader may commit it. ErrRaftShutdown: the same. An error
	// of the log store: it may be on disk in spite of it.
	return Unknown
}
