package lock_test

import (
	"fmt"

	"github.com/lychgate/lychgate/chaos/invariant"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// observer applies entries to a machine and has a checker judge what comes out.
type observer struct {
	*lock.Machine
	checker *invariant.Checker
	index   uint64
}

func newObserver(config lock.Config) *observer {
	return &observer{
		Machine: lock.New(),
		checker: invariant.New(invariant.Options{Window: config.MaxWait + config.RetryWindow}),
	}
}

// step applies one entry. The error is the checker's, or the machine's own inconsistency.
func (o *observer) step(e lock.Entry) ([]lock.Result, []lock.Event, error) {
	live := make(map[lease.ID]bool)
	for _, c := range e.Commands {
		if renew, ok := c.(lock.Renew); ok {
			_, live[renew.Lease] = o.Lease(renew.Lease)
		}
	}
	o.index++
	results, events := o.Apply(o.index, e)
	if len(results) != len(e.Commands) {
		return nil, nil, fmt.Errorf("%d results for %d commands", len(results), len(e.Commands))
	}
	for _, step := range o.translate(e.Commands, results, events, live) {
		if err := o.checker.Observe(step); err != nil {
			return results, events, err
		}
	}
	return results, events, o.Check()
}

// translate puts an entry's outcome into the checker's words: the renewals that ran first, what happened, and what was
// renewed, forestalled or told to retries, as far as that still stands at the end of the entry.
func (o *observer) translate(
	commands []lock.Command, results []lock.Result, events []lock.Event, live map[lease.ID]bool,
) []invariant.Event {
	var steps, later []invariant.Event
	causes := newCauses()
	for i, c := range commands {
		switch r := results[i].(type) {
		case lock.Renewed:
			renewed := invariant.Renewed{
				At: o.now(), Lease: r.Lease.Hash(), By: c.(lock.Renew).Identity, TTL: r.Deadline.Sub(o.Info().Now),
			}
			if now, _ := o.Lease(r.Lease); live[r.Lease] {
				steps = append(steps, renewed)
			} else if now.Token == r.Token {
				later = append(later, renewed)
			}
		case lock.Cancelled:
			cancel := c.(lock.Cancel)
			causes.by[r.Holder.Token] = cancel.Identity
			later = append(later, o.forestall(cancel, r)...)
		case lock.Released:
			causes.by[r.Token] = c.(lock.Release).Identity
		case lock.Granted, lock.Waiting:
			causes.acquire(c.(lock.Acquire))
			later = append(later, o.report(c.(lock.Acquire), r)...)
		case lock.Refused:
			if a, ok := c.(lock.Acquire); ok {
				later = append(later, o.report(a, r)...)
			}
		case lock.Broken, lock.Done:
		}
	}
	for _, e := range events {
		steps = append(steps, o.event(e, causes)...)
	}
	return append(steps, later...)
}

func (o *observer) now() invariant.Instant { return invariant.Instant(o.Info().Now) }

// causes remembers which commands of an entry were behind its events.
type causes struct {
	by   map[lease.Token]lease.Identity
	asOf map[invariant.Request]invariant.Instant // of the first copy that was not refused
}

func newCauses() causes {
	return causes{make(map[lease.Token]lease.Identity), make(map[invariant.Request]invariant.Instant)}
}

func (c causes) acquire(a lock.Acquire) {
	key := requestOf(a.Identity, a.Client, a.Request)
	if _, ok := c.asOf[key]; !ok {
		c.asOf[key] = invariant.Instant(a.AsOf)
	}
}

func requestOf(by lease.Identity, client lease.ClientID, id lease.RequestID) invariant.Request {
	return invariant.Request{Identity: by, Client: client, ID: id}
}

// forestall reports a cancel of a request that was never seen. A repeated one tells nothing new: it found the record
// of the first.
func (o *observer) forestall(c lock.Cancel, r lock.Cancelled) []invariant.Event {
	if r.Was != lock.RequestUnknown {
		return nil
	}
	key := requestOf(c.Identity, c.Client, c.Request)
	return []invariant.Event{invariant.Forestalled{At: o.now(), Request: key, AsOf: invariant.Instant(c.AsOf)}}
}

func (o *observer) report(c lock.Acquire, r lock.Result) []invariant.Event {
	key := requestOf(c.Identity, c.Client, c.Request)
	state, _ := o.Request(c.Identity, c.Client, c.Request)
	switch r := r.(type) {
	case lock.Granted:
		if now, _ := o.Lease(r.Lease); now.Token == r.Token {
			return []invariant.Event{invariant.Reported{Request: key, State: invariant.Held, Lease: r.Lease.Hash(), Token: r.Token}}
		}
	case lock.Waiting:
		if state == lock.RequestWaiting {
			return []invariant.Event{invariant.Reported{Request: key, State: invariant.Waiting}}
		}
	case lock.Refused:
		if r.Reason == lock.ReasonRequestEnded || r.Reason == lock.ReasonRequestCancelled {
			return []invariant.Event{invariant.Reported{Request: key, State: invariant.Over}}
		}
	case lock.Renewed, lock.Released, lock.Cancelled, lock.Broken, lock.Done:
	}
	return nil
}

func (o *observer) event(e lock.Event, c causes) []invariant.Event {
	switch e := e.(type) {
	case lock.LeaseGranted:
		key := requestOf(e.Identity, e.Client, e.Request)
		return []invariant.Event{invariant.Granted{
			At: o.now(), Resource: e.Resource, Lease: e.Lease.Hash(), Token: e.Token, Mode: e.Mode,
			Request: key, TTL: e.Deadline.Sub(o.Info().Now), AsOf: c.asOf[key],
		}}
	case lock.LeaseEnded:
		return []invariant.Event{invariant.Ended{At: o.now(), Lease: e.Hash, Cause: causeOf(e.Cause), By: c.by[e.Token]}}
	case lock.WaitStarted:
		key := requestOf(e.Identity, e.Client, e.Request)
		return []invariant.Event{invariant.Queued{
			At: o.now(), Resource: e.Resource, Request: key, Mode: e.Mode, Attached: e.Attached,
			Deadline: invariant.Instant(e.Deadline), AsOf: c.asOf[key],
		}}
	case lock.WaitAttached:
		return []invariant.Event{invariant.Attached{Request: requestOf(e.Identity, e.Client, e.Request)}}
	case lock.WaitDetached:
		return []invariant.Event{invariant.Detached{Request: requestOf(e.Identity, e.Client, e.Request)}}
	case lock.WaitEnded:
		return []invariant.Event{invariant.Unqueued{At: o.now(), Request: requestOf(e.Identity, e.Client, e.Request)}}
	case lock.LeaderStarted:
		return []invariant.Event{invariant.Elected{HeadStart: o.now().Add(o.Info().Config.HeadStart)}}
	case lock.ResourceBroken:
		return []invariant.Event{invariant.TokenIssued{Resource: e.Resource, Token: e.Token}}
	case lock.KeyAdded:
	}
	return nil
}

func causeOf(c lock.EndCause) invariant.Cause {
	switch c {
	case lock.EndReleased:
		return invariant.Released
	case lock.EndCancelled:
		return invariant.Cancelled
	case lock.EndExpired, lock.EndUnclaimed:
		return invariant.Expired
	case lock.EndBroken:
		return invariant.Broken
	}
	panic(fmt.Sprintf("unknown cause %d", c))
}
