package explore

import (
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"github.com/lychgate/lychgate/chaos/explore"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// A key is a hash of the machine's snapshot and the world with what cannot matter left out: instants count from the
// machine's clock, and of sequence numbers and tokens only their order is taken. So states that differ in nothing but
// how late it is and how much went before are one, and a path may go on for as long as something new comes.

// Key is that of this state.
func (s *system) Key() explore.Key {
	s.look()
	var room [512]byte
	b := s.world.appendTo(append(room[:0], s.canon...), s)
	sum := sha256.Sum256(b)
	return explore.Key(sum[:16])
}

// look brings the machine's part of the key up to date.
func (s *system) look() {
	if s.fresh {
		return
	}
	s.saved.take(s.machines.Look(s.machine()))
	s.canon = s.saved.appendTo(s.canon[:0], s)
	s.fresh = true
}

// numbers writes numbers that are mostly small.
type numbers []byte

func (n *numbers) add(vs ...int64) {
	for _, v := range vs {
		*n = binary.AppendVarint(*n, v)
	}
}

func (n *numbers) flag(b bool) {
	if b {
		n.add(1)
		return
	}
	n.add(0)
}

func (n *numbers) text(s string) {
	n.add(int64(len(s)))
	*n = append(*n, s...)
}

func (s *saved) appendTo(b []byte, sys *system) []byte {
	n, now := numbers(b), s.header.Now
	sys.ranks = s.ranks(sys.ranks)
	rank := func(seq uint64) int64 {
		at, _ := slices.BinarySearch(sys.ranks, seq)
		return int64(at)
	}
	n.flag(s.header.HeadStart != 0)
	if s.header.HeadStart != 0 {
		n.add(int64(s.header.HeadStart - now))
	}
	n.add(int64(len(s.delays)))
	for _, d := range s.delays {
		n.text(string(d.Resource))
		n.add(rank(d.Seq), int64(d.Until-now), int64(d.Mode))
	}
	requests := s.requests
	for i, c := range s.clients {
		n.text(string(c.Identity))
		n.text(string(c.Client))
		n.add(rank(c.Seq), int64(c.Acknowledged), max(-1, int64(c.Until-now)), int64(s.counts[i]))
		for j := range requests[:s.counts[i]] {
			n.request(&requests[j], now, rank, sys)
		}
		requests = requests[s.counts[i]:]
	}
	return n
}

func (n *numbers) request(r *lock.SavedRequest, now lock.LeaseTime, rank func(uint64) int64, sys *system) {
	n.text(string(r.Request))
	n.add(rank(r.Seq), int64(r.Fingerprint), int64(r.Until-now), int64(r.Sequence), int64(r.Stage))
	switch r.Stage {
	case lock.StageWaiting:
		n.claim(&r.Claim)
		n.add(int64(r.Waiter.Deadline-now), int64(r.Waiter.Call))
		n.flag(r.Waiter.Attached)
		if !r.Waiter.Attached { // else it is made anew when the caller goes
			n.add(int64(r.Waiter.Grace - now))
		}
	case lock.StageHeld:
		n.claim(&r.Claim)
		if sys.Policy != nil { // else since when is only told
			n.add(int64(r.Lease.Since - now))
		}
		n.add(rank(r.Lease.Seq), sys.order(r.Lease.Token), int64(r.Lease.Deadline-now))
		n.flag(r.Lease.Unclaimed)
	case lock.StageEnded, lock.StageCancelled, lock.StageForestalled:
	}
}

func (n *numbers) claim(c *lock.SavedClaim) {
	n.text(string(c.Resource))
	*n = append(*n, c.Lease[:]...)
	n.text(c.Owner)
	n.add(int64(c.TTL), int64(c.Mode))
}

// order is the place of a token among those that were granted; 0 is none.
func (s *system) order(t lease.Token) int64 {
	if t == 0 {
		return 0
	}
	place := int64(1)
	for i := range s.world.asks {
		if other := s.world.asks[i].token; other != 0 && other < t {
			place++
		}
	}
	return place
}

func (w *world) appendTo(b []byte, s *system) []byte {
	n := numbers(b)
	n.add(int64(w.now - s.applied))
	beyond := s.Config.MaxWait + s.Config.RetryWindow + maxLag + second // what is older is too old for good
	age := func(t lock.LeaseTime) int64 { return int64(min(s.applied.Sub(t), beyond) / time.Millisecond) }
	for i := range s.Asks {
		a := &w.asks[i]
		if !a.begun {
			n.add(-1)
			continue
		}
		n.add(int64(a.copies), age(a.asOf), int64(a.lease), s.order(a.token), int64(a.answer))
		n.flag(a.raises)
		n.flag(a.took)
		if a.took {
			n.add(age(a.effect))
		}
	}
	if s.May&Store != 0 {
		w.appendStore(&n, s)
	}
	return n
}

func (w *world) appendStore(n *numbers, s *system) {
	for i := range w.store.Sessions {
		n.add(s.order(w.store.Sessions[i].Token))
	}
	for r, t := range w.store.Takeovers {
		n.add(s.order(w.store.Floors[r]), s.order(t.Token), int64(t.Session))
	}
}
