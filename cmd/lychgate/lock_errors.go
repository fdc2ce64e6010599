package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// explain adds to an error of the client what a person can do about it, and the exit code for a script.
func explain(err error, addrs []string) error {
	e, ok := errors.AsType[*client.Error](err)
	if !ok {
		return err
	}
	if hint := hintFor(e, addrs); hint != "" {
		err = fmt.Errorf("%w; %s", err, hint)
	}
	switch code := exitCodeFor(e); code {
	case exitFailure:
		return err
	default:
		return &exitError{Code: code, Err: err}
	}
}

func hintFor(e *client.Error, addrs []string) string {
	switch {
	case errors.Is(e, client.ErrWaitTimeout):
		return "see who has it: lychgate lock get " + e.Resource
	case e.Holder != nil && errors.Is(e, client.ErrHeld):
		return fmt.Sprintf("held by %s with token %d for another %v at most; wait with --wait",
			e.Holder.GetClientId(), e.Holder.GetFencingToken(),
			time.Duration(e.Holder.GetRemaining())*time.Millisecond)
	case e.Hint != "":
		return e.Hint
	case errors.Is(e, client.ErrUnreachable):
		return fmt.Sprintf("is a coordinator running at %s? set --address or LYCHGATE_ADDR",
			strings.Join(addrs, " or "))
	case errors.Is(e, client.ErrNoLeader):
		return "nothing is lost; the cluster has no quorum, or elects a leader: try again"
	case errors.Is(e, client.ErrLeaseEnded):
		return "it was released or broken, or it ran out: acquire again"
	case e.Applied == lockpb.Applied_MAYBE:
		return "look with: lychgate lock get " + e.Resource
	}
	return ""
}

// exitCodeFor tells a lock that somebody else has from a mistake in the call.
func exitCodeFor(e *client.Error) int {
	switch {
	case errors.Is(e, client.ErrInvalid), errors.Is(e, client.ErrTTLOutOfRange), errors.Is(e, client.ErrWaitTooLong):
		return exitUsage
	case errors.Is(e, client.ErrLeaseEnded), errors.Is(e, client.ErrNotOwner):
		return exitLeaseEnded
	case e.Op != "acquire":
		return exitFailure
	case e.Temporary(), errors.Is(e, client.ErrHeld), errors.Is(e, client.ErrAlreadyHeld),
		errors.Is(e, client.ErrWaitTimeout), errors.Is(e, client.ErrTooManyWaiters),
		errors.Is(e, client.ErrTooManyRequests), errors.Is(e, context.DeadlineExceeded):
		return exitNotObtained
	}
	return exitFailure
}
