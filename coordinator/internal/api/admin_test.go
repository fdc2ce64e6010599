package api

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// halves is a server of one node with two groups.
func halves(t *testing.T) (s *Server, first, second *faulty) {
	t.Helper()
	a, b := newCluster(t, 1), newCluster(t, 1)
	config := a.nodes[0].server.config
	config.Metrics = NewMetrics(prometheus.NewRegistry())
	s, err := New(config, a.nodes[0].group, b.nodes[0].group)
	check(t, err)
	s.config.Patience = 50 * time.Millisecond
	return s, a.nodes[0].group, b.nodes[0].group
}

// A change that reaches only some groups says so, shows in the list, and is whole when it is made again.
func TestAPolicyThatReachesOneGroupOfTwo(t *testing.T) {
	s, _, second := halves(t)
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	defer cancel()
	down := func(lock.Command, group.Outcome, error) error { return &group.Error{Kind: group.NotLeader} }
	put := func() error {
		_, err := s.PutPolicy(ctx, &lockpb.PutPolicyRequest{Policy: ofTenant("acme", &lockpb.Policy{})})
		return err
	}
	check(t, put())
	remove := func() (*lockpb.DeletePolicyResponse, error) {
		return s.DeletePolicy(ctx, &lockpb.DeletePolicyRequest{Of: &lockpb.DeletePolicyRequest_Tenant{Tenant: "acme"}})
	}
	second.spoil.Store(&down)
	_, err := remove()
	r := wantRefusal(t, err, lockpb.Reason_NO_LEADER, lockpb.Applied_MAYBE)
	if !strings.Contains(r.message, "in group 0 and not in group 1") || !strings.Contains(r.detail.GetHint(), "once more") {
		t.Errorf("message %q, hint %q", r.message, r.detail.GetHint())
	}
	second.spoil.Store(nil)
	behind := func() []uint32 {
		t.Helper()
		out, err := s.Policies(ctx, &lockpb.PoliciesRequest{})
		check(t, err)
		return out.GetBehind()
	}
	// A spoiled answer is one that was lost: group 1 has done it. Put it back there alone.
	if _, err := second.Propose(ctx, lock.PutPolicy{Target: lock.Target{Kind: lock.TargetTenant, Name: "acme"}}); err != nil {
		t.Fatal(err)
	}
	if got := behind(); len(got) != 1 || got[0] != 1 {
		t.Errorf("groups %v are behind, want group 1", got)
	}
	out, err := remove()
	check(t, err)
	if !out.GetExisted() || len(behind()) != 0 {
		t.Errorf("after another deletion: %v, behind %v", out, behind())
	}
}

func TestOrdersNeedTheirClusterVersion(t *testing.T) {
	c := &cluster{t: t, version: 1}
	c.begun(1)
	n := c.nodes[0]
	_, err := n.cluster.PutPolicy(c.context(), &lockpb.PutPolicyRequest{Policy: ofTenant("acme", &lockpb.Policy{})})
	wantRefusal(t, err, lockpb.Reason_VERSION_TOO_LOW, lockpb.Applied_NO)
	_, err = n.cluster.DeletePolicy(c.context(), &lockpb.DeletePolicyRequest{Of: &lockpb.DeletePolicyRequest_Tenant{Tenant: "acme"}})
	wantRefusal(t, err, lockpb.Reason_VERSION_TOO_LOW, lockpb.Applied_NO)
	n.server.config.Keys = &keyHolder{n: n}
	_, err = n.cluster.Rotate(c.context(), &lockpb.RotateRequest{})
	wantRefusal(t, err, lockpb.Reason_VERSION_TOO_LOW, lockpb.Applied_NO)
	c.acquire(n, acquireOf("ledger/eu", "A", "1", 0)) // and all else goes on
}
