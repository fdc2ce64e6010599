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

// asOf is the newest lease time that an answer carried.
type asOf struct {
	mu    sync.Mutex
	value int64
	heard time.Duration // on the client's clock
	known bool
}

// learn notes the lease time of an answer that has just come.
func (a *asOf) learn(value int64, now time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.known && value < a.value {
		return // from a node that lags
	}
	a.value, a.heard, a.known = value, now, true
}

// forget makes the next request ask for the lease time.
func (a *asOf) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.value, a.known = 0, false
}

func (a *asOf) fresh(now time.Duration) (int64, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.value, a.known && now-a.heard < freshFor
}

// leaseTime gives the as_of for a new request. The coordinator refuses a copy of the request that comes too
// late by comparing with it, so a request that carries none, or one read after it was made, could still be
// executed by a node that slept on it. One attempt: its failure says that the request was not sent.
func (c *Client) leaseTime(ctx context.Context) (int64, error) {
	if v, ok := c.asOf.fresh(c.clock.Now()); ok {
		return v, nil
	}
	ctx, cancel := within(ctx, c.cfg.AttemptTimeout, noAnswer)
	defer cancel()
	st, err := c.cluster.Status(ctx, &lockpb.StatusRequest{})
	if err != nil {
		return 0, err
	}
	c.asOf.learn(st.GetAsOf(), c.clock.Now())
	return st.GetAsOf(), nil
}
