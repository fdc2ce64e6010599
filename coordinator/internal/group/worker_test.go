package group

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// worker is one client: it takes leases, keeps them by renewals, gives them back or dies with them, and
// checks what it is told against its own perfect clock.
type worker struct {
	cluster *cluster
	beliefs *beliefs
	name    lease.ClientID
	number  byte
	rand    *rand.Rand
	ttl     time.Duration
	lose    float64 // share of the answers that do not reach it
	grants  uint64
	stats   *workerStats
}

type workerStats struct{ calls, lostAnswers, held, renewals, deaths, outages, unanswered atomic.Int64 }

var callNumbers atomic.Uint64

// held is a lease as its holder knows it.
type heldLease struct {
	grant lock.Grant
	until time.Time // the client's own deadline
}

const attemptTimeout = 2 * time.Second

// propose sends one command until it has an answer, or until the deadline. sent is when the attempt that was
// answered went out.
func (w *worker) propose(cmd lock.Command, deadline time.Time) (outcome Outcome, sent time.Time, err error) {
	target := w.any()
	for {
		sent = time.Now()
		ctx, cancel := context.WithDeadline(context.Background(), earlier(deadline, sent.Add(attemptTimeout)))
		outcome, err = target.Propose(ctx, cmd)
		cancel()
		w.stats.calls.Add(1)
		if err == nil && w.rand.Float64() < w.lose {
			w.stats.lostAnswers.Add(1)
			err = &Error{Kind: Unknown, Err: errLost}
		}
		if err == nil || !time.Now().Before(deadline) {
			return outcome, sent, err
		}
		target = w.follow(err)
	}
}

// follow chooses where to try next.
func (w *worker) follow(err error) *Group {
	var e *Error
	if errors.As(err, &e) && e.Kind == NotLeader && e.Leader != "" {
		for _, m := range w.cluster.members {
			if m.id == e.Leader {
				time.Sleep(5 * time.Millisecond)
				return m.node()
			}
		}
	}
	time.Sleep(50 * time.Millisecond)
	return w.any()
}

func (w *worker) any() *Group {
	return w.cluster.members[w.rand.IntN(len(w.cluster.members))].node()
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// localDeadline is when the holder stops, by DESIGN: from when the answered attempt was sent.
func localDeadline(sent time.Time, grant lock.Grant, now lock.LeaseTime) time.Time {
	return sent.Add(grant.Deadline.Sub(now)).Add(-grant.TTL/1000 - 10*time.Millisecond)
}

// acquire takes the resource, waiting for it, or reports that it got none.
func (w *worker) acquire(resource lease.Resource, wait time.Duration) (heldLease, bool) {
	w.grants++
	cmd := lock.Acquire{
		Identity: "tenant", Client: w.name, Request: lease.RequestID(fmt.Sprintf("r%d", w.grants)),
		Resource: resource, Mode: lease.Exclusive, TTL: w.ttl, Wait: wait,
		Lease: lease.NewID(0, [14]byte{w.number, byte(w.grants >> 16), byte(w.grants >> 8), byte(w.grants)}),
		AsOf:  w.leaseTime(),
	}
	giveUp := time.Now().Add(wait + 20*time.Second)
	target := w.any()
	for time.Now().Before(giveUp) {
		cmd.Call = callNumbers.Add(1)
		held, state, err := w.attempt(target, cmd, giveUp)
		switch {
		case err != nil:
			target = w.follow(err)
		case state == lock.RequestHeld:
			return held, true
		default:
			return heldLease{}, false
		}
	}
	w.stats.unanswered.Add(1)
	w.giveBack(lock.Cancel{Identity: "tenant", Client: w.name, Request: cmd.Request, AsOf: cmd.AsOf})
	return heldLease{}, false
}

// attempt is one call of an acquire at one node, as the API makes it.
func (w *worker) attempt(target *Group, cmd lock.Acquire, giveUp time.Time) (heldLease, lock.RequestState, error) {
	wait := target.Await(cmd.Identity, cmd.Client, cmd.Request)
	defer wait.Close()
	sent := time.Now()
	ctx, cancel := context.WithDeadline(context.Background(), earlier(giveUp, sent.Add(attemptTimeout)))
	outcome, err := target.Propose(ctx, cmd)
	cancel()
	w.stats.calls.Add(1)
	if err != nil {
		return heldLease{}, 0, err
	}
	if w.rand.Float64() < w.lose {
		w.stats.lostAnswers.Add(1)
		return heldLease{}, 0, &Error{Kind: Unknown, Err: errLost}
	}
	switch r := outcome.Result.(type) {
	case lock.Granted:
		if r.Retried {
			return w.confirm(r.Grant, giveUp)
		}
		return heldLease{r.Grant, localDeadline(sent, r.Grant, outcome.Now)}, lock.RequestHeld, nil
	case lock.Waiting:
		return w.await(wait, giveUp)
	case lock.Refused:
		return heldLease{}, lock.RequestEnded, nil
	default:
		return heldLease{}, 0, fmt.Errorf("an acquire is answered with %T", r)
	}
}

func (w *worker) await(wait *Wait, giveUp time.Time) (heldLease, lock.RequestState, error) {
	timer := time.NewTimer(time.Until(giveUp))
	defer timer.Stop()
	select {
	case end := <-wait.C:
		if end.Err != nil {
			return heldLease{}, 0, end.Err
		}
		if granted, ok := end.Event.(lock.LeaseGranted); ok {
			return w.confirm(granted.Grant, giveUp)
		}
		return heldLease{}, lock.RequestEnded, nil
	case <-timer.C:
		return heldLease{}, 0, &Error{Kind: Unknown, Err: context.DeadlineExceeded}
	}
}

// confirm renews a lease that was granted late before it counts as held.
func (w *worker) confirm(grant lock.Grant, giveUp time.Time) (heldLease, lock.RequestState, error) {
	outcome, sent, err := w.propose(lock.Renew{Identity: "tenant", Lease: grant.Lease}, giveUp)
	if err != nil {
		return heldLease{}, 0, err
	}
	if renewed, ok := outcome.Result.(lock.Renewed); ok {
		return heldLease{renewed.Grant, localDeadline(sent, renewed.Grant, outcome.Now)}, lock.RequestHeld, nil
	}
	return heldLease{}, lock.RequestEnded, nil
}

func (w *worker) leaseTime() (now lock.LeaseTime) {
	w.any().View(func(m *lock.Machine) { now = m.Info().Now })
	return now
}

// keep renews the lease at a third of its TTL for as long as given. It reports false if the lease is over.
func (w *worker) keep(held *heldLease, hold time.Duration) bool {
	end := time.Now().Add(hold)
	for {
		next := time.Now().Add(w.ttl / 3)
		if next.After(end) {
			time.Sleep(time.Until(end))
			return time.Now().Before(held.until)
		}
		time.Sleep(time.Until(next))
		outcome, sent, err := w.propose(lock.Renew{Identity: "tenant", Lease: held.grant.Lease}, held.until)
		if err != nil { // no quorum for as long as the lease lasts: the holder stops by itself
			w.stats.outages.Add(1)
			return false
		}
		switch r := outcome.Result.(type) {
		case lock.Renewed:
			w.stats.renewals.Add(1)
			held.grant, held.until = r.Grant, localDeadline(sent, r.Grant, outcome.Now)
			w.beliefs.hold(r.Resource, w.name, r.Token, held.until)
		default:
			if sent.Before(held.until) {
				w.cluster.t.Errorf("%s: a renewal sent %s before the lease's deadline is answered %+v", w.name, held.until.Sub(sent), r)
			}
			return false
		}
	}
}

// giveBack sends a release or cancel until it is answered, for a while.
func (w *worker) giveBack(cmd lock.Command) {
	_, _, _ = w.propose(cmd, time.Now().Add(30*time.Second)) // unanswered: the lease runs out by itself
}

// run takes, keeps and gives back or drops leases until the deadline.
func (w *worker) run(resources []lease.Resource, until time.Time) {
	for time.Now().Before(until) {
		resource := resources[w.rand.IntN(len(resources))]
		held, ok := w.acquire(resource, time.Duration(w.rand.IntN(30))*time.Second)
		if !ok {
			time.Sleep(time.Duration(w.rand.IntN(1000)) * time.Millisecond)
			continue
		}
		w.stats.held.Add(1)
		w.beliefs.hold(resource, w.name, held.grant.Token, held.until)
		if !w.keep(&held, time.Duration(w.rand.IntN(20_000))*time.Millisecond) {
			continue
		}
		if w.rand.IntN(5) == 0 { // dies with the lease: the belief stands until its deadline
			w.stats.deaths.Add(1)
			time.Sleep(time.Until(held.until))
			continue
		}
		w.beliefs.drop(resource, w.name)
		w.giveBack(lock.Release{Identity: "tenant", Lease: held.grant.Lease})
	}
}
