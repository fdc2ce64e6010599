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
	delays  []lock.SavedDelay
	clients []lock.SavedClient
	own     [][]lock.SavedRequest
}

// queueParts has client a with a lease, client b behind it in the queue, and client c with a request that is over;
// before them a key that retires, a member, policies and a resource that is closed.
func queueParts(t *testing.T) parts {
	t.Helper()
	m := started(t, baseConfig())
	apply(m, 0, lock.SetVersion{Version: 2}, everyPolicy()[0], everyPolicy()[1])
	apply(m, time.Second, acquire("a", "r", 1), waiting(acquire("b", "r", 2), 1), acquire("c", "s", 3),
		acquire("d", "closed", 9))
	apply(m, 8*time.Second, lock.Release{Identity: "me", Lease: lease.ID{2: 3}}, lock.PutKey{Node: "n1", KeyID: "k"},
		lock.PutMember{Member: lock.Member{ID: "n4", Peer: "h:1", GRPC: "h:2", HTTP: "h:3"}},
		lock.RetireKey{Node: "n1", KeyID: "k", After: lock.LeaseTime(time.Hour)})
	s := m.Snapshot()
	p := parts{header: s.Header(), delays: slices.Collect(s.Delays())}
	for client, requests := range s.Clients() {
		p.clients = append(p.clients, client)
		p.own = append(p.own, slices.Collect(requests))
	}
	return p
}

// everyPolicy has each field of a policy, of a prefix that covers "closed", and of the tenant "".
func everyPolicy() [2]lock.PutPolicy {
	return [2]lock.PutPolicy{
		{Target: lock.Target{Kind: lock.TargetPrefix, Name: "clo"}, Policy: lock.Policy{
			DefaultTTL: new(6 * time.Second), MinTTL: new(5 * time.Second), MaxTTL: new(time.Minute), MaxHold: new(time.Hour),
			LockDelay: new(50 * time.Minute), Exclusive: new(true), Shared: new(false), MaxWaiters: new(5),
		}},
		{Target: lock.Target{Kind: lock.TargetTenant}, Policy: lock.Policy{
			MaxWaiters: new(7), MaxLeases: new(int64(100)), MaxRequests: new(int64(1000)), AcquireRate: new(int64(3)), AcquireBurst: new(int64(100)),
		}},
	}
}

func (p parts) restore() (*lock.Machine, error) {
	r, err := lock.NewRestorer(p.header)
	if err != nil {
		return nil, err
	}
	for _, d := range p.delays {
		if err := r.Delay(d); err != nil {
			return nil, err
		}
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
	if info := m.Info(); info.Leases != 1 || info.Waiters != 1 || info.Requests != 4 || info.Clients != 4 {
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
			p.header.Keys = []lock.Key{{Node: "b"}, {Node: "a"}}
		}},
		{"version", "version", func(p *parts) { p.header.Version = lock.MaxVersion + 1 }},
		{"members", "members", func(p *parts) { p.header.Members = []lock.Member{{ID: "b"}, {ID: "a"}} }},
		{"policies out of order", "order", func(p *parts) { slices.Reverse(p.header.Policies) }},
		{"policy twice", "order", func(p *parts) { p.header.Policies[1] = p.header.Policies[0] }},
		{"policy of no kind", "policy", func(p *parts) { p.header.Policies[0].Target.Kind = 9 }},
		{"policy out of bounds", "policy", func(p *parts) { p.header.Policies[0].Policy.MinTTL = new(time.Second) }},
		{"policies that do not fit", "fit", func(p *parts) { p.header.Policies[0].Policy.MinTTL = new(2 * time.Minute) }},
		{"bucket too full", "bucket", func(p *parts) { p.header.Policies[1].Level = 1e12 }},
		{"bucket of none", "bucket", func(p *parts) { p.header.Policies[0].Level = 1 }},
		{"bucket ahead", "bucket", func(p *parts) { p.header.Policies[1].At = p.header.Now + 1 }},
		{"delay twice", "delay", func(p *parts) {
			again := p.delays[0]
			p.header.Seq++
			again.Seq = p.header.Seq
			p.delays = append(p.delays, again)
		}},
		{"delay's sequence", "sequence", func(p *parts) { p.delays[0].Seq = p.clients[0].Seq }},
		{"delay's mode", "delay", func(p *parts) { p.delays[0].Mode = 0 }},
		{"shared in version 1", "claim", func(p *parts) { p.header.Version, p.own[0][0].Claim.Mode = 1, lease.Shared }},
		{"shared of two tokens", "two tokens", func(p *parts) {
			p.own[0][0].Claim.Mode, p.own[1][0].Claim.Mode = lease.Shared, lease.Shared
			p.own[1][0].Stage = lock.StageHeld
			p.header.Seq++
			p.own[1][0].Lease = lock.SavedLease{Seq: p.header.Seq, Token: 2}
		}},
		{"holds twice", "holds", func(p *parts) {
			again := p.own[0][0]
			p.header.Seq += 2
			again.Request, again.Seq, again.Claim.Lease = "again", p.header.Seq-1, lease.ID{9}
			again.Claim.Mode, again.Lease.Seq = lease.Shared, p.header.Seq
			p.own[0][0].Claim.Mode = lease.Shared
			p.own[0] = append(p.own[0], again)
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
		{"two holders", "exclusive holder", func(p *parts) {
			p.own[1][0].Stage = lock.StageHeld
			p.own[1][0].Lease = lock.SavedLease{Seq: p.header.Seq, Token: 1}
			p.header.Seq++
			p.own[1][0].Lease.Seq = p.header.Seq
		}},
		{"token 0", "token", func(p *parts) { p.own[0][0].Lease.Token = 0 }},
		{"token never issued", "token", func(p *parts) { p.own[0][0].Lease.Token = 4 }},
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
