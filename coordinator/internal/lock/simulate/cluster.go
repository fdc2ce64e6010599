package simulate

import (
	"encoding/binary"
	"errors"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// cluster is the replicas and what consensus promises about them.
type cluster struct {
	world *world
	nodes []*node
	log   []*entry // committed, from base on
	base  uint64   // entries in front of log
	term  uint64
	reign *reign // of the last term; its leader may be gone, frozen or cut off
	calls uint64 // numbers given to calls
}

// node is one replica.
type node struct {
	number  int
	up      bool
	frozen  bool
	apart   bool // on the other side of a partition
	machine *lock.Machine
	applied uint64
	saved   *saved
	ppm     int64         // by which its clock is fast
	lag     time.Duration // that its clock stood still
}

// clock is the node's monotonic clock.
func (n *node) clock(now time.Duration) time.Duration { return drifted(now, n.ppm) - n.lag }

func drifted(now time.Duration, ppm int64) time.Duration {
	return now + now/1_000_000*time.Duration(ppm)
}

// reign is one leader's term.
type reign struct {
	node    *node
	term    uint64
	clock   Clock
	pending []*entry
	queue   []*call
	slow    time.Duration // its disk, now
	over    bool
}

// entry is a log entry.
type entry struct {
	lock.Entry
	calls  []*call
	real   time.Duration // when it was stamped
	stored bool          // on enough disks
}

// call is a command on its way. Answer hears its result, and with nil that nobody knows; heard is of the entry.
type call struct {
	command lock.Command
	answer  func(lock.Result, lock.LeaseTime)
}

const inFlight = 3 // entries

func (c *cluster) begin(w *world) {
	c.world = w
	for i := range w.drawn.replicas {
		n := &node{number: i, up: true, machine: lock.New()}
		if w.drawn.kinds&Drift != 0 {
			n.ppm = w.rng.Int64N(2*worstDrift+1) - worstDrift
		}
		c.nodes = append(c.nodes, n)
	}
	c.elect()
	c.tick()
}

// reaches reports whether a node, as a leader, has a majority.
func (c *cluster) reaches(n *node) bool {
	with := 0
	for _, o := range c.nodes {
		if o.up && !o.frozen && o.apart == n.apart {
			with++
		}
	}
	return n.up && !n.frozen && 2*with > len(c.nodes)
}

func (c *cluster) leads() bool { return c.reign != nil && !c.reign.over && c.reaches(c.reign.node) }

// changed has the replicas notice, after a while, that something is otherwise.
func (c *cluster) changed() {
	c.drain()
	c.world.after(c.world.between(500*time.Millisecond, 3*time.Second), func() {
		if !c.leads() {
			c.elect()
		}
	})
}

// elect begins a term, if there is a majority for anybody.
func (c *cluster) elect() {
	w := c.world
	var able []*node
	for _, n := range c.nodes {
		if c.reaches(n) {
			able = append(able, n)
		}
	}
	if len(able) == 0 {
		return
	}
	n := able[w.rng.IntN(len(able))]
	c.depose()
	c.term++
	c.catchUp(n)
	r := &reign{node: n, term: c.term}
	c.reign = r
	w.note("elected", uint64(n.number), c.term)
	w.tell("n%d becomes leader of term %d", n.number, c.term)
	r.clock = w.cfg.Clock(n.machine.Info().Now, n.clock(w.now), w.cfg.Limit(w.drawn.config.MinTTL))
	if c.term == 1 {
		c.propose(&call{command: lock.Init{Cluster: "c", Version: lock.MaxVersion, Config: w.drawn.config}})
	}
	c.propose(&call{command: lock.NewLeader{Node: "n", Term: c.term}})
}

// depose ends a reign. Of what it had not committed a beginning may be in the log of the next leader.
func (c *cluster) depose() {
	r := c.reign
	if r == nil || r.over {
		return
	}
	r.over = true
	w := c.world
	survive := w.rng.IntN(len(r.pending) + 1)
	for i, e := range r.pending {
		calls := e.calls
		e.calls = nil
		if i < survive {
			w.meet("an entry outlived its leader")
			c.commit(e)
		} else {
			w.meet("an entry was lost with its leader")
		}
		c.unknown(calls)
	}
	c.unknown(r.queue)
}

func (c *cluster) unknown(calls []*call) {
	for _, k := range calls {
		if k.answer != nil {
			c.world.meet("a deposed leader answered: unknown")
			c.world.after(c.world.between(0, 2*time.Second), func() { k.answer(nil, 0) })
		}
	}
}

// propose gives a command to the leader, if there is one.
func (c *cluster) propose(k *call) {
	if c.reign == nil || c.reign.over || !c.reign.node.up || c.reign.node.frozen {
		return
	}
	c.reign.queue = append(c.reign.queue, k)
	c.send()
}

// send makes an entry of what is queued.
func (c *cluster) send() {
	r, w := c.reign, c.world
	if len(r.queue) == 0 || len(r.pending) == inFlight || !r.node.up || r.node.frozen {
		return
	}
	e := &entry{calls: r.queue, real: w.now}
	r.queue = nil
	for _, k := range e.calls {
		e.Commands = append(e.Commands, k.command)
	}
	e.Now = r.clock.Stamp(r.node.clock(w.now), r.node.machine.Info().Now)
	r.pending = append(r.pending, e)
	w.after(w.between(time.Millisecond, 20*time.Millisecond)+r.slow, func() {
		e.stored = true
		if !r.over {
			c.drain()
		}
	})
}

// drain commits what may be.
func (c *cluster) drain() {
	for c.leads() && len(c.reign.pending) > 0 && c.reign.pending[0].stored {
		r := c.reign
		e := r.pending[0]
		r.pending = r.pending[1:]
		c.commit(e)
		c.send()
	}
}

// commit adds an entry to the log for good, and has the leader apply it.
func (c *cluster) commit(e *entry) {
	c.log = append(c.log, e)
	c.world.out.Entries++
	n := c.reign.node
	if n.machine == nil {
		n = c.any()
	}
	c.advance(n, c.base+uint64(len(c.log))-1)
	results, events := n.machine.Apply(c.base+uint64(len(c.log)), e.Entry)
	n.applied = c.base + uint64(len(c.log))
	now := n.machine.Info().Now
	c.world.judge.applied(e, now, results, events)
	for i, k := range e.calls {
		if k.answer != nil {
			k.answer(results[i], now)
		}
	}
	e.calls = nil
	c.world.hear(events, now)
	c.trim()
}

func (c *cluster) any() *node {
	for _, n := range c.nodes {
		if n.machine != nil {
			return n
		}
	}
	n := c.nodes[0]
	c.restore(n)
	return n
}

func (c *cluster) catchUp(n *node) { c.advance(n, c.base+uint64(len(c.log))) }

func (c *cluster) advance(n *node, index uint64) {
	if n.machine == nil {
		c.restore(n)
	}
	for n.applied < index {
		e := c.log[n.applied-c.base]
		n.applied++
		n.machine.Apply(n.applied, e.Entry)
	}
}

const longLog = 512

// trim saves every replica when the log is long, so that its beginning can go. One that is down gets another's later.
func (c *cluster) trim() {
	if len(c.log) < longLog {
		return
	}
	var newest *saved
	for _, n := range c.nodes {
		if n.machine != nil {
			c.catchUp(n)
			n.saved = save(n.machine)
			newest = n.saved
		}
	}
	c.world.fail(c.agree())
	for _, n := range c.nodes {
		if n.machine == nil {
			n.saved = newest
			c.world.meet("a replica was sent a snapshot")
		}
	}
	c.base += uint64(len(c.log))
	c.log = c.log[:0]
}

// agree compares the replicas.
func (c *cluster) agree() error {
	var first [32]byte
	seen := false
	for _, n := range c.nodes {
		if n.machine == nil {
			continue
		}
		c.catchUp(n)
		digest := n.machine.Digest()
		if seen && digest != first {
			return errors.New("invariant 10: two replicas differ after the same entry")
		}
		first, seen = digest, true
	}
	c.world.note("digest", binary.BigEndian.Uint64(first[:8]))
	return nil
}

func (c *cluster) crash(n *node) {
	if n.machine != nil && c.world.chance(500) {
		c.world.meet("a replica crashed right after a snapshot")
		n.saved = save(n.machine)
	}
	n.up, n.machine = false, nil
}

// restore starts a replica from what it saved last; what followed comes from the log.
func (c *cluster) restore(n *node) {
	n.machine, n.applied = lock.New(), c.base
	if n.saved == nil {
		n.applied = 0
		return
	}
	m, err := n.saved.restore()
	if err != nil {
		c.world.fail(err)
		return
	}
	n.machine, n.applied = m, m.Info().Index
	c.world.meet("a replica was restored from a snapshot")
}

// tick has the leader's clock go on while nobody asks for anything.
func (c *cluster) tick() {
	limit := c.world.cfg.Limit(c.world.drawn.config.MinTTL)
	c.world.after(limit*4/5, func() {
		if r := c.reign; r != nil && !r.over && len(r.queue) == 0 && len(r.pending) == 0 && r.node.machine != nil && r.node.machine.Timed() {
			c.propose(tickCall)
		}
		c.tick()
	})
}

var tickCall = &call{command: lock.Tick{}}

func leaseID(number uint64) lease.ID {
	var random [14]byte
	binary.BigEndian.PutUint64(random[:], number)
	return lease.NewID(0, random)
}
