package group

import (
	"github.com/lychgate/lychgate/chaos/invariant"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// judge has a log, as replicas applied it, judged by the invariants.
type judge struct {
	checker *invariant.Checker
	config  lock.Config
	steps   int
	err     error // the first violation; nothing is judged behind it
}

func newJudge(config lock.Config) *judge {
	return &judge{
		checker: invariant.New(invariant.Options{Window: config.MaxWait + config.RetryWindow}),
		config:  config,
	}
}

// observe judges one entry: the renewals, which run first, what happened, and what retries were told.
func (j *judge) observe(a Applied) {
	t := &translation{entry: a, config: j.config, by: make(map[lease.IDHash]lease.Identity), asOf: make(map[invariant.Request]invariant.Instant)}
	for i, command := range a.Commands {
		t.command(command, a.Results[i])
	}
	steps := t.first
	for _, event := range a.Events {
		steps = append(steps, t.event(event)...)
	}
	for _, step := range append(steps, t.last...) {
		if j.err != nil {
			return
		}
		j.err = j.checker.Observe(step)
		j.steps++
	}
}

// translation puts one entry into the words of the invariants.
type translation struct {
	entry       Applied
	config      lock.Config
	by          map[lease.IDHash]lease.Identity         // who released or cancelled
	asOf        map[invariant.Request]invariant.Instant // of the first copy in the entry
	first, last []invariant.Event
}

func (t *translation) now() invariant.Instant { return invariant.Instant(t.entry.Now) }

func (t *translation) command(command lock.Command, result lock.Result) {
	switch r := result.(type) {
	case lock.Renewed:
		t.first = append(t.first, invariant.Renewed{
			At: t.now(), Lease: r.Lease.Hash(), By: command.(lock.Renew).Identity, TTL: r.Deadline.Sub(t.entry.Now),
		})
	case lock.Released:
		t.by[r.Hash] = command.(lock.Release).Identity
	case lock.Cancelled:
		c := command.(lock.Cancel)
		t.by[r.Holder.Hash] = c.Identity
		if r.Was == lock.RequestUnknown {
			key := invariant.Request{Identity: c.Identity, Client: c.Client, ID: c.Request}
			t.first = append(t.first, invariant.Forestalled{At: t.now(), Request: key, AsOf: invariant.Instant(c.AsOf)})
		}
	case lock.Granted:
		t.report(command.(lock.Acquire), invariant.Reported{State: invariant.Held, Lease: r.Lease.Hash(), Token: r.Token})
	case lock.Waiting:
		t.report(command.(lock.Acquire), invariant.Reported{State: invariant.Waiting})
	case lock.Refused:
		if a, ok := command.(lock.Acquire); ok && (r.Reason == lock.ReasonRequestEnded || r.Reason == lock.ReasonRequestCancelled) {
			t.report(a, invariant.Reported{State: invariant.Over})
		}
	case lock.Broken, lock.Done:
	}
}

func (t *translation) report(a lock.Acquire, r invariant.Reported) {
	r.Request = invariant.Request{Identity: a.Identity, Client: a.Client, ID: a.Request}
	if _, ok := t.asOf[r.Request]; !ok {
		t.asOf[r.Request] = invariant.Instant(a.AsOf)
	}
	if !t.changedLater(r) {
		t.last = append(t.last, r)
	}
}

// changedLater reports whether the entry itself ends what a retry was told.
func (t *translation) changedLater(r invariant.Reported) bool {
	for _, event := range t.entry.Events {
		switch e := event.(type) {
		case lock.LeaseEnded:
			if r.State == invariant.Held && e.Hash == r.Lease {
				return true
			}
		case lock.LeaseGranted:
			if r.State == invariant.Waiting && t.request(e.Identity, e.Client, e.Request) == r.Request {
				return true
			}
		case lock.WaitEnded:
			if r.State == invariant.Waiting && t.request(e.Identity, e.Client, e.Request) == r.Request {
				return true
			}
		case lock.WaitStarted, lock.WaitAttached, lock.WaitDetached, lock.ResourceBroken, lock.KeyAdded, lock.LeaderStarted:
		}
	}
	return false
}

func (*translation) request(by lease.Identity, client lease.ClientID, id lease.RequestID) invariant.Request {
	return invariant.Request{Identity: by, Client: client, ID: id}
}

func (t *translation) event(event lock.Event) []invariant.Event {
	switch e := event.(type) {
	case lock.LeaseGranted:
		key := t.request(e.Identity, e.Client, e.Request)
		return []invariant.Event{invariant.Granted{
			At: t.now(), Resource: e.Resource, Lease: e.Lease.Hash(), Token: e.Token, Mode: e.Mode,
			Request: key, TTL: e.Deadline.Sub(t.entry.Now), AsOf: t.asOf[key],
		}}
	case lock.LeaseEnded:
		return []invariant.Event{invariant.Ended{At: t.now(), Lease: e.Hash, Cause: causeOf(e.Cause), By: t.by[e.Hash]}}
	case lock.WaitStarted:
		key := t.request(e.Identity, e.Client, e.Request)
		return []invariant.Event{invariant.Queued{
			At: t.now(), Resource: e.Resource, Request: key, Mode: e.Mode, Attached: e.Attached,
			Deadline: invariant.Instant(e.Deadline), AsOf: t.asOf[key],
		}}
	case lock.WaitAttached:
		return []invariant.Event{invariant.Attached{Request: t.request(e.Identity, e.Client, e.Request)}}
	case lock.WaitDetached:
		return []invariant.Event{invariant.Detached{Request: t.request(e.Identity, e.Client, e.Request)}}
	case lock.WaitEnded:
		return []invariant.Event{invariant.Unqueued{At: t.now(), Request: t.request(e.Identity, e.Client, e.Request)}}
	case lock.LeaderStarted:
		return []invariant.Event{invariant.Elected{HeadStart: t.now().Add(t.config.HeadStart)}}
	case lock.ResourceBroken:
		return []invariant.Event{invariant.TokenIssued{Resource: e.Resource, Token: e.Token}}
	case lock.KeyAdded:
	}
	return nil
}

func causeOf(cause lock.EndCause) invariant.Cause {
	switch cause {
	case lock.EndReleased:
		return invariant.Released
	case lock.EndCancelled:
		return invariant.Cancelled
	case lock.EndBroken:
		return invariant.Broken
	case lock.EndExpired, lock.EndUnclaimed:
	}
	return invariant.Expired
}
