package api

import (
	"fmt"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// Many leases in one command; what is refused is refused of one lease.
func TestHeartbeatRenewsEachLease(t *testing.T) {
	c := newCluster(t, 3)
	for _, n := range []*node{c.leader(), c.followers()[0]} {
		var ids []string
		for i := range 100 {
			ids = append(ids, c.acquire(n, acquireOf(fmt.Sprintf("%s/%d", n.id, i), "A", fmt.Sprintf("%s-%d", n.id, i), 0)).GetLeaseId())
		}
		c.release(n, &lockpb.AcquireResponse{LeaseId: ids[7]})
		foreign, err := n.locks.Acquire(as(c.context(), "somebody"), acquireOf(n.id+"/foreign", "A", n.id, 0))
		check(t, err)
		ids[8], ids[9], ids[10] = foreign.GetLeaseId(), "nonsense", "ffff"+ids[10][4:]
		out, err := n.locks.Heartbeat(c.context(), &lockpb.HeartbeatRequest{LeaseIds: ids})
		check(t, err)
		want := map[int]lockpb.Reason{
			7: lockpb.Reason_LEASE_ENDED, 8: lockpb.Reason_NOT_OWNER, 9: lockpb.Reason_INVALID, 10: lockpb.Reason_LEASE_ENDED,
		}
		for i, b := range out.GetBeats() {
			if b.GetLeaseId() != ids[i] || b.GetRefusal().GetReason() != want[i] {
				t.Errorf("%s: lease %d: got %v, want %v", n.id, i, b, want[i])
			}
			if want[i] == 0 && (b.GetFencingToken() == 0 || b.GetTicket() != "" || duration(b.GetRemaining()) < testLockConfig().DefaultTTL-time.Second) {
				t.Errorf("%s: lease %d: got %v", n.id, i, b)
			}
		}
		if len(out.GetBeats()) != len(ids) || out.GetAsOf() == 0 {
			t.Errorf("%s: %d beats as of %d", n.id, len(out.GetBeats()), out.GetAsOf())
		}
	}
}

// A ticket is signed if it is asked for, or if the one that the caller has is of a key that is gone.
func TestHeartbeatSignsOnDemand(t *testing.T) {
	c := newCluster(t, 3)
	n := c.followers()[0]
	held := c.acquire(n, acquireOf("r", "A", "1", 0))
	good := c.leader().server.signer.Load().Key().ID
	for name, tt := range map[string]struct {
		ask  *lockpb.HeartbeatRequest
		want bool
	}{
		"not asked for": {&lockpb.HeartbeatRequest{KeyId: good}, false},
		"has none":      {&lockpb.HeartbeatRequest{}, false},
		"asked for":     {&lockpb.HeartbeatRequest{Tickets: true, KeyId: good}, true},
		"key is gone":   {&lockpb.HeartbeatRequest{KeyId: "gone"}, true},
	} {
		tt.ask.LeaseIds = []string{held.GetLeaseId()}
		out, err := n.locks.Heartbeat(c.context(), tt.ask)
		check(t, err)
		ticket := out.GetBeats()[0].GetTicket()
		if (ticket != "") != tt.want {
			t.Errorf("%s: got %v", name, out)
		}
		if ticket != "" {
			held.Ticket = ticket
			c.checkTicket(held, "A")
		}
	}
}

func TestHeartbeatIsBounded(t *testing.T) {
	c := newCluster(t, 1)
	n := c.leader()
	for _, ids := range [][]string{nil, make([]string, maxHeartbeat+1)} {
		_, err := n.locks.Heartbeat(c.context(), &lockpb.HeartbeatRequest{LeaseIds: ids})
		if r := wantRefusal(t, err, lockpb.Reason_INVALID, lockpb.Applied_NO); r.detail.GetField() != "lease_ids" {
			t.Errorf("%d leases: %v", len(ids), r.detail)
		}
	}
}

// Without a quorum the whole heartbeat is refused, and nothing is lost.
func TestHeartbeatWithoutAQuorum(t *testing.T) {
	c := newCluster(t, 3)
	n := c.leader()
	held := c.acquire(n, acquireOf("r", "A", "1", 0))
	for _, other := range c.nodes {
		c.disconnect(other)
	}
	_, err := n.locks.Heartbeat(c.context(), &lockpb.HeartbeatRequest{LeaseIds: []string{held.GetLeaseId()}})
	if r := received(err, "?"); r.reason() != lockpb.Reason_NO_LEADER && r.reason() != lockpb.Reason_OUTCOME_UNKNOWN {
		t.Errorf("got %v", err)
	}
	c.connect(c.nodes...)
	out, err := c.leader().locks.Heartbeat(c.context(), &lockpb.HeartbeatRequest{LeaseIds: []string{held.GetLeaseId()}})
	if err != nil || out.GetBeats()[0].GetRefusal() != nil {
		t.Errorf("with a quorum again: %v, %v", out, err)
	}
}
