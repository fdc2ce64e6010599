package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// explain adds to an error of the client what a person can do about it, and the exit code for a script.
func explain(err error, t *target) error {
	e, ok := errors.AsType[*client.Error](err)
	if !ok {
		return err
	}
	e.Message = inFlags(e)
	hint, code := hintFor(e, t), exitCodeFor(e)
	if command, ok := commandOf[e.Op]; ok {
		e.Op = command
	}
	if hint != "" {
		err = &hintedError{err, hint}
	}
	if code == exitFailure {
		return err
	}
	return &exitError{Code: code, Err: err}
}

// commandOf names the commands that make calls of another name.
var commandOf = map[string]string{
	"putpolicy": "policy set", "deletepolicy": "policy delete", "policies": "policy list",
	"join": "cluster join", "remove": "cluster remove", "transfer": "cluster transfer", "rotate": "keys rotate", "keys": "keys list",
}

// hintedError is an error with what to do about it.
type hintedError struct {
	err  error
	hint string
}

func (e *hintedError) Error() string { return e.err.Error() + "; " + e.hint }
func (e *hintedError) Unwrap() error { return e.err }

// milliseconds is how the coordinator writes a bound.
var milliseconds = regexp.MustCompile(`\b\d+ ms\b`)

// inFlags says a refusal in the words of the command line.
func inFlags(e *client.Error) string {
	switch {
	case errors.Is(e, client.ErrHeld) && e.Holder.GetFencingToken() != 0:
		return fmt.Sprintf("held by %s with token %d for another %s at most",
			e.Holder.GetClientId(), e.Holder.GetFencingToken(), millis(e.Holder.GetRemaining()))
	case errors.Is(e, client.ErrLockDelayed) && e.RetryAfter > 0:
		return "the last lease on it expired, and it stays closed for another " + inSeconds(e.RetryAfter)
	case errors.Is(e, client.ErrHoldTooLong), errors.Is(e, client.ErrRequestMismatch),
		slices.Contains([]string{"ttl", "wait_timeout", "client_id", "request_id"}, e.Field):
		return durations(flagWords.Replace(e.Message))
	}
	return e.Message
}

// flagWords are the fields of the API that are flags.
var flagWords = strings.NewReplacer("wait_timeout", "--wait", "ttl", "--ttl", "client_id", "--client-id", "request_id", "--request-id")

// inSeconds is a time to come as people say it, rounded up: whoever comes then does not come too early.
func inSeconds(d time.Duration) string {
	const step = 100 * time.Millisecond
	return ((d + step - 1) / step * step).String()
}

// durations writes the bounds in a sentence of the coordinator as people write them.
func durations(sentence string) string {
	return milliseconds.ReplaceAllStringFunc(sentence, func(ms string) string {
		d, err := time.ParseDuration(strings.ReplaceAll(ms, " ", ""))
		if err != nil {
			return ms
		}
		return d.String()
	})
}

func hintFor(e *client.Error, t *target) string {
	switch {
	case errors.Is(e, client.ErrWaitTimeout):
		return "see who has it: lychgate lock get " + e.Resource
	case errors.Is(e, client.ErrHeld):
		if t.waitGiven {
			return ""
		}
		return "wait for it with --wait"
	case e.Field == "ttl", e.Field == "wait_timeout":
		return "" // the message says the bound, and the coordinator's hint its own units
	case errors.Is(e, client.ErrLockDelayed), errors.Is(e, client.ErrRateLimited), errors.Is(e, client.ErrOverloaded):
		return laterHint(e, t)
	case e.Hint != "":
		return flagWords.Replace(e.Hint)
	case errors.Is(e, client.ErrUntrusted):
		return "see --tls-ca, --tls-cert and --tls-key, and whether the coordinator speaks TLS there"
	case errors.Is(e, client.ErrUnauthenticated):
		return "say who calls with --token-file or --tls-cert"
	case errors.Is(e, client.ErrNotCoordinator):
		return "set --address or LYCHGATE_ADDR to the gRPC port"
	case errors.Is(e, client.ErrUnreachable):
		return fmt.Sprintf("is a coordinator running at %s? set --address or LYCHGATE_ADDR, and --tls-ca if it speaks TLS",
			strings.Join(t.addrs, " or "))
	case errors.Is(e, client.ErrNoLeader):
		return "nothing is lost; the cluster has no quorum, or elects a leader: try again"
	case errors.Is(e, client.ErrLeaseEnded):
		return "it was released or broken, or it ran out: acquire again"
	case e.Applied == lockpb.Applied_MAYBE:
		return "look with: lychgate lock get " + e.Resource
	}
	return ""
}

// laterHint says when to come again.
func laterHint(e *client.Error, t *target) string {
	hint := "try again later"
	if e.RetryAfter > 0 {
		hint = "try again in " + inSeconds(e.RetryAfter)
	}
	if errors.Is(e, client.ErrLockDelayed) && !t.waitGiven {
		hint += ", or wait for it with --wait"
	}
	return hint
}

// interrupted is the error of a command that a signal has ended before its time. ctx ended with the signal.
func interrupted(ctx context.Context, err error) error {
	code := exitSignalled + int(syscall.SIGINT)
	if cause := context.Cause(ctx); strings.HasPrefix(cause.Error(), syscall.SIGTERM.String()) { // as os/signal says it
		code = exitSignalled + int(syscall.SIGTERM)
	}
	text := "interrupted"
	if e, ok := errors.AsType[*client.Error](err); ok && e.Op == "acquire" && e.Code == codes.Canceled {
		text = "interrupted; the place in the queue was given up"
	}
	return &exitError{Code: code, Err: errors.New(text)}
}

// exitCodeFor tells a lock that somebody else has from a mistake in the call.
func exitCodeFor(e *client.Error) int {
	switch {
	case errors.Is(e, client.ErrNotCoordinator), errors.Is(e, client.ErrInvalid), errors.Is(e, client.ErrTTLOutOfRange), errors.Is(e, client.ErrWaitTooLong):
		return exitUsage
	case errors.Is(e, client.ErrLeaseEnded), errors.Is(e, client.ErrNotOwner):
		return exitLeaseEnded
	case e.Op != "acquire":
		return exitFailure
	case e.Temporary(), errors.Is(e, client.ErrHeld), errors.Is(e, client.ErrAlreadyHeld),
		errors.Is(e, client.ErrWaitTimeout), errors.Is(e, client.ErrTooManyWaiters),
		errors.Is(e, client.ErrTooManyRequests), errors.Is(e, client.ErrTooManyLeases), errors.Is(e, client.ErrLockDelayed),
		errors.Is(e, client.ErrDeadlock), errors.Is(e, context.DeadlineExceeded):
		return exitNotObtained
	}
	return exitFailure
}
