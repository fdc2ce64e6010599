// Package fencestore is the contract between the gate and the place that decides: a store that keeps, for
// each resource, the highest token it has accepted (the floor) and the live connections registered under it
// (the bindings). The one promise is that of a takeover: once Raise or Bind with token t has returned
// without an error, no write carried by a connection bound with a token below t takes effect any more.
//
// The package imports only the standard library; implementations are in its subfolders, and package
// fencestoretest holds them all to this contract.
package fencestore

import (
	"context"
	"fmt"
	"time"
)

// Token is a fencing token as the coordinator issues it: 1 to 2^53 − 1. 0 is never issued.
type Token uint64

// Mode is what a claim's lease is for. It decides nothing about floors, which go by token alone.
type Mode uint8

// The modes. The zero value is exclusive.
const (
	Exclusive Mode = iota // one holder, who may write
	Shared                // several holders of one token, for reading: a store that can tell refuses their writes
)

func (m Mode) String() string {
	switch m {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	}
	return fmt.Sprintf("mode(%d)", m)
}

// Claim is what a verified ticket says: this resource, under this token.
type Claim struct {
	Cluster   string
	Resource  string
	Token     Token
	Mode      Mode
	LeaseHash string // names the holder without its secret
}

// Session is a live connection to the store as the store itself names it. Both halves are needed:
// process numbers are used again.
type Session struct {
	PID     int64
	Started int64 // microseconds since 1970 by the store's clock
}

// Binding is a registered session.
type Binding struct {
	Claim
	Session Session
	Since   time.Time // by the store's clock
}

// Floor is the highest token that the store has accepted for a resource.
type Floor struct {
	Resource string
	Token    Token // 0: none
	Since    time.Time
}

// Accepted is the answer to a Raise or Bind that was let in.
type Accepted struct {
	Takeover bool          // the floor went up
	Ended    int           // sessions that were ended and confirmed gone
	Took     time.Duration // by the caller's clock
}

// Store is what the gate calls. All methods block until the store has answered or ctx is done, are safe for
// concurrent use, and fail with a *Refusal when the store decided against the caller, with another error
// when it is not known what the store decided: then nothing may be let in, and calling again is safe.
type Store interface {
	// Raise makes sure that the floor of the claim is at least its token, ending lower bindings first.
	// It needs no session, so that a stale holder that fills every slot cannot lock its successor out.
	Raise(ctx context.Context, claim Claim) (Accepted, error)
	// Bind raises as Raise does and registers the session, in one decision. A session may be bound to
	// several resources; binding it again to the same resource under the same or a higher token is allowed,
	// and never ends the session itself. The binding has the mode of the claim that came last.
	Bind(ctx context.Context, claim Claim, session Session) (Accepted, error)
	// Unbind forgets the session's binding to the resource. With idle set the caller vouches that nothing of
	// the session is in flight; without it the binding stays until the session is confirmed gone.
	// It reports whether the binding is gone. Unbinding what is not bound is not an error.
	Unbind(ctx context.Context, claim Claim, session Session, idle bool) (bool, error)
	// Floor reads the floor of one resource; a resource never seen has token 0.
	Floor(ctx context.Context, cluster, resource string) (Floor, error)
	// Bindings lists the live bindings of one cluster, at most limit.
	Bindings(ctx context.Context, cluster string, limit int) ([]Binding, error)
	// Check reports whether the store is ready to decide: reachable, installed, of a known version, with its
	// rights, pinned to this cluster or to none yet.
	Check(ctx context.Context, cluster string) error
	// Close ends the store's own connections and waits for them. It is idempotent.
	Close()
}

// Reason says why a store refused. Each adapter maps it to its protocol in one table.
type Reason uint8

// The reasons.
const (
	// StaleToken: the floor is above the token. Nothing changed.
	StaleToken Reason = iota + 1
	// TakeoverTimeout: not every lower session was confirmed gone in time. The floor is unchanged, old
	// sessions are possibly ended; the caller may try again.
	TakeoverTimeout
	// NotAllowed: this session or claim can never be bound here (a superuser's session, recovery, a wrong pid).
	NotAllowed
	// NotReady: the store is down, not installed, of an unknown version, without its rights, or pinned to
	// another cluster. Nothing changed.
	NotReady
	// BadToken: outside 1 to 2^53 − 1.
	BadToken
)

func (r Reason) String() string {
	switch r {
	case StaleToken:
		return "stale token"
	case TakeoverTimeout:
		return "takeover timed out"
	case NotAllowed:
		return "not allowed in a fenced session"
	case NotReady:
		return "store not ready"
	case BadToken:
		return "token out of range"
	}
	return fmt.Sprintf("reason(%d)", r)
}

// Refusal is the typed error of every decision against the caller.
type Refusal struct {
	Reason Reason
	Claim  Claim
	Floor  Floor  // for StaleToken: what is above
	Detail string // complete sentence without secrets
	Hint   string // what to do; may be empty
	Err    error  // underlying cause; may be nil
}

func (e *Refusal) Error() string {
	s := e.Reason.String() + ": resource " + e.Claim.Resource
	if e.Reason == StaleToken {
		s += fmt.Sprintf(", token %d, floor %d", e.Claim.Token, e.Floor.Token)
	}
	if e.Detail != "" {
		s += ": " + e.Detail
	}
	return s
}

func (e *Refusal) Unwrap() error { return e.Err }
