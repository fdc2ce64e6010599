// Package locktest puts what a lock machine did into the words of package invariant, which judges it. It looks at
// what came out only, never into the machine, so that the log of any replica can be judged.
package locktest

import (
	"fmt"

	"github.com/lychgate/lychgate/chaos/invariant"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// Options are what a machine with this configuration promises.
func Options(c lock.Config) invariant.Options {
	return invariant.Options{Window: c.MaxWait + c.RetryWindow}
}

// Applied is one log entry with what it led to.
type Applied struct {
	Now      lock.LeaseTime // of the machine, after the entry
	Config   lock.Config    // of the machine
	Commands []lock.Command
	Results  []lock.Result // one for each command
	Events   []lock.Event
}

// Steps gives the entry as steps of a history: the renewals, which run first, what happened, in its order, and what
// was renewed, forestalled or told to retries, as far as that still stands at the end of the entry. It panics if the
// results do not fit the commands.
func Steps(a Applied) []invariant.Event {
	if len(a.Results) != len(a.Commands) {
		panic(fmt.Sprintf("locktest: %d results for %d commands", len(a.Results), len(a.Commands)))
	}
	t := &translation{
		Applied: a, fate: newFate(a.Events),
		by: make(map[period]lease.Identity), asOf: make(map[invariant.Request]invariant.Instant),
	}
	for i, command := range a.Commands {
		t.command(command, a.Results[i])
	}
	steps := t.first
	for _, event := range a.Events {
		steps = append(steps, t.event(event)...)
	}
	return append(steps, t.last...)
}

// period names a lease beyond its id, which may be used again.
type period struct {
	lease lease.IDHash
	token lease.Token
}

func requestOf(by lease.Identity, client lease.ClientID, id lease.RequestID) invariant.Request {
	return invariant.Request{Identity: by, Client: client, ID: id}
}

// translation is one entry on its way.
type translation struct {
	Applied
	fate        fate
	by          map[period]lease.Identity               // who released or cancelled
	asOf        map[invariant.Request]invariant.Instant // of the first copy that was not refused
	first, last []invariant.Event
}

func (t *translation) now() invariant.Instant { return invariant.Instant(t.Now) }

func (t *translation) command(command lock.Command, result lock.Result) {
	switch r := result.(type) {
	case lock.Renewed:
		c := command.(lock.Renew)
		t.renewed(period{c.Lease.Hash(), r.Token}, c.Identity, r.Deadline)
	case lock.Released:
		if c := command.(lock.Release); c.Lease.Hash() == r.Hash {
			t.by[period{r.Hash, r.Token}] = c.Identity
		}
	case lock.Cancelled:
		t.cancelled(command.(lock.Cancel), r)
	case lock.Granted:
		key := t.acquire(command.(lock.Acquire))
		if !t.fate.ended[period{r.Lease.Hash(), r.Token}] {
			t.last = append(t.last, invariant.Reported{Request: key, State: invariant.Held, Lease: r.Lease.Hash(), Token: r.Token})
		}
	case lock.Waiting:
		key := t.acquire(command.(lock.Acquire))
		if !t.fate.left[key] {
			t.last = append(t.last, invariant.Reported{Request: key, State: invariant.Waiting})
		}
	case lock.Refused:
		a, ok := command.(lock.Acquire)
		if ok && (r.Reason == lock.ReasonRequestEnded || r.Reason == lock.ReasonRequestCancelled) {
			key := requestOf(a.Identity, a.Client, a.Request)
			t.last = append(t.last, invariant.Reported{Request: key, State: invariant.Over})
		}
	case lock.RenewedMany:
		t.renewedMany(command.(lock.RenewMany), r)
	case lock.Broken, lock.Done:
	}
}

// renewed puts the renewal of a lease that began in this entry behind its beginning.
func (t *translation) renewed(which period, by lease.Identity, deadline lock.LeaseTime) {
	step := invariant.Renewed{At: t.now(), Lease: which.lease, By: by, TTL: deadline.Sub(t.Now)}
	switch {
	case !t.fate.began[which]:
		t.first = append(t.first, step)
	case !t.fate.ended[which]:
		t.last = append(t.last, step)
	}
}

func (t *translation) renewedMany(c lock.RenewMany, many lock.RenewedMany) {
	for i, r := range many.Renewals {
		if r.Refused == nil {
			t.renewed(period{c.Leases[i].Hash(), r.Token}, c.Identity, r.Deadline)
		}
	}
}

// cancelled reports a cancel of a request that was never seen. A repeated one tells nothing new: it found the record
// of the first.
func (t *translation) cancelled(c lock.Cancel, r lock.Cancelled) {
	t.by[period{r.Holder.Hash, r.Holder.Token}] = c.Identity
	if r.Was == lock.RequestUnknown {
		key := requestOf(c.Identity, c.Client, c.Request)
		t.last = append(t.last, invariant.Forestalled{At: t.now(), Request: key, AsOf: invariant.Instant(c.AsOf)})
	}
}

func (t *translation) acquire(a lock.Acquire) invariant.Request {
	key := requestOf(a.Identity, a.Client, a.Request)
	if _, ok := t.asOf[key]; !ok {
		t.asOf[key] = invariant.Instant(a.AsOf)
	}
	return key
}

func (t *translation) event(event lock.Event) []invariant.Event {
	switch e := event.(type) {
	case lock.LeaseGranted:
		key := requestOf(e.Identity, e.Client, e.Request)
		return []invariant.Event{invariant.Granted{
			At: t.now(), Resource: e.Resource, Lease: e.Lease.Hash(), Token: e.Token, Mode: e.Mode,
			Request: key, TTL: e.Deadline.Sub(t.Now), AsOf: t.asOf[key],
		}}
	case lock.LeaseEnded:
		return []invariant.Event{invariant.Ended{At: t.now(), Lease: e.Hash, Cause: causeOf(e.Cause), By: t.by[period{e.Hash, e.Token}]}}
	case lock.WaitStarted:
		key := requestOf(e.Identity, e.Client, e.Request)
		return []invariant.Event{invariant.Queued{
			At: t.now(), Resource: e.Resource, Request: key, Mode: e.Mode, Attached: e.Attached,
			Deadline: invariant.Instant(e.Deadline), AsOf: t.asOf[key],
		}}
	case lock.WaitAttached:
		return []invariant.Event{invariant.Attached{Request: requestOf(e.Identity, e.Client, e.Request)}}
	case lock.WaitDetached:
		return []invariant.Event{invariant.Detached{Request: requestOf(e.Identity, e.Client, e.Request)}}
	case lock.WaitEnded:
		return []invariant.Event{invariant.Unqueued{At: t.now(), Request: requestOf(e.Identity, e.Client, e.Request)}}
	case lock.LeaderStarted:
		return []invariant.Event{invariant.Elected{HeadStart: t.now().Add(t.Config.HeadStart)}}
	case lock.ResourceBroken:
		return []invariant.Event{invariant.TokenIssued{Resource: e.Resource, Token: e.Token}}
	case lock.KeyAdded, lock.KeyRetired, lock.KeyDropped, lock.PolicyChanged, lock.VersionRaised, lock.MemberChanged, lock.Recovered:
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
	case lock.EndBroken, lock.EndRecovered:
		return invariant.Broken
	}
	panic(fmt.Sprintf("locktest: unknown cause %d", c))
}
