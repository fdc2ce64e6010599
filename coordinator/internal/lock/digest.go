package lock

import (
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"time"
)

// Digest condenses the whole state: equal on all replicas at one log index, live or restored. The index itself is
// left out. It costs a sort of everything; a busy replica computes it from a Snapshot instead.
func (m *Machine) Digest() [sha256.Size]byte { return m.look().Digest() }

// Digest is the digest of the machine as it was when it was frozen.
func (s *Snapshot) Digest() [sha256.Size]byte {
	d := digester{hash: sha256.New()}
	d.header(s.header)
	for delay := range s.Delays() {
		d.delay(delay)
	}
	for c, requests := range s.Clients() {
		d.client(c)
		for r := range requests {
			d.request(r)
		}
	}
	d.number(uint64(s.clients.count))
	return [sha256.Size]byte(d.hash.Sum(nil))
}

// digester writes values so that different sequences of them never give the same bytes: numbers in eight bytes,
// texts behind their length.
type digester struct {
	hash hash.Hash
	buf  [8]byte
}

func (d *digester) number(v uint64) {
	binary.BigEndian.PutUint64(d.buf[:], v)
	d.hash.Write(d.buf[:])
}

func (d *digester) numbers(vs ...uint64) {
	for _, v := range vs {
		d.number(v)
	}
}

func (d *digester) text(s string) {
	d.number(uint64(len(s)))
	d.hash.Write([]byte(s))
}

func (d *digester) flag(b bool) {
	if b {
		d.number(1)
		return
	}
	d.number(0)
}

func (d *digester) header(h Header) {
	d.flag(h.Initialised)
	d.text(h.Cluster)
	c := h.Config
	d.numbers(uint64(h.Version), uint64(h.Incarnation),
		uint64(c.DefaultTTL), uint64(c.MinTTL), uint64(c.MaxTTL), uint64(c.MaxWait), uint64(c.RetryWindow),
		uint64(c.Grace), uint64(c.ClaimWindow), uint64(c.HeadStart),
		uint64(c.MaxWaiters), uint64(c.MaxRequests), uint64(c.MaxExpiries),
		uint64(h.Now), h.Counter, h.Seq, uint64(h.HeadStart), uint64(len(h.Keys)))
	for _, k := range h.Keys {
		d.text(k.Node)
		d.text(k.KeyID)
		d.text(string(k.Public))
	}
	d.later(h)
}

// later digests what cluster version 2 added, each behind a mark and only if it is there: a cluster of version 1 has the
// digest that earlier releases compute.
func (d *digester) later(h Header) {
	for _, k := range h.Keys {
		if k.Retiring() {
			d.text("retiring")
			d.text(k.Node)
			d.text(k.KeyID)
			d.number(uint64(k.Until))
		}
	}
	for _, m := range h.Members {
		d.text("member")
		d.text(m.ID)
		d.text(m.Peer)
		d.text(m.GRPC)
		d.text(m.HTTP)
	}
	for _, p := range h.Policies {
		d.policy(p)
	}
	if most := h.Config.MaxTenantRequests; most != 0 {
		d.text("tenant requests")
		d.number(uint64(most))
	}
}

func (d *digester) policy(p SavedPolicy) {
	d.text("policy")
	d.numbers(uint64(p.Target.Kind), uint64(p.Level), uint64(p.At))
	d.text(p.Target.Name)
	for _, v := range []*time.Duration{p.Policy.DefaultTTL, p.Policy.MinTTL, p.Policy.MaxTTL, p.Policy.MaxHold, p.Policy.LockDelay} {
		maybe(d, v)
	}
	for _, v := range []*bool{p.Policy.Exclusive, p.Policy.Shared} {
		d.flag(v != nil)
		d.flag(v != nil && *v)
	}
	maybe(d, p.Policy.MaxWaiters)
	for _, v := range []*int64{p.Policy.MaxLeases, p.Policy.AcquireRate, p.Policy.AcquireBurst} {
		maybe(d, v)
	}
	if most := p.Policy.MaxRequests; most != nil { // came later than the others
		d.text("requests")
		d.number(uint64(*most))
	}
}

// maybe digests a number that may be absent.
func maybe[T ~int64 | ~int](d *digester, v *T) {
	d.flag(v != nil)
	if v != nil {
		d.number(uint64(*v))
	}
}

func (d *digester) delay(s SavedDelay) {
	d.text("delay")
	d.text(string(s.Resource))
	d.numbers(s.Seq, uint64(s.Until), uint64(s.Mode))
}

// client and request begin with a mark, so that a list's end is seen.
func (d *digester) client(c SavedClient) {
	d.text("client")
	d.text(string(c.Identity))
	d.text(string(c.Client))
	d.numbers(c.Seq, c.Acknowledged, uint64(c.Until))
}

func (d *digester) request(r SavedRequest) {
	d.text("request")
	d.text(string(r.Request))
	d.numbers(r.Seq, r.Fingerprint, uint64(r.Until), r.Sequence, uint64(r.Stage))
	d.text(string(r.Claim.Resource))
	d.hash.Write(r.Claim.Lease[:])
	d.text(r.Claim.Owner)
	d.numbers(uint64(r.Claim.TTL), uint64(r.Claim.Mode))
	w := r.Waiter
	d.numbers(uint64(w.Deadline), uint64(w.Grace), w.Call)
	d.flag(w.Attached)
	l := r.Lease
	d.numbers(l.Seq, uint64(l.Token), uint64(l.Since), uint64(l.Deadline))
	d.flag(l.Unclaimed)
}
