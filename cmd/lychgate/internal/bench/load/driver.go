package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// driver plays the clients of one stream: client i of it is client i × streams + share of all.
type driver struct {
	plan    Plan
	share   int
	began   time.Time
	wire    *wire
	former  []*wire       // of leaders that were: what was sent on them is answered on them
	filled  chan struct{} // closed when every client has its leases
	drained chan struct{} // closed when all is answered, after the end

	mu      sync.Mutex
	clients []member
	pending map[uint64]*call
	again   []*call // to be sent once more, unordered
	ids     uint64
	fill    line
	filling int // fills without an answer
	got     int // fills answered
	beats   line
	churn   line
	single  bool // a renewal for each lease
	from    time.Duration
	to      time.Duration // 0: not known yet
	ended   bool

	latencies  map[string]*Histogram
	operations int64
	lost       int
	fails      int
	fail       string
	violations []string
	records    []Record
}

// member is one client.
type member struct {
	slots    []slot
	sequence uint64   // of its last numbered request
	open     []uint64 // numbers of those without an answer
}

// slot is a place for a lease of a client.
type slot struct {
	id       string // empty: no lease
	deadline int64  // it stands at least until then
	tokens   [2]uint64
	side     uint8 // which of its two resources it has
	asking   bool
}

func newDriver(p Plan, share int, began time.Time) *driver {
	streams := max(1, p.Mix.Streams)
	n := (p.Mix.Clients - share + streams - 1) / streams
	d := &driver{
		plan: p, share: share, began: began, filled: make(chan struct{}), drained: make(chan struct{}),
		clients: make([]member, n), pending: make(map[uint64]*call), ids: 1, single: p.Mix.Single,
		latencies: map[string]*Histogram{acquires: {}, releases: {}, renewals: {}},
	}
	slots := make([]slot, n*p.Mix.Leases)
	for i := range d.clients {
		d.clients[i].slots = slots[i*p.Mix.Leases : (i+1)*p.Mix.Leases]
	}
	if p.Mix.Fill > 0 {
		d.fill = newLine(0, p.Mix.Fill, share, streams)
	} else {
		d.fill = line{step: 1} // all at once; the window bounds it
	}
	d.fill.last = int64(n * p.Mix.Leases)
	if p.Mix.Beat > 0 {
		d.beats = newLine(0, float64(p.Mix.Clients)/p.Mix.Beat.Seconds(), share, streams)
	}
	if d.fill.last == 0 {
		close(d.filled)
	}
	return d
}

// stopFilling does without what is not there yet.
func (d *driver) stopFilling() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fill.last = max(1, d.fill.next)
}

// broken is an error if a call failed so far.
func (d *driver) broken() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.fails == 0 {
		return nil
	}
	return fmt.Errorf("%d calls failed: %s", d.fails, d.fail)
}

// begin starts the measured time and the churn.
func (d *driver) begin(now, from time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.from = from.Sub(d.began)
	if d.plan.Mix.Churn > 0 {
		d.churn = newLine(now.Sub(d.began), d.plan.Mix.Churn, d.share, max(1, d.plan.Mix.Streams))
	}
}

// finish ends what is sent anew.
func (d *driver) finish(to time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.to = to.Sub(d.began)
	d.end()
}

// end closes drained when nothing is left to be answered. The caller holds mu.
func (d *driver) end() {
	if d.to > 0 && !d.ended && len(d.pending) == 0 {
		d.ended = true
		close(d.drained)
	}
}

// connect finds a leader and opens the wire to it.
func (d *driver) connect(ctx context.Context) error {
	addr, err := leaderFor(ctx, d.plan.Addrs, d.share)
	if err != nil {
		return err
	}
	d.wire, err = openWire(ctx, addr, d.answered)
	return err
}

// run sends what is due until ctx ends.
func (d *driver) run(ctx context.Context) error {
	defer func() {
		d.wire.close()
		for _, w := range d.former {
			w.close()
		}
	}()
	tick := time.NewTicker(flowTick)
	defer tick.Stop()
	for {
		d.wire.send(ctx, d.due())
		select {
		case <-tick.C:
		case <-d.wire.broken:
			if err := d.reconnect(ctx); err != nil {
				return err
			}
		case <-d.wire.moved:
			d.follow(ctx)
		case <-ctx.Done():
			return nil
		}
	}
}

// follow sends to the new leader from now on, as the client library does. If there is none yet, the next one is told again.
func (d *driver) follow(ctx context.Context) {
	former := d.wire
	if err := d.connect(ctx); err != nil {
		d.wire = former
		return
	}
	if len(d.former) == keptWires {
		d.former[0].close()
		d.former = d.former[1:]
	}
	d.former = append(d.former, former)
}

// keptWires bounds the wires to former leaders.
const keptWires = 8

// reconnect opens another wire, on which everything without an answer is sent again.
func (d *driver) reconnect(ctx context.Context) error {
	d.wire.close()
	d.mu.Lock()
	d.again = d.again[:0]
	for _, c := range d.pending {
		c.maybe, c.notBefore = true, 0
		d.again = append(d.again, c)
	}
	d.mu.Unlock()
	for {
		err := d.connect(ctx)
		if err == nil || ctx.Err() != nil {
			return nil
		}
		if d.now() > d.plan.WarmUp+d.plan.Duration+reconnectLimit {
			return err
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil
		}
	}
}

// reconnectLimit bounds how long a node is looked for, beyond the time of the work itself.
const reconnectLimit = time.Minute

func (d *driver) now() time.Duration { return time.Since(d.began) }

// due makes the calls that are to be sent now.
func (d *driver) due() []*lockpb.Call {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	var calls []*lockpb.Call
	calls = d.resend(calls, now)
	if d.to > 0 {
		return calls
	}
	for {
		k, at, ok := d.beats.due(now)
		if !ok {
			break
		}
		calls = d.beat(calls, int(k%int64(len(d.clients))), at)
	}
	for d.filling*max(1, d.plan.Mix.Streams) < d.plan.Mix.Window {
		k, at, ok := d.fill.due(now)
		if !ok {
			break
		}
		if d.plan.Mix.Fill == 0 {
			at = now // it waited for the window, not for the server
		}
		d.filling++
		c := d.acquire(int(k)%len(d.clients), int(k)/len(d.clients), at) // each client takes one lease after the other
		c.fill = true
		calls = append(calls, c.msg)
	}
	for {
		k, at, ok := d.churn.due(now)
		if !ok {
			break
		}
		calls = d.change(calls, int(k), at)
	}
	return calls
}

// resend takes those calls that may be sent once more.
func (d *driver) resend(calls []*lockpb.Call, now time.Duration) []*lockpb.Call {
	left := d.again[:0]
	for _, c := range d.again {
		if c.notBefore > now {
			left = append(left, c)
			continue
		}
		c.sent = Now()
		calls = append(calls, c.msg)
	}
	clear(d.again[len(left):])
	d.again = left
	return calls
}
