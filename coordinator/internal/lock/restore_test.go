package lock_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// parts is a snapshot taken apart, so that a test can break it.
type parts struct {
	header  lock.Header
	clients []lock.SavedClient
	own     [][]lock.SavedRequest
}

// queueParts has client a with a lease, client b behind it in the queue, and client c with a request that is over.
func queueParts(t *testing.T) parts {
	t.Helper()
	m := started(t, baseConfig())
	apply(m, time.Second, acquire("a", "r", 1), waiting(acquire("b", "r", 2), 1), acquire("c", "s", 3))
	apply(m, 2*time.Second, lock.Release{Identity: "me", Lease: lease.ID{2: 3}}, lock.PutKey{Node: "n1", KeyID: "k"},
		lock.PutMember{Member: lock.Member{ID: "n4", Peer: "h:1", GRPC: "h:2", HTTP: "h:3"}})
	s := m.Snapshot()
	p := parts{header: s.Header()}
	for client, requests := range s.Clients() {
		p.clients = append(p.clients, client)
		p.own = append(p.own, slices.Collect(requests))
	}
	return p
}

func (p parts) restore() (*lock.Machine, error) {
	r, err := lock.NewRestorer(p.header)
	if err != nil {
		return nil, err
	}
	for i, c := range p.clients {
		if err := r.Client(c); err != nil {
			return nil, err
		}
		for _, q := range p.own[i] {
			if err := r.Request(q); err != nil {
				return nil, err
			}
		}
	}
	return r.Machine()
}

func TestRestoreIsExact(t *testing.T) {
	m, err := queueParts(t).restore()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Check(); err != nil {
		t.Error(err)
	}
	if info := m.Info(); info.Leases != 1 || info.Waiters != 1 || info.Requests != 3 || info.Clients != 3 {
		t.Errorf("restored %+v", info)
	}
}

func TestRestoreRefuses(t *testing.T) {
	for _, test := range []struct {
		name, want string
		damage     func(*parts)
	}{
		{"counter too large", "counter", func(p *parts) { p.header.Counter = 1 << 40 }},
		{"incarnation too large", "incarnation", func(p *parts) { p.header.Incarnation = 1 << 13 }},
		{"lease time", "lease time", func(p *parts) { p.header.Now = lock.MaxLeaseTime + 1 }},
		{"config", "config", func(p *parts) { p.header.Config.MaxWait = 0 }},
		{"keys", "keys", func(p *parts) {
			p.header.Keys = []lock.Key{{PutKey: lock.PutKey{Node: "b"}}, {PutKey: lock.PutKey{Node: "a"}}}
		}},
		{"client twice", "twice", func(p *parts) { p.clients[1] = p.clients[0] }},
		{"request twice", "twice", func(p *parts) { p.own[0] = append(p.own[0], p.own[0][0]) }},
		{"sequence twice", "sequence", func(p *parts) { p.clients[1].Seq = p.clients[0].Seq }},
		{"sequence 0", "sequence", func(p *parts) { p.own[1][0].Seq = 0 }},
		{"sequence ahead", "sequence", func(p *parts) { p.own[1][0].Seq = p.header.Seq + 1 }},
		{"lease sequence", "sequence", func(p *parts) { p.own[0][0].Lease.Seq = p.own[1][0].Seq }},
		{"no stage", "stage", func(p *parts) { p.own[0][0].Stage = 0 }},
		{"unknown stage", "stage", func(p *parts) { p.own[0][0].Stage = 9 }},
		{"lease id twice", "lease id", func(p *parts) { p.own[1][0].Claim.Lease = p.own[0][0].Claim.Lease }},
		{"lease id zero", "lease id", func(p *parts) { p.own[0][0].Claim.Lease = lease.ID{} }},
		{"no resource", "claim", func(p *parts) { p.own[0][0].Claim.Resource = "" }},
		{"no ttl", "claim", func(p *parts) { p.own[0][0].Claim.TTL = 0 }},
		{"no mode", "claim", func(p *parts) { p.own[0][0].Claim.Mode = 0 }},
		{"two holders", "two exclusive", func(p *parts) {
			p.own[1][0].Stage = lock.StageHeld
			p.own[1][0].Lease = lock.SavedLease{Seq: p.header.Seq, Token: 1}
			p.header.Seq++
			p.own[1][0].Lease.Seq = p.header.Seq
		}},
		{"token 0", "token", func(p *parts) { p.own[0][0].Lease.Token = 0 }},
		{"token never issued", "token", func(p *parts) { p.own[0][0].Lease.Token = 3 }},
		{"awaits twice", "awaits", func(p *parts) {
			again := p.own[1][0]
			p.header.Seq++
			again.Request, again.Seq, again.Claim.Lease = "again", p.header.Seq, lease.ID{9}
			p.own[1] = append(p.own[1], again)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := queueParts(t)
			test.damage(&p)
			if _, err := p.restore(); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error about %q", err, test.want)
			}
		})
	}
	r, err := lock.NewRestorer(queueParts(t).header)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Request(lock.SavedRequest{}); err == nil {
		t.Error("a request without a client was taken")
	}
}

// TestSnapshotIsFrozen changes everything after the freeze while another goroutine reads it.
func TestSnapshotIsFrozen(t *testing.T) {
	m := started(t, baseConfig())
	for n := range byte(200) {
		apply(m, time.Second, acquire(string(rune('a'+n%20))+"x", string(rune('A'+n)), n+1))
	}
	want := m.Digest()
	s := m.Snapshot()
	got := make(chan [32]byte)
	go func() { got <- s.Digest() }()
	for n := range byte(200) {
		apply(m, 2*time.Second, lock.Renew{Identity: "me", Lease: lease.ID{2: n + 1}}, lock.PutKey{Node: "n", KeyID: string(rune('a' + n))})
	}
	apply(m, time.Hour, lock.Tick{})
	if <-got != want || s.Digest() != want {
		t.Error("the snapshot has changed with the machine")
	}
	if m.Digest() == want {
		t.Error("the machine has not changed, so the test proves nothing")
	}
}
