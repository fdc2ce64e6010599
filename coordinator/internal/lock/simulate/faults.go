package simulate

import (
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// strikes draws whether a fault that exists happens now.
func (w *world) strikes(kind Faults, perMille int) bool {
	return !w.quiet && w.drawn.kinds&kind != 0 && w.chance(perMille)
}

func (w *world) fault(name string) {
	w.out.Faults[name]++
	w.tell("fault: %s", name)
}

// carry takes a message through the network: it arrives later, twice or never.
func (w *world) carry(arrive func()) {
	if w.strikes(Loss, w.drawn.loss) {
		w.fault("a message was lost")
		return
	}
	copies := 1
	if w.strikes(Doubles, w.drawn.doubles) {
		w.fault("a message was doubled")
		copies = 2
	}
	for range copies {
		delay := w.between(200*time.Microsecond, 5*time.Millisecond)
		if w.strikes(Delays, w.drawn.delays) {
			w.fault("a message was delayed")
			delay = w.about(w.drawn.config.DefaultTTL)
		}
		w.after(delay, arrive)
	}
}

// beginFaults has each kind that was drawn strike again and again.
func (w *world) beginFaults() {
	for _, f := range []struct {
		kind   Faults
		strike func()
	}{
		{Partitions, w.partition},
		{Crashes, w.crashNode},
		{Freezes, w.freezeNode},
		{Stalls, w.stall},
		{Transfers, w.transfer},
		{Suspends, w.suspend},
		{Pauses, w.pauseClient},
		{ClientCrashes, w.crashClient},
		{StoreCrashes, w.crashStore},
		{ProxyCrashes, w.crashProxy},
		{Breaks, w.breakLock},
		{Recoveries, w.recover},
	} {
		if w.drawn.kinds&f.kind != 0 {
			w.again(f.strike)
		}
	}
}

func (w *world) again(strike func()) {
	w.after(w.about(w.drawn.every), func() {
		if !w.quiet {
			strike()
			w.again(strike)
		}
	})
}

// lasts is how long a fault does: mostly about as long as a lease.
func (w *world) lasts() time.Duration {
	return min(w.about(w.drawn.config.DefaultTTL), 4*w.drawn.config.DefaultTTL)
}

func (w *world) someNode() *node { return w.cluster.nodes[w.rng.IntN(len(w.cluster.nodes))] }

func (w *world) leaderOrOther() *node {
	if r := w.cluster.reign; r != nil && w.chance(600) {
		return r.node
	}
	return w.someNode()
}

func (w *world) partition() {
	w.fault("a partition")
	for _, n := range w.cluster.nodes {
		n.apart = w.chance(400)
	}
	w.cluster.changed()
	w.after(w.lasts(), func() {
		for _, n := range w.cluster.nodes {
			n.apart = false
		}
		w.cluster.changed()
	})
}

func (w *world) crashNode() {
	n := w.leaderOrOther()
	if !n.up {
		return
	}
	w.fault("a replica crashed")
	w.tell("n%d crashes", n.number)
	if r := w.cluster.reign; r != nil && r.node == n {
		w.cluster.depose()
	}
	w.cluster.crash(n)
	w.cluster.changed()
	w.after(w.lasts(), func() { w.start(n) })
}

func (w *world) start(n *node) {
	if !n.up {
		n.up = true
		w.cluster.catchUp(n)
		w.cluster.changed()
	}
}

func (w *world) freezeNode() {
	n := w.leaderOrOther()
	w.fault("a replica was frozen")
	n.frozen = true
	w.cluster.changed()
	w.after(w.lasts(), func() {
		n.frozen = false
		w.cluster.changed()
	})
}

func (w *world) stall() {
	r := w.cluster.reign
	w.fault("a disk stalled")
	r.slow = w.between(0, w.drawn.config.DefaultTTL)
	w.after(w.lasts(), func() { r.slow = 0 })
}

func (w *world) transfer() {
	w.fault("leadership moved")
	w.cluster.elect()
}

// suspend stops a machine, and its monotonic clock with it.
func (w *world) suspend() {
	n, d := w.leaderOrOther(), w.lasts()
	w.fault("a machine was suspended")
	n.frozen = true
	w.cluster.changed()
	w.after(d, func() {
		n.frozen = false
		n.lag += d
		w.cluster.changed()
	})
}

func (w *world) someClient() *client { return w.clients[w.rng.IntN(len(w.clients))] }

func (w *world) pauseClient() {
	w.fault("a client was paused")
	w.someClient().pause(2 * w.lasts())
}

func (w *world) crashClient() {
	w.fault("a client crashed")
	w.someClient().crash()
}

func (w *world) crashStore() {
	w.fault("a store crashed")
	w.stores[w.rng.IntN(len(w.stores))].restart()
}

func (w *world) crashProxy() {
	w.fault("a proxy crashed")
	which := w.rng.IntN(2)
	for _, s := range w.stores {
		for i, n := range s.sessions {
			if n != nil && i%2 == which {
				n.end()
			}
		}
	}
}

func (w *world) breakLock() {
	w.fault("a lock was broken")
	w.cluster.propose(&call{command: lock.Break{Identity: "admin", Resource: resources[w.rng.IntN(len(resources))]}})
}

func (w *world) recover() {
	if r := w.cluster.reign; r.node.machine != nil {
		w.fault("a recovery without a majority")
		w.cluster.propose(&call{command: lock.Recover{Cluster: "c", Incarnation: r.node.machine.Info().Incarnation + 1}})
	}
}

// heal ends all faults.
func (w *world) heal() {
	w.quiet = true
	w.note("healed")
	for _, n := range w.cluster.nodes {
		n.frozen, n.apart = false, false
		w.start(n)
	}
	w.cluster.reign.slow = 0
	for _, c := range w.clients {
		c.paused = min(c.paused, w.now)
		if h := c.held; h != nil {
			c.after(w.drawn.config.DefaultTTL, func() { c.release(h) })
		}
	}
	w.cluster.changed()
}

func (c *cluster) leaseTime() lock.LeaseTime {
	if c.reign == nil || c.reign.node.machine == nil {
		return 0
	}
	return c.reign.node.machine.Info().Now
}
