package simulate

import (
	"fmt"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// client takes locks, renews them by its own clock, writes to stores under their tokens, and gives them back.
type client struct {
	world    *world
	number   int
	id       lease.ClientID
	identity lease.Identity
	ppm      int64 // by which its clock is fast
	paused   time.Duration
	life     uint64 // number of its process
	requests uint64

	ask  *ask // that has no end yet
	held *holding
}

// ask is an acquire with all its copies.
type ask struct {
	lock.Acquire
	attempts  int
	cancelled bool
}

// holding is a lease as its client knows it.
type holding struct {
	lease    lease.ID
	token    lease.Token
	resource lease.Resource
	mode     lease.Mode
	ttl      time.Duration
	deadline time.Duration // by the client's clock
	session  *session
}

func newClient(w *world, i int) *client {
	name := fmt.Sprintf("c%d", i+1)
	c := &client{world: w, number: i, id: lease.ClientID(name), identity: lease.Identity("t:" + name)}
	if w.drawn.kinds&Drift != 0 {
		c.ppm = w.rng.Int64N(2*worstDrift+1) - worstDrift
	}
	return c
}

func (c *client) clock(now time.Duration) time.Duration { return drifted(now, c.ppm) }

// after runs something in the process that there is now; a paused one does it when it goes on.
func (c *client) after(d time.Duration, do func()) {
	life := c.life
	var try func()
	try = func() {
		switch {
		case life != c.life:
		case c.paused > c.world.now:
			c.world.after(c.paused-c.world.now, try)
		default:
			do()
		}
	}
	c.world.after(d, try)
}

// rest waits for the next lock that is wanted.
func (c *client) rest() {
	c.ask = nil
	if !c.world.quiet {
		c.after(c.world.about(c.world.drawn.think), c.begin)
	}
}

func (c *client) begin() {
	w := c.world
	if w.quiet || c.ask != nil || c.held != nil {
		return
	}
	c.requests++
	a := &ask{Acquire: lock.Acquire{
		Identity: c.identity, Client: c.id, Request: lease.RequestID(fmt.Sprint(c.requests)),
		Resource: resources[w.rng.IntN(len(resources))], Mode: lease.Exclusive, AsOf: w.cluster.leaseTime(),
	}}
	if w.chance(w.drawn.shared) {
		a.Mode = lease.Shared
	}
	if w.chance(w.drawn.waits) {
		a.Wait = w.between(w.drawn.config.MinTTL, w.drawn.config.MaxWait)
	}
	a.TTL = w.between(w.drawn.config.MinTTL, w.drawn.config.MaxTTL)
	c.ask = a
	c.try(a)
	if a.Wait > 0 && w.chance(200) {
		c.after(w.between(0, a.Wait), func() { c.cancel(a, false) })
	}
}

const mostAttempts = 5

// try sends a copy, and another one if nothing is heard.
func (c *client) try(a *ask) {
	if c.ask != a {
		return
	}
	w := c.world
	if a.attempts == mostAttempts {
		c.cancel(a, false)
		return
	}
	if a.attempts++; a.attempts > 1 {
		w.meet("an acquire was sent again")
	}
	w.cluster.calls++
	copied := a.Acquire
	copied.Call, copied.Lease = w.cluster.calls, leaseID(w.cluster.calls)
	sent := c.clock(w.now)
	c.send(copied, func(result lock.Result, now lock.LeaseTime) { c.answered(a, sent, result, now) })
	patience := w.between(time.Second, 4*time.Second)
	c.after(patience+a.Wait, func() { c.try(a) })
	if a.Wait > 0 && !w.quiet && w.chance(150) {
		c.after(w.between(0, a.Wait), func() { c.hangUp(a, copied.Call) })
	}
}

// hangUp has a call go away, and perhaps another one come.
func (c *client) hangUp(a *ask, call uint64) {
	if c.ask != a {
		return
	}
	c.world.meet("a caller went away")
	c.send(lock.Detach{Identity: c.identity, Client: c.id, Request: a.Request, Call: call}, func(lock.Result, lock.LeaseTime) {})
	c.after(c.world.between(0, 2*c.world.drawn.config.Grace), func() { c.try(a) })
}

// send takes a command through the network and its answer back.
func (c *client) send(command lock.Command, heard func(lock.Result, lock.LeaseTime)) {
	w := c.world
	w.carry(func() {
		w.cluster.propose(&call{command: command, answer: func(result lock.Result, now lock.LeaseTime) {
			w.carry(func() {
				c.after(0, func() {
					w.out.Operations++
					heard(result, now)
				})
			})
		}})
	})
}

// answered takes the answer to one copy.
func (c *client) answered(a *ask, sent time.Duration, result lock.Result, now lock.LeaseTime) {
	if c.ask != a {
		c.world.meet("an answer came too late")
		return
	}
	switch r := result.(type) {
	case lock.Granted:
		c.take(r.Grant, sent, now)
	case lock.Refused:
		if r.Reason == lock.ReasonRequestTooOld || r.Reason == lock.ReasonRequestEnded || r.Reason == lock.ReasonRequestCancelled {
			c.world.meet("a retry was answered: ended")
		}
		c.rest()
	case nil:
		c.after(c.world.between(0, time.Second), func() { c.try(a) })
	default: // it waits
	}
}

func (c *client) cancel(a *ask, again bool) {
	if c.ask != a || a.cancelled && !again {
		return
	}
	a.cancelled = true
	c.send(lock.Cancel{Identity: c.identity, Client: c.id, Request: a.Request, AsOf: a.AsOf}, func(result lock.Result, _ lock.LeaseTime) {
		if c.ask != a || result == nil {
			return
		}
		if r, ok := result.(lock.Cancelled); ok && r.Was == lock.RequestUnknown {
			c.world.meet("a cancel came before its acquire")
		}
		c.rest()
	})
	c.after(5*time.Second, func() { c.cancel(a, true) })
}

// granted hears that a wait is over. The lease is held when a renewal was answered.
func (c *client) granted(a *ask, g lock.Grant) {
	if c.ask != a || c.held != nil {
		return
	}
	sent := c.clock(c.world.now)
	c.send(lock.Renew{Identity: c.identity, Lease: g.Lease}, func(result lock.Result, now lock.LeaseTime) {
		if c.ask != a {
			return
		}
		switch r := result.(type) {
		case lock.Renewed:
			c.world.meet("a late grant was confirmed")
			c.take(r.Grant, sent, now)
		case lock.Refused:
			c.world.meet("a late grant was confirmed too late")
			c.rest()
		default: // another copy will tell
		}
	})
}

// take begins to hold.
func (c *client) take(g lock.Grant, sent time.Duration, now lock.LeaseTime) {
	w := c.world
	c.ask = nil
	h := &holding{lease: g.Lease, token: g.Token, resource: g.Resource, mode: g.Mode, ttl: g.TTL}
	h.extend(sent, g.Deadline.Sub(now))
	c.held = h
	w.tell("%s holds %s with token %d", c.id, h.resource, h.token)
	c.after(h.ttl/3, func() { c.beat(h) })
	hold := w.about(w.drawn.hold)
	if w.quiet {
		hold = min(hold, w.drawn.config.DefaultTTL)
	}
	c.after(hold, func() { c.release(h) })
	c.after(w.between(0, 100*time.Millisecond), func() { c.connect(h) })
}

func (h *holding) extend(sent, remaining time.Duration) {
	h.deadline = max(h.deadline, sent+remaining-h.ttl/1000-10*time.Millisecond)
}

func (c *client) holds(h *holding) bool { return c.held == h && c.clock(c.world.now) < h.deadline }

// beat renews.
func (c *client) beat(h *holding) {
	if c.held != h {
		return
	}
	if !c.holds(h) {
		c.world.meet("a client let its lease run out")
		c.lose(h)
		return
	}
	sent := c.clock(c.world.now)
	c.send(lock.RenewMany{Identity: c.identity, Leases: []lease.ID{h.lease}}, func(result lock.Result, now lock.LeaseTime) {
		r, ok := result.(lock.RenewedMany)
		switch {
		case c.held != h || !ok:
		case r.Renewals[0].Refused != nil:
			c.world.meet("a holder heard that its lease had ended")
			c.lose(h)
		default:
			h.extend(sent, r.Renewals[0].Deadline.Sub(now))
		}
	})
	c.after(h.ttl/3, func() { c.beat(h) })
}

// lose forgets the lease. What it sent may still arrive.
func (c *client) lose(h *holding) {
	if c.held == h {
		c.held = nil
		c.leave(h)
		c.rest()
	}
}

func (c *client) release(h *holding) {
	if c.held != h {
		return
	}
	again := func() {}
	again = func() {
		c.send(lock.Release{Identity: c.identity, Lease: h.lease}, func(result lock.Result, _ lock.LeaseTime) {
			if result == nil && c.clock(c.world.now) < h.deadline {
				again()
			}
		})
	}
	again()
	c.lose(h)
}

// pause stops the process for a while. It does not notice, and the first thing that it does then is to write.
func (c *client) pause(d time.Duration) {
	c.paused = c.world.now + d
	if h := c.held; h != nil && h.session != nil {
		c.after(0, func() {
			if c.clock(c.world.now) >= h.deadline {
				c.world.meet("a paused client wrote after its deadline")
			}
			c.put(h)
		})
	}
}

// crash loses the process with all that it knew; its sessions stay for as long as nobody ends them.
func (c *client) crash() {
	c.life++
	c.paused, c.held = 0, nil
	c.rest()
}
