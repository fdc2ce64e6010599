package postgres

import (
	"errors"
	"fmt"

	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
	"github.com/lychgate/lychgate/proxy/gate"
)

// The SQLSTATEs of our own, in the implementation-defined class LG. Never class 40 or 08: drivers retry those, and
// a retry on a new connection is what a fence must not cause.
const (
	CodeStaleToken      = "LG001"
	CodeTicketRequired  = "LG002"
	CodeTicketInvalid   = "LG003"
	CodeLeaseEnded      = "LG004"
	CodeTakeoverTimeout = "LG005"
	CodeNotAllowed      = "LG006"
	CodeNotReady        = "LG007"
	CodeOutcomeUnknown  = "LG008"
)

// SQLSTATEs of PostgreSQL that the proxy uses in the server's place.
const (
	codeAdminShutdown      = "57P01"
	codeCannotConnect      = "57P03"
	codeInvalidCatalog     = "3D000"
	codeNotAuthorized      = "28000"
	codeProtocolViolation  = "08P01"
	codeTooManyConnections = "53300"
	codeUnsupported        = "0A000"
	codeWrongPassword      = "28P01"
)

// sqlstate is the table from the gate's reasons to SQLSTATEs.
func sqlstate(r gate.Reason) string {
	switch r {
	case gate.StaleToken:
		return CodeStaleToken
	case gate.TicketRequired:
		return CodeTicketRequired
	case gate.TicketInvalid:
		return CodeTicketInvalid
	case gate.LeaseEnded:
		return CodeLeaseEnded
	case gate.TakeoverTimeout:
		return CodeTakeoverTimeout
	case gate.NotAllowed:
		return CodeNotAllowed
	case gate.NotReady:
		return CodeNotReady
	case gate.OutcomeUnknown:
		return CodeOutcomeUnknown
	}
	panic(fmt.Sprintf("postgres: reason %d has no SQLSTATE", r))
}

// Severities of what the proxy says itself. A fatal one ends the session.
const (
	severityError = "ERROR"
	severityFatal = "FATAL"
)

// noticeOf is a refusal as the client sees it.
func noticeOf(r *gate.Refusal, severity string) wire.Notice {
	code := sqlstate(r.Reason)
	// The code stands in the message too: libpq shows no SQLSTATE of what is refused at connect.
	message := r.Reason.Message() + " (" + code + ")"
	n := wire.Notice{Severity: severity, Code: code, Message: message, Detail: r.Detail, Hint: r.Hint}
	if r.Claim.Resource != "" && r.Detail == "" {
		n.Detail = fmt.Sprintf("Resource %s, token %d.", r.Claim.Resource, r.Claim.Token)
	}
	return n
}

// failure is what ends a session for a reason that is not the fence's.
type failure struct {
	notice wire.Notice
	err    error // for the log; may be nil
}

func (f *failure) Error() string {
	if f.err != nil {
		return f.notice.Message + ": " + f.err.Error()
	}
	return f.notice.Message
}

func (f *failure) Unwrap() error { return f.err }

func fail(code, format string, args ...any) *failure {
	return &failure{notice: wire.Notice{Severity: severityFatal, Code: code, Message: fmt.Sprintf(format, args...)}}
}

func shuttingDown() *failure {
	return fail(codeAdminShutdown, "terminating connection because the proxy is shutting down")
}

// farewell is the FATAL that tells a client why its session ends; nil when there is nobody to tell, or nothing
// that the client does not see itself.
func farewell(err error) []byte {
	var (
		refusal *gate.Refusal
		failed  *failure
		frame   *wire.FrameError
	)
	switch {
	case errors.As(err, &refusal):
		return noticeOf(refusal, severityFatal).ErrorResponse()
	case errors.As(err, &failed):
		return failed.notice.ErrorResponse()
	case errors.As(err, &frame):
		return fail(codeProtocolViolation, "%s", frame.Error()).notice.ErrorResponse()
	}
	return nil
}
