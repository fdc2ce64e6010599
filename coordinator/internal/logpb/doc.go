// Package logpb puts log entries and snapshots of the state machine into bytes and back. Both are versioned and
// checksummed. What was cut, changed, or written by a release that knows more, gives an error and never half a value:
// a replica that skipped what it does not understand would silently differ from the others.
package logpb

import "errors"

// What can be wrong with bytes from a disk or a peer. Every error of this package wraps one of them.
var (
	// ErrCorrupt says that the bytes are not what was written: cut, changed, or never an entry or snapshot.
	ErrCorrupt = errors.New("corrupt")
	// ErrUnknown says that a newer release wrote them: an unknown version, command or field.
	ErrUnknown = errors.New("written by a newer release")
)
