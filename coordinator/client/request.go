package client

import (
	"context"
	"sync"
	"time"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// numbers counts a client's requests and knows up to which none will be sent again, so that the
// coordinator can forget them.
type numbers struct {
	on bool

	mu    sync.Mutex
	last  uint64              // last number given out
	acked uint64              // every request up to this one has ended
	ended map[uint64]struct{} // those above acked that have ended
}

// begin numbers a request; both results are 0 if the client does not number.
func (n *numbers) begin() (number, acknowledged uint64) {
	if !n.on {
		return 0, 0
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.last++
	return n.last, n.acked
}

// end says that the request will never be sent again.
func (n *numbers) end(number uint64) {
	if number == 0 {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ended == nil {
		n.ended = make(map[uint64]struct{})
	}
	n.ended[number] = struct{}{}
	for {
		if _, ok := n.ended[n.acked+1]; !ok {
			return
		}
		n.acked++
		delete(n.ended, n.acked)
	}
}

// freshFor is how long an as_of is used for new requests. It must stay well below the coordinator's window
// for late requests, which is minutes.
const freshFor = 30 * time.Second

// asOf is the newest lease time that answers carried, by group: each has a clock of its own.
type asOf struct {
	mu     sync.Mutex
	groups map[uint16]heardAsOf
}

type heardAsOf struct {
	value int64
	at    time.Duration // on the client's clock
}

// learn notes the lease time of an answer that has just come.
func (a *asOf) learn(group uint16, value int64, now time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.groups == nil {
		a.groups = make(map[uint16]heardAsOf, 1)
	}
	if known, ok := a.groups[group]; ok && value < known.value {
		return // from a node that lags
	}
	a.groups[group] = heardAsOf{value, now}
}

// forget makes the next request ask for the lease time.
func (a *asOf) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.groups = nil
}

func (a *asOf) fresh(group uint16, now time.Duration) (int64, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	known, ok := a.groups[group]
	return known.value, ok && now-known.at < freshFor
}

// leaseTime gives the as_of for a new request. The coordinator refuses a copy of the request that comes too
// late by comparing with it, so a request that carries none, or one read after it was made, could still be
// executed by a node that slept on it. One attempt: its failure says that the request was not sent.
func (c *Client) leaseTime(ctx context.Context, resource string) (int64, error) {
	if v, ok := c.knownTime(resource, c.clock.Now()); ok {
		return v, nil
	}
	b := within(ctx, c.cfg.AttemptTimeout, noAnswer)
	defer b.cancel()
	ctx = b
	st, err := c.cluster.Status(ctx, &lockpb.StatusRequest{})
	if err != nil {
		return 0, err
	}
	now := c.clock.Now()
	c.nodes.number(max(1, len(st.GetGroups())))
	c.asOf.learn(0, st.GetAsOf(), now)
	for _, g := range st.GetGroups() {
		c.asOf.learn(uint16(g.GetGroup()), g.GetAsOf(), now)
	}
	v, _ := c.asOf.fresh(ofResource(resource).in(c.nodes.groups()), now)
	return v, nil // 0, if the node has nothing to say of the group: then the coordinator fills it in
}

// knownTime is leaseTime where a recent answer has told it.
func (c *Client) knownTime(resource string, now time.Duration) (int64, bool) {
	groups := c.nodes.groups()
	if groups == 0 {
		return 0, false
	}
	return c.asOf.fresh(ofResource(resource).in(groups), now)
}
