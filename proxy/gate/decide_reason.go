package gate

import (
	"errors"
	"fmt"

	"github.com/lychgate/lychgate/fencestore"
)

// Reason says why a connection or a statement was refused. Each adapter maps it to its protocol in one table.
type Reason uint8

// The reasons.
const (
	StaleToken      Reason = iota + 1 // a larger token was accepted for the resource
	TicketRequired                    // the listener wants a ticket and there is none
	TicketInvalid                     // signature, unknown key, other cluster, malformed, out of range
	LeaseEnded                        // the lease is no longer valid
	TakeoverTimeout                   // older sessions were not gone in time; the floor is unchanged
	NotAllowed                        // not in a fenced session
	NotReady                          // the store cannot decide now
	OutcomeUnknown                    // fenced while a commit was in flight
)

// Reasons lists all reasons, for the tables that have to cover them.
func Reasons() []Reason {
	return []Reason{StaleToken, TicketRequired, TicketInvalid, LeaseEnded, TakeoverTimeout, NotAllowed, NotReady, OutcomeUnknown}
}

// String is the reason as a metric label shows it.
func (r Reason) String() string {
	switch r {
	case StaleToken:
		return "stale_token"
	case TicketRequired:
		return "ticket_required"
	case TicketInvalid:
		return "ticket_invalid"
	case LeaseEnded:
		return "lease_ended"
	case TakeoverTimeout:
		return "takeover_timeout"
	case NotAllowed:
		return "not_allowed"
	case NotReady:
		return "store_not_ready"
	case OutcomeUnknown:
		return "outcome_unknown"
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Message is the reason in one sentence without a full stop, for the client.
func (r Reason) Message() string {
	switch r {
	case StaleToken:
		return "fenced: the token is stale"
	case TicketRequired:
		return "a ticket is required"
	case TicketInvalid:
		return "the ticket is invalid"
	case LeaseEnded:
		return "fenced: the lease is no longer valid"
	case TakeoverTimeout:
		return "takeover timed out"
	case NotAllowed:
		return "not allowed in a fenced session"
	case NotReady:
		return "the fence is not ready"
	case OutcomeUnknown:
		return "fenced while a commit may have been in flight: its outcome is unknown"
	}
	return r.String()
}

// Refusal is the typed error of every decision against a client. It carries no secret.
type Refusal struct {
	Reason Reason
	Claim  fencestore.Claim // what was refused; zero where no single claim was
	Floor  fencestore.Floor // for StaleToken: what is above
	Detail string           // complete sentences; may be empty
	Hint   string           // what to do; may be empty
	Err    error            // the cause, for the log; may be nil
}

func (r *Refusal) Error() string {
	s := r.Reason.Message()
	if r.Claim.Resource != "" {
		s += ": resource " + r.Claim.Resource
	}
	if r.Detail != "" {
		s += ": " + r.Detail
	}
	if r.Err != nil {
		s += ": " + r.Err.Error()
	}
	return s
}

func (r *Refusal) Unwrap() error { return r.Err }

// refusedByStore turns a store's error about a claim into a refusal. An error that is not the store's decision
// leaves open what it decided, so nothing may be let in.
func refusedByStore(claim fencestore.Claim, err error) *Refusal {
	var decided *fencestore.Refusal
	if !errors.As(err, &decided) {
		return &Refusal{Reason: NotReady, Claim: claim, Detail: "The store gave no clear answer.", Hint: "Retry.", Err: err}
	}
	r := &Refusal{Reason: reasonOf(decided.Reason), Claim: claim, Floor: decided.Floor, Detail: decided.Detail, Hint: decided.Hint, Err: decided.Err}
	if r.Reason == StaleToken {
		return stale(r)
	}
	return r
}

func reasonOf(r fencestore.Reason) Reason {
	switch r {
	case fencestore.StaleToken:
		return StaleToken
	case fencestore.TakeoverTimeout:
		return TakeoverTimeout
	case fencestore.NotAllowed:
		return NotAllowed
	case fencestore.NotReady:
		return NotReady
	case fencestore.BadToken:
		return TicketInvalid
	}
	return NotReady
}

// stale fills in what a client that was overtaken has to know.
func stale(r *Refusal) *Refusal {
	r.Reason = StaleToken
	r.Detail = fmt.Sprintf("Resource %s: token %d is below the floor %d.", r.Claim.Resource, r.Claim.Token, r.Floor.Token)
	if !r.Floor.Since.IsZero() {
		r.Detail = fmt.Sprintf("Resource %s: token %d is below the floor %d, which was raised at %s.",
			r.Claim.Resource, r.Claim.Token, r.Floor.Token, r.Floor.Since.UTC().Format("2006-01-02 15:04:05.000 MST"))
	}
	r.Hint = "Another holder has taken over. Stop this work; take the lock again before any new write."
	return r
}

// explainEnd says why a session that held claims was ended, judged by the floors as they stand; nil if the floors
// do not explain it.
func explainEnd(claims []fencestore.Claim, floors []fencestore.Floor) *Refusal {
	for i, c := range claims {
		if floors[i].Token > c.Token {
			return stale(&Refusal{Claim: c, Floor: floors[i]})
		}
	}
	return nil
}
