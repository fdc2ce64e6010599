package api

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func ofPrefix(prefix string, p *lockpb.Policy) *lockpb.Policy {
	p.Of = &lockpb.Policy_Prefix{Prefix: prefix}
	return p
}

func ofTenant(tenant string, p *lockpb.Policy) *lockpb.Policy {
	p.Of = &lockpb.Policy_Tenant{Tenant: tenant}
	return p
}

func (c *cluster) put(n *node, p *lockpb.Policy) {
	c.t.Helper()
	if _, err := n.cluster.PutPolicy(c.context(), &lockpb.PutPolicyRequest{Policy: p}); err != nil {
		c.t.Fatalf("put policy at %s: %v", n.id, err)
	}
}

func (c *cluster) policies(n *node) []*lockpb.Policy {
	c.t.Helper()
	out, err := n.cluster.Policies(c.context(), &lockpb.PoliciesRequest{})
	check(c.t, err)
	if len(out.GetBehind()) != 0 {
		c.t.Errorf("groups %v are behind", out.GetBehind())
	}
	return out.GetPolicies()
}

func TestPoliciesThroughEveryNode(t *testing.T) {
	c := newCluster(t, 3)
	want := []*lockpb.Policy{
		ofPrefix("", &lockpb.Policy{MaxWaiters: proto.Int32(50)}),
		ofPrefix("ledger/", &lockpb.Policy{
			DefaultTtl: proto.Int64(5000), MinTtl: proto.Int64(3000), MaxTtl: proto.Int64(20_000), MaxHold: proto.Int64(60_000), LockDelay: proto.Int64(1500),
			MaxWaiters: proto.Int32(7), Exclusive: proto.Bool(true), Shared: proto.Bool(false),
		}),
		ofTenant("", &lockpb.Policy{MaxLeases: proto.Int64(10)}),
		ofTenant("acme", &lockpb.Policy{MaxLeases: proto.Int64(0), AcquireRate: proto.Int64(50), AcquireBurst: proto.Int64(100)}),
	}
	for i, p := range want {
		c.put(c.nodes[i%3], p)
	}
	for _, n := range c.nodes {
		got := c.policies(n)
		if len(got) != len(want) {
			t.Fatalf("%s: %d policies, want %d", n.id, len(got), len(want))
		}
		for i := range got {
			if !proto.Equal(got[i], want[i]) {
				t.Errorf("%s: got %v, want %v", n.id, got[i], want[i])
			}
		}
	}

	want[1] = ofPrefix("ledger/", &lockpb.Policy{MaxTtl: proto.Int64(10_000)})
	c.put(c.nodes[2], want[1]) // as a whole
	if got := c.policies(c.nodes[0])[1]; !proto.Equal(got, want[1]) {
		t.Errorf("got %v, want %v", got, want[1])
	}
	for i, existed := range []bool{true, false} {
		out, err := c.nodes[i].cluster.DeletePolicy(c.context(), &lockpb.DeletePolicyRequest{Of: &lockpb.DeletePolicyRequest_Tenant{Tenant: "acme"}})
		check(t, err)
		if out.GetExisted() != existed {
			t.Errorf("delete %d: existed %v", i+1, out.GetExisted())
		}
	}
	if got := c.policies(c.nodes[0]); len(got) != len(want)-1 {
		t.Errorf("%d policies are left, want %d", len(got), len(want)-1)
	}
}

func TestPolicyOfAPrefixIsKeptTo(t *testing.T) {
	c := newCluster(t, 3)
	n := c.followers()[0]
	c.put(n, ofPrefix("ledger/", &lockpb.Policy{
		MinTtl: proto.Int64(3000), MaxTtl: proto.Int64(20_000), DefaultTtl: proto.Int64(4000), MaxHold: proto.Int64(4000),
		LockDelay: proto.Int64(60_000), Shared: proto.Bool(false),
	}))
	refused := func(in *lockpb.AcquireRequest, reason lockpb.Reason) *lockpb.Refusal {
		t.Helper()
		_, err := n.locks.Acquire(c.context(), in)
		return wantRefusal(t, err, reason, lockpb.Applied_NO).detail
	}
	for _, ttl := range []int32{2999, 20_001} {
		in := acquireOf("ledger/eu", "A", "1", 0)
		in.Ttl = proto.Int32(ttl)
		if r := refused(in, lockpb.Reason_TTL_OUT_OF_RANGE); r.GetField() != "ttl" {
			t.Errorf("ttl %d: field %q", ttl, r.GetField())
		}
	}
	shared := acquireOf("ledger/eu", "A", "2", 0)
	shared.Mode = lockpb.Mode_SHARED
	if r := refused(shared, lockpb.Reason_MODE_NOT_ALLOWED); r.GetField() != "mode" {
		t.Errorf("field %q", r.GetField())
	}

	held := c.acquire(n, acquireOf("ledger/eu", "A", "3", 0))
	if held.GetTtl() != 4000 {
		t.Errorf("ttl %d, want the policy's default", held.GetTtl())
	}
	c.until("the lease is not renewed any more", func() bool {
		_, err := n.locks.Renew(c.context(), &lockpb.RenewRequest{LeaseId: held.GetLeaseId()})
		if err == nil {
			return false
		}
		wantRefusal(t, err, lockpb.Reason_HOLD_TOO_LONG, lockpb.Applied_NO)
		return true
	})
	c.until("the lease has expired", func() bool { return len(c.look(n, "ledger/eu").GetHolders()) == 0 })
	r := refused(acquireOf("ledger/eu", "B", "1", 0), lockpb.Reason_LOCK_DELAYED)
	if r.GetRetryAfter() <= 0 || r.GetRetryAfter() > 60_000 {
		t.Errorf("retry after %d ms", r.GetRetryAfter())
	}
	if closed := c.look(n, "ledger/eu").GetClosedFor(); closed <= 0 || closed > 60_000 {
		t.Errorf("closed for %d ms", closed)
	}
	c.acquire(n, acquireOf("other/eu", "B", "2", 0)) // which the policy is not about
	if other := c.look(n, "other/eu"); other.GetHolding() != 1 || other.GetClosedFor() != 0 {
		t.Errorf("%d holders, closed for %d ms", other.GetHolding(), other.GetClosedFor())
	}
}

func TestPolicyOfATenantIsKeptTo(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	c.put(n, ofTenant("acme", &lockpb.Policy{MaxLeases: proto.Int64(2)}))
	acme := as(c.context(), "acme:worker")
	for _, client := range []string{"A", "B"} {
		_, err := n.locks.Acquire(acme, acquireOf("ledger/"+client, client, "1", 0))
		check(t, err)
	}
	_, err := n.locks.Acquire(acme, acquireOf("ledger/C", "C", "1", 0))
	wantRefusal(t, err, lockpb.Reason_TOO_MANY_LEASES, lockpb.Applied_NO)
	_, err = n.locks.Acquire(as(c.context(), "other:worker"), acquireOf("ledger/C", "C", "1", 0))
	check(t, err)

	c.put(n, ofTenant("forgetful", &lockpb.Policy{MaxRequests: proto.Int64(2)}))
	forgetful := as(c.context(), "forgetful:worker")
	for _, client := range []string{"A", "B"} { // ended leases are remembered, too
		out, err := n.locks.Acquire(forgetful, acquireOf("f", client, "1", 0))
		check(t, err)
		_, err = n.locks.Release(forgetful, &lockpb.ReleaseRequest{LeaseId: out.GetLeaseId()})
		check(t, err)
	}
	_, err = n.locks.Acquire(forgetful, acquireOf("f", "C", "1", 0))
	if r := wantRefusal(t, err, lockpb.Reason_TOO_MANY_REQUESTS, lockpb.Applied_NO); !strings.Contains(r.message, "2 requests of this tenant") {
		t.Errorf("refused with %q", r.message)
	}
	_, err = n.locks.Cancel(forgetful, &lockpb.CancelRequest{Resource: "f", ClientId: "C", RequestId: "2"})
	wantRefusal(t, err, lockpb.Reason_TOO_MANY_REQUESTS, lockpb.Applied_NO)

	c.put(n, ofTenant("burst", &lockpb.Policy{AcquireRate: proto.Int64(1), AcquireBurst: proto.Int64(2)}))
	burst := as(c.context(), "burst:worker")
	for _, request := range []string{"1", "2"} {
		_, err := n.locks.Acquire(burst, acquireOf("b/"+request, "D", request, 0))
		check(t, err)
	}
	_, err = n.locks.Acquire(burst, acquireOf("b/3", "D", "3", 0))
	r := wantRefusal(t, err, lockpb.Reason_RATE_LIMITED, lockpb.Applied_NO)
	if after := r.detail.GetRetryAfter(); after <= 0 || after > 1000 {
		t.Errorf("retry after %d ms", after)
	}
	c.until("the tenant may acquire again", func() bool {
		_, err := n.locks.Acquire(burst, acquireOf("b/3", "D", "3", 0))
		return err == nil
	})
}

// What the command line does goes over HTTP, too, and the refusals say the same.
func TestPoliciesOverHTTP(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	post := func(path, body string, code int) answer {
		t.Helper()
		got := c.do(n, http.MethodPost, path, body)
		if got.code != code {
			t.Errorf("%s %s: %d %s", path, body, got.code, got.text)
		}
		return got
	}
	post("/cluster/policy", `{"policy":{"tenant":"","acquire_rate":1,"acquire_burst":"1"}}`, http.StatusOK)
	c.acquire(n, acquireOf("x", "A", "1", 0))
	got := post("/lock/acquire", `{"resource":"y","client_id":"A","request_id":"2"}`, http.StatusTooManyRequests)
	if after, _ := got.body["retry_after"].(float64); got.body["reason"] != "RATE_LIMITED" || after <= 0 {
		t.Errorf("got %s", got.text)
	}
	if got := c.do(n, http.MethodGet, "/cluster/policies", ""); !strings.Contains(got.text, `"acquireRate":"1"`) {
		t.Errorf("policies: %s", got.text)
	}
	got = post("/cluster/policy", `{"policy":{"prefix":"a/","max_tll":5000}}`, http.StatusBadRequest)
	if got.body["field"] != "max_tll" || !strings.Contains(got.text, "max_ttl") {
		t.Errorf("a field that is not there: %s", got.text)
	}
	post("/cluster/policy", `{"policy":"a/"}`, http.StatusBadRequest)
	post("/cluster/policy/delete", `{"tenant":""}`, http.StatusOK)
	post("/lock/acquire", `{"resource":"y","client_id":"A","request_id":"3"}`, http.StatusOK)
}

func TestADeadlockIsNamed(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	c.acquire(n, acquireOf("a", "alice", "1", 0))
	c.acquire(n, acquireOf("b", "bob", "1", 0))
	waiting := c.begin(n, acquireOf("b", "alice", "2", 30*time.Second))
	defer waiting.quit()
	c.untilWaiting("b", 1)
	_, err := n.locks.Acquire(c.context(), acquireOf("a", "bob", "2", 30*time.Second))
	r := wantRefusal(t, err, lockpb.Reason_DEADLOCK, lockpb.Applied_NO)
	if got := strings.Join(r.detail.GetCycle(), " "); got != "bob alice" {
		t.Errorf("the cycle is %q", got)
	}
	if !strings.Contains(r.message, "bob waits for alice waits for bob") {
		t.Errorf("message %q", r.message)
	}
}

func TestBadPolicies(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	number, small := proto.Int64, proto.Int32
	for name, bad := range map[string]struct {
		policy *lockpb.Policy
		field  string
		says   string
	}{
		"of nothing":                      {&lockpb.Policy{}, "prefix", "of a prefix or of a tenant"},
		"a prefix that no name has":       {ofPrefix("a//b", &lockpb.Policy{}), "prefix", "normalised"},
		"a tenant with a colon":           {ofTenant("a:b", &lockpb.Policy{}), "tenant", "before its first"},
		"max_leases of a prefix":          {ofPrefix("a/", &lockpb.Policy{MaxLeases: number(1)}), "max_leases", "of a tenant"},
		"max_ttl of a tenant":             {ofTenant("a", &lockpb.Policy{MaxTtl: number(5000)}), "max_ttl", "of a prefix"},
		"shared of a tenant":              {ofTenant("a", &lockpb.Policy{Shared: proto.Bool(true)}), "shared", "of a prefix"},
		"a negative hold":                 {ofPrefix("a/", &lockpb.Policy{MaxHold: number(-1)}), "max_hold", "-1 ms"},
		"a TTL of 0":                      {ofPrefix("a/", &lockpb.Policy{MaxTtl: number(0)}), "max_ttl", "0 ms"},
		"TTL above the cluster's":         {ofPrefix("a/", &lockpb.Policy{MaxTtl: number(61_000)}), "max_ttl", "above the cluster's longest TTL, 60000 ms"},
		"TTL below the cluster's":         {ofPrefix("a/", &lockpb.Policy{MinTtl: number(1)}), "min_ttl", "below the cluster's shortest TTL, 2000 ms"},
		"lock-delay above the longest":    {ofPrefix("a/", &lockpb.Policy{LockDelay: number(61_000)}), "lock_delay", "above the cluster's longest TTL"},
		"shortest above longest":          {ofPrefix("a/", &lockpb.Policy{MinTtl: number(9000), MaxTtl: number(8000)}), "min_ttl", "above max_ttl, 8000 ms"},
		"default above longest":           {ofPrefix("a/", &lockpb.Policy{DefaultTtl: number(9000), MaxTtl: number(8000)}), "default_ttl", "above max_ttl, 8000 ms"},
		"default below shortest":          {ofPrefix("a/", &lockpb.Policy{DefaultTtl: number(3000), MinTtl: number(4000)}), "default_ttl", "below min_ttl, 4000 ms"},
		"hold below shortest":             {ofPrefix("a/", &lockpb.Policy{MaxHold: number(3000), MinTtl: number(4000)}), "max_hold", "below min_ttl, 4000 ms"},
		"no mode":                         {ofPrefix("a/", &lockpb.Policy{Exclusive: proto.Bool(false), Shared: proto.Bool(false)}), "exclusive", "nothing could be acquired"},
		"max_requests of a prefix":        {ofPrefix("a/", &lockpb.Policy{MaxRequests: number(1)}), "max_requests", "of a tenant"},
		"max_requests of nothing":         {ofTenant("a", &lockpb.Policy{MaxRequests: number(0)}), "max_requests", "between 1 and"},
		"a burst without a rate":          {ofTenant("a", &lockpb.Policy{AcquireBurst: number(5)}), "acquire_burst", "without acquire_rate"},
		"a rate of 0":                     {ofTenant("a", &lockpb.Policy{AcquireRate: number(0)}), "acquire_rate", "0 is not between"},
		"negative waiters":                {ofPrefix("a/", &lockpb.Policy{MaxWaiters: small(-1)}), "max_waiters", "-1 is not between"},
		"does not fit what it inherits":   {ofPrefix("narrow/x/", &lockpb.Policy{MinTtl: number(20_000)}), "policy", "inherit"},
		"does not fit what inherits it":   {ofPrefix("wide/", &lockpb.Policy{MaxTtl: number(5000)}), "policy", "inherit"},
		"waiters beyond what is replayed": {ofPrefix("a/", &lockpb.Policy{MaxWaiters: small(100_001)}), "max_waiters", "between 0 and 100000"},
	} {
		c.put(n, ofPrefix("narrow/", &lockpb.Policy{MaxTtl: number(10_000)}))
		c.put(n, ofPrefix("wide/x/", &lockpb.Policy{MinTtl: number(8000)}))
		_, err := n.cluster.PutPolicy(c.context(), &lockpb.PutPolicyRequest{Policy: bad.policy})
		r := wantRefusal(t, err, lockpb.Reason_INVALID, lockpb.Applied_NO)
		if r.detail.GetField() != bad.field || !strings.Contains(r.message, bad.says) {
			t.Errorf("%s: field %q, %q; want field %q, %q", name, r.detail.GetField(), r.message, bad.field, bad.says)
		}
	}
	if got := c.policies(n); len(got) != 2 {
		t.Errorf("%d policies are left, want the 2 good ones", len(got))
	}
	_, err := n.cluster.DeletePolicy(c.context(), &lockpb.DeletePolicyRequest{})
	wantRefusal(t, err, lockpb.Reason_INVALID, lockpb.Applied_NO)
}
