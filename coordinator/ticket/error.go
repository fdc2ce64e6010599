package ticket

import "fmt"

// Reason says why a ticket was refused.
type Reason uint8

// The reasons.
const (
	Malformed    Reason = iota + 1 // not a ticket, or one whose claims no coordinator would sign
	TooLong                        // over MaxSize; it was not looked at
	BadSignature                   // changed after it was signed, or signed by somebody else
	UnknownKey                     // signed with a key that this cluster does not publish
	OtherCluster                   // of another cluster, whose tokens mean nothing here
	Unavailable                    // the keys could not be had; the ticket may be good, retry
)

func (r Reason) String() string {
	switch r {
	case Malformed:
		return "malformed"
	case TooLong:
		return "too long"
	case BadSignature:
		return "bad signature"
	case UnknownKey:
		return "unknown key"
	case OtherCluster:
		return "other cluster"
	case Unavailable:
		return "keys unavailable"
	}
	return fmt.Sprintf("reason(%d)", uint8(r))
}

// Error is the one error type of Verify. It never contains the ticket.
type Error struct {
	Reason Reason
	Err    error // what exactly; may be nil
}

func (e *Error) Error() string {
	if e.Err == nil {
		return "ticket refused: " + e.Reason.String()
	}
	return "ticket refused: " + e.Reason.String() + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

func refuse(reason Reason, format string, args ...any) *Error {
	return &Error{Reason: reason, Err: fmt.Errorf(format, args...)}
}
