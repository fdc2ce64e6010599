package api

import (
	"context"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/lockpb"
	"github.com/lychgate/lychgate/coordinator/ticket"
)

// A lock lives through every node: each step is asked of another one.
func TestLifeOfALockThroughEveryNode(t *testing.T) {
	c := newCluster(t, 3)
	a, b, d := c.nodes[0], c.nodes[1], c.nodes[2]
	held := c.acquire(a, &lockpb.AcquireRequest{Resource: "ledger/eu", ClientId: "A", RequestId: "1", Ttl: proto.Int32(20_000)})
	if held.GetTtl() != 20_000 || held.GetRemaining() != 20_000 || held.GetFencingToken() == 0 || held.GetRetried() {
		t.Errorf("acquired %v", held)
	}
	c.checkTicket(held, "A")

	_, err := b.locks.Acquire(c.context(), acquireOf("ledger/eu", "B", "1", 0))
	r := wantRefusal(t, err, lockpb.Reason_REASON_HELD, lockpb.Applied_NO)
	if h := r.detail.GetHolder(); h.GetClientId() != "A" || h.GetFencingToken() != held.GetFencingToken() {
		t.Errorf("the refusal names the holder %v", h)
	}
	_, err = b.locks.Acquire(c.context(), acquireOf("ledger/eu", "A", "2", 0))
	wantRefusal(t, err, lockpb.Reason_ALREADY_HELD, lockpb.Applied_NO)

	renewed, err := d.locks.Renew(c.context(), &lockpb.RenewRequest{LeaseId: held.GetLeaseId()})
	check(t, err)
	if renewed.GetFencingToken() != held.GetFencingToken() || renewed.GetTtl() != 20_000 || renewed.GetTicket() == "" {
		t.Errorf("renewed %v", renewed)
	}
	c.release(b, held)
	_, err = d.locks.Renew(c.context(), &lockpb.RenewRequest{LeaseId: held.GetLeaseId()})
	wantRefusal(t, err, lockpb.Reason_LEASE_ENDED, lockpb.Applied_NO)
	_, err = a.locks.Release(c.context(), &lockpb.ReleaseRequest{LeaseId: held.GetLeaseId()})
	wantRefusal(t, err, lockpb.Reason_LEASE_ENDED, lockpb.Applied_NO)
	_, err = a.locks.Acquire(c.context(), &lockpb.AcquireRequest{Resource: "ledger/eu", ClientId: "A", RequestId: "1", Ttl: proto.Int32(20_000)})
	wantRefusal(t, err, lockpb.Reason_REQUEST_ENDED, lockpb.Applied_NO)

	next := c.acquire(d, acquireOf("ledger/eu", "B", "2", 0))
	if next.GetFencingToken() <= held.GetFencingToken() {
		t.Errorf("token %d after %d", next.GetFencingToken(), held.GetFencingToken())
	}
	broken, err := a.locks.Break(c.context(), &lockpb.BreakRequest{Resource: "ledger/eu"})
	check(t, err)
	if broken.GetFencingToken() <= next.GetFencingToken() || len(broken.GetEnded()) != 1 || broken.GetEnded()[0].GetClientId() != "B" {
		t.Errorf("broken %v", broken)
	}
}

// What belongs to one identity, another can neither keep, nor end, nor take the place of, whatever it knows.
func TestLeasesOfAnotherIdentity(t *testing.T) {
	c := newCluster(t, 1)
	n := c.nodes[0]
	mine, theirs := as(c.context(), "tenant-a"), as(c.context(), "tenant-b")
	held, err := n.locks.Acquire(mine, acquireOf("r", "A", "1", 0))
	check(t, err)
	waiting := c.beginAs(mine, n, acquireOf("r", "B", "1", 20*time.Second))
	c.untilWaiting("r", 1)
	before := c.look(n, "r")

	_, err = n.locks.Renew(theirs, &lockpb.RenewRequest{LeaseId: held.GetLeaseId()})
	wantRefusal(t, err, lockpb.Reason_NOT_OWNER, lockpb.Applied_NO)
	_, err = n.locks.Release(theirs, &lockpb.ReleaseRequest{LeaseId: held.GetLeaseId()})
	wantRefusal(t, err, lockpb.Reason_NOT_OWNER, lockpb.Applied_NO)
	for _, client := range []string{"A", "B"} { // a request has its name under its identity: there is none to be seen
		out, err := n.locks.Cancel(theirs, &lockpb.CancelRequest{ClientId: client, RequestId: "1"})
		if err != nil || out.GetWas() != lockpb.RequestState_UNKNOWN {
			t.Errorf("cancel of the request of client %s: %v, %v", client, out, err)
		}
	}
	_, err = n.locks.Acquire(theirs, acquireOf("r", "A", "2", 0)) // the same client, and somebody else
	if r := wantRefusal(t, err, lockpb.Reason_REASON_HELD, lockpb.Applied_NO); r.detail.GetHolder().GetIdentity() != "tenant-a" {
		t.Errorf("the holder is %v", r.detail.GetHolder())
	}

	after := c.look(n, "r")
	if h := after.GetHolders(); len(h) != 1 || h[0].GetFencingToken() != held.GetFencingToken() ||
		h[0].GetRemaining() > before.GetHolders()[0].GetRemaining() || after.GetWaiting() != 1 {
		t.Errorf("before: %v, after: %v", before, after)
	}
	if _, err := n.locks.Renew(mine, &lockpb.RenewRequest{LeaseId: held.GetLeaseId()}); err != nil {
		t.Errorf("the owner's renewal: %v", err)
	}
	if _, err := n.locks.Release(mine, &lockpb.ReleaseRequest{LeaseId: held.GetLeaseId()}); err != nil {
		t.Errorf("the owner's release: %v", err)
	}
	next, err := waiting.wait(t)
	check(t, err)
	if _, err := n.locks.Release(mine, &lockpb.ReleaseRequest{LeaseId: next.GetLeaseId()}); err != nil {
		t.Errorf("the release of the next: %v", err)
	}
}

// checkTicket verifies a ticket as a proxy does: with the keys that another node publishes.
func (c *cluster) checkTicket(held *lockpb.AcquireResponse, client lease.ClientID) {
	c.t.Helper()
	remote, err := ticket.NewRemote(ticket.RemoteConfig{URLs: []string{c.nodes[0].http.URL, c.nodes[1].http.URL}})
	check(c.t, err)
	defer remote.Close()
	claims, err := remote.Verify(c.context(), held.GetTicket())
	check(c.t, err)
	id, err := lease.ParseID(held.GetLeaseId())
	check(c.t, err)
	want := ticket.Claims{
		Cluster: "lg-test", Resource: lease.Resource(held.GetResource()), Token: lease.Token(held.GetFencingToken()),
		Mode: lease.Exclusive, Lease: id.Hash(), Client: ticket.ClientHash("anonymous", client),
	}
	if claims != want {
		c.t.Errorf("ticket says %+v, want %+v", claims, want)
	}
}

func TestBadInputOverGRPC(t *testing.T) {
	c := newCluster(t, 1)
	locks := c.nodes[0].locks
	for name, test := range map[string]struct {
		call   func(context.Context) error
		reason lockpb.Reason
		field  string
	}{
		"unknown lease": {func(ctx context.Context) error {
			_, err := locks.Renew(ctx, &lockpb.RenewRequest{LeaseId: strings.Repeat("00", 16)})
			return err
		}, lockpb.Reason_LEASE_ENDED, ""},
		"ttl below the policy": {func(ctx context.Context) error {
			_, err := locks.Acquire(ctx, &lockpb.AcquireRequest{Resource: "r", ClientId: "c", RequestId: "1", Ttl: proto.Int32(1)})
			return err
		}, lockpb.Reason_TTL_OUT_OF_RANGE, "ttl"},
		"ttl above the policy": {func(ctx context.Context) error {
			_, err := locks.Acquire(ctx, &lockpb.AcquireRequest{Resource: "r", ClientId: "c", RequestId: "2", Ttl: proto.Int32(1<<31 - 1)})
			return err
		}, lockpb.Reason_TTL_OUT_OF_RANGE, "ttl"},
		"wait above the policy": {func(ctx context.Context) error {
			_, err := locks.Acquire(ctx, acquireOf("r", "c", "3", time.Hour))
			return err
		}, lockpb.Reason_WAIT_TOO_LONG, "wait_timeout"},
		"as_of of the future": {func(ctx context.Context) error {
			_, err := locks.Acquire(ctx, &lockpb.AcquireRequest{Resource: "r", ClientId: "c", RequestId: "5", AsOf: 1 << 62})
			return err
		}, lockpb.Reason_INVALID, "as_of"},
		"no request_id": {func(ctx context.Context) error {
			_, err := locks.Acquire(ctx, acquireOf("r", "c", "", 0))
			return err
		}, lockpb.Reason_INVALID, "request_id"},
	} {
		r := wantRefusal(t, test.call(c.context()), test.reason, lockpb.Applied_NO)
		if r.detail.GetField() != test.field {
			t.Errorf("%s: field %q, want %q", name, r.detail.GetField(), test.field)
		}
	}
	if l := c.look(c.nodes[0], "r"); len(l.GetHolders()) != 0 || l.GetWaiting() != 0 {
		t.Errorf("something was granted: %v", l)
	}
}

func TestRequestOfOtherParameters(t *testing.T) {
	c := newCluster(t, 1)
	c.acquire(c.nodes[0], acquireOf("r/1", "c", "1", 0))
	_, err := c.nodes[0].locks.Acquire(c.context(), acquireOf("r/2", "c", "1", 0))
	wantRefusal(t, err, lockpb.Reason_REQUEST_MISMATCH, lockpb.Applied_NO)
}

// A call that was sent on once is not sent on again: two nodes could otherwise pass it back and forth.
func TestForwardedCallIsNotForwarded(t *testing.T) {
	c := newCluster(t, 3)
	ctx := metadata.AppendToOutgoingContext(c.context(), forwardedKey, "n9")
	_, err := c.followers()[0].locks.Acquire(ctx, acquireOf("r", "c", "1", 0))
	wantRefusal(t, err, lockpb.Reason_NO_LEADER, lockpb.Applied_NO)
	if _, err := c.leader().locks.Acquire(ctx, acquireOf("r", "c", "1", 0)); err != nil {
		t.Errorf("at the leader: %v", err)
	}
}

func TestListHidesLeaseIDsAndPages(t *testing.T) {
	c := newCluster(t, 3)
	n := c.followers()[0]
	var secrets []string
	for _, name := range []string{"b", "a/1", "a/2", "a/3"} {
		secrets = append(secrets, c.acquire(n, acquireOf(name, "c", "r-"+name, 0)).GetLeaseId())
	}
	page, err := n.locks.List(c.context(), &lockpb.ListRequest{Prefix: "a/", Limit: 2})
	check(t, err)
	if len(page.GetLocks()) != 2 || page.GetLocks()[0].GetResource() != "a/1" || page.GetNext() != "a/2" {
		t.Errorf("first page %v", page)
	}
	last, err := n.locks.List(c.context(), &lockpb.ListRequest{Prefix: "a/", Limit: 2, After: page.GetNext()})
	check(t, err)
	if len(last.GetLocks()) != 1 || last.GetLocks()[0].GetResource() != "a/3" || last.GetNext() != "" {
		t.Errorf("last page %v", last)
	}
	for _, secret := range secrets {
		if strings.Contains(page.String()+last.String(), secret) {
			t.Error("a list shows a lease id")
		}
	}
	if h := page.GetLocks()[0].GetHolders()[0]; h.GetLeaseHash() == "" || h.GetClientId() != "c" || h.GetRemaining() == 0 {
		t.Errorf("holder %v", h)
	}
}

// A replica that was cut off answers for what it knows to be held, and never that something is free.
func TestLaggingReplicaCallsNothingFree(t *testing.T) {
	c := newCluster(t, 3)
	lagging := c.followers()[0]
	held := c.acquire(lagging, acquireOf("old", "c", "1", 0))
	c.until("the follower has it", func() bool {
		return len(lagging.server.shards[0].getStale("old").GetLock().GetHolders()) == 1
	})
	c.disconnect(lagging)
	c.acquire(c.leader(), acquireOf("new", "c", "2", 0))
	out, err := lagging.locks.Get(c.context(), &lockpb.GetRequest{Resource: "old", Stale: true})
	check(t, err)
	if got := out.GetLock().GetHolders()[0].GetFencingToken(); got != held.GetFencingToken() {
		t.Errorf("stale answer has token %d, want %d", got, held.GetFencingToken())
	}
	c.until("the follower knows of no leader", func() bool { return lagging.server.Ready() != nil })
	for _, stale := range []bool{false, true} {
		_, err = lagging.locks.Get(c.context(), &lockpb.GetRequest{Resource: "new", Stale: stale})
		wantRefusal(t, err, lockpb.Reason_NO_LEADER, lockpb.Applied_NO)
	}
}

// The smallest live token is known to every replica, grows when its lease ends, and is the next one when none is left.
func TestStatusTellsTheSmallestLiveToken(t *testing.T) {
	c := newCluster(t, 3)
	first := c.acquire(c.leader(), acquireOf("a", "c", "1", 0))
	second := c.acquire(c.leader(), acquireOf("b", "c", "2", 0))
	want := func(token uint64) {
		t.Helper()
		for _, n := range c.nodes {
			c.until("every replica knows", func() bool {
				status, err := n.cluster.Status(c.context(), &lockpb.StatusRequest{SmallestLive: true})
				check(t, err)
				return status.GetGroups()[0].GetSmallestLive() == token
			})
		}
	}
	want(first.GetFencingToken())
	c.release(c.leader(), first)
	want(second.GetFencingToken())
	c.release(c.leader(), second)
	want(second.GetFencingToken() + 1)
	third := c.acquire(c.leader(), acquireOf("a", "c", "3", 0))
	if third.GetFencingToken() != second.GetFencingToken()+1 {
		t.Errorf("next token: got %d, want what was promised", third.GetFencingToken())
	}
	cheap, err := c.leader().cluster.Status(c.context(), &lockpb.StatusRequest{})
	check(t, err)
	if got := cheap.GetGroups()[0].GetSmallestLive(); got != 0 {
		t.Errorf("got %d, and nobody had asked for it", got)
	}
}

func TestStatusAndKeys(t *testing.T) {
	c := newCluster(t, 3)
	c.acquire(c.leader(), acquireOf("r", "c", "1", 0))
	digests := map[uint64]map[string]bool{}
	for _, n := range c.nodes {
		cheap, err := n.cluster.Status(c.context(), &lockpb.StatusRequest{})
		check(t, err)
		if cheap.GetDigest() != "" {
			t.Error("the digest was made, and nobody had asked for it")
		}
		status, err := n.cluster.Status(c.context(), &lockpb.StatusRequest{Digest: true})
		check(t, err)
		if status.GetNode() != n.id || status.GetLeader() != c.leader().id || status.GetCluster() != "lg-test" || len(status.GetNodes()) != 3 {
			t.Errorf("status of %s: %v", n.id, status)
		}
		at := status.GetAppliedIndex()
		if digests[at] == nil {
			digests[at] = map[string]bool{}
		}
		digests[at][status.GetDigest()] = true
		if len(status.GetDigest()) != 64 {
			t.Errorf("digest %q", status.GetDigest())
		}
		if len(digests[at]) > 1 {
			t.Errorf("two digests at index %d: %v", at, digests[at])
		}
		keys, err := n.cluster.Keys(c.context(), &lockpb.KeysRequest{})
		check(t, err)
		if len(keys.GetKeys()) == 0 || !strings.Contains(keys.GetJwks(), keys.GetKeys()[0].GetKeyId()) {
			t.Errorf("keys of %s: %v", n.id, keys)
		}
	}
}

func TestCallsAreBounded(t *testing.T) {
	c := (&cluster{t: t, calls: 10}).begun(1) // 9 for what takes, 10 for what keeps
	n := c.nodes[0]
	held := c.acquire(n, acquireOf("r", "c", "1", 0))
	for i := range 9 {
		n.server.calls.Add(1)
		_ = i
	}
	_, err := n.locks.Acquire(c.context(), acquireOf("r", "d", "1", 0))
	r := wantRefusal(t, err, lockpb.Reason_OVERLOADED, lockpb.Applied_NO)
	if r.detail.GetRetryAfter() == 0 {
		t.Error("no retry delay")
	}
	if _, err := n.locks.Renew(c.context(), &lockpb.RenewRequest{LeaseId: held.GetLeaseId()}); err != nil {
		t.Errorf("a renewal was refused before its turn: %v", err)
	}
	n.server.calls.Add(1)
	_, err = n.locks.Renew(c.context(), &lockpb.RenewRequest{LeaseId: held.GetLeaseId()})
	wantRefusal(t, err, lockpb.Reason_OVERLOADED, lockpb.Applied_NO)
}

func isAcquire(cmd lock.Command) bool { _, ok := cmd.(lock.Acquire); return ok }
