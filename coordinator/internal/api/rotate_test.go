package api

import (
	"context"
	"crypto/ed25519"
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/connectivity"

	"github.com/lychgate/lychgate/coordinator/internal/group"
	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lockpb"
	"github.com/lychgate/lychgate/coordinator/ticket"
)

// keyHolder keeps a node's key in memory, and counts what it was asked for.
type keyHolder struct {
	n *node

	mu       sync.Mutex
	next     *ticket.Signer
	adopted  []*ticket.Signer
	prepare  error
	adoption error
}

func (k *keyHolder) Prepare() (*ticket.Signer, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.prepare != nil {
		return nil, k.prepare
	}
	if k.next == nil {
		_, private, err := ed25519.GenerateKey(nil)
		if err != nil {
			return nil, err
		}
		if k.next, err = ticket.NewSigner(private); err != nil {
			return nil, err
		}
	}
	return k.next, nil
}

func (k *keyHolder) Adopt(s *ticket.Signer) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.adoption != nil {
		return k.adoption
	}
	k.next, k.adopted = nil, append(k.adopted, s)
	k.n.group.SetKey(lock.PutKey{Node: k.n.id, KeyID: s.Key().ID, Public: s.Key().Public})
	return nil
}

func (k *keyHolder) fail(prepare, adoption error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.prepare, k.adoption = prepare, adoption
}

// rotating is a cluster whose nodes have keys that can be rotated.
func rotating(t *testing.T, nodes int) (*cluster, []*keyHolder) {
	t.Helper()
	c := newCluster(t, nodes)
	var holders []*keyHolder
	for _, n := range c.nodes {
		k := &keyHolder{n: n}
		n.server.config.Keys = k
		holders = append(holders, k)
	}
	return c, holders
}

func (c *cluster) rotate(n *node, overlap time.Duration) *lockpb.RotateResponse {
	c.t.Helper()
	out, err := n.cluster.Rotate(c.context(), &lockpb.RotateRequest{Overlap: overlap.Milliseconds()})
	if err != nil {
		c.t.Fatalf("rotate at %s: %v", n.id, err)
	}
	return out
}

// verifier is a proxy's, with the keys that a node publishes. It keeps up within a tenth of a second.
func (c *cluster) verifier(nodes ...*node) *ticket.Remote {
	c.t.Helper()
	var urls []string
	for _, n := range nodes {
		urls = append(urls, n.http.URL)
	}
	r, err := ticket.NewRemote(ticket.RemoteConfig{URLs: urls, MinInterval: 10 * time.Millisecond, MaxAge: 100 * time.Millisecond})
	check(c.t, err)
	c.t.Cleanup(r.Close)
	return r
}

func (c *cluster) renew(n *node, lease string) *lockpb.RenewResponse {
	c.t.Helper()
	out, err := n.locks.Renew(c.context(), &lockpb.RenewRequest{LeaseId: lease})
	check(c.t, err)
	return out
}

func TestTicketsVerifyThroughARotation(t *testing.T) {
	c, _ := rotating(t, 3)
	proxy := c.verifier(c.nodes...)
	held := c.acquire(c.nodes[0], acquireOf("ledger/eu", "A", "1", 0))
	verify := func(what, raw string) {
		t.Helper()
		if _, err := proxy.Verify(c.context(), raw); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	verify("before", held.GetTicket())

	out := c.rotate(c.nodes[0], 3*time.Second)
	if len(out.GetMissed()) != 0 {
		t.Errorf("missed %v", out.GetMissed())
	}
	renewed := c.renew(c.nodes[1], held.GetLeaseId())
	verify("of the old key, within the overlap", held.GetTicket())
	verify("of the new key", renewed.GetTicket())

	c.until("the old key is gone everywhere", func() bool { return c.settledKeys(len(c.nodes)) })
	c.until("the old ticket is refused", func() bool {
		_, err := proxy.Verify(c.context(), held.GetTicket())
		var refused *ticket.Error
		return errors.As(err, &refused) && refused.Reason == ticket.UnknownKey
	})
	verify("of the new key, after the overlap", renewed.GetTicket())
	if again := c.renew(c.nodes[2], held.GetLeaseId()); again.GetFencingToken() != held.GetFencingToken() {
		t.Errorf("the lease has token %d, had %d", again.GetFencingToken(), held.GetFencingToken())
	}
}

// settledKeys reports whether every node knows so many keys, and none that is being retired.
func (c *cluster) settledKeys(want int) bool {
	for _, n := range c.nodes {
		out, err := n.cluster.Keys(c.context(), &lockpb.KeysRequest{})
		if err != nil || len(out.GetKeys()) != want {
			return false
		}
		for _, key := range out.GetKeys() {
			if key.GetRetiring() {
				return false
			}
		}
	}
	return true
}

func TestRotatingTwiceLeavesOneKeyOfEachNode(t *testing.T) {
	c, holders := rotating(t, 3)
	c.rotate(c.nodes[0], time.Second)
	c.rotate(c.nodes[1], time.Second)
	c.until("one key of each node is left", func() bool { return c.settledKeys(3) })
	for i, k := range holders {
		if len(k.adopted) != 2 {
			t.Errorf("node %d has taken %d keys, want 2", i+1, len(k.adopted))
		}
	}
}

// A new term must not bring a key back that was retired.
func TestARetiredKeyDoesNotComeBackWithItsNode(t *testing.T) {
	c, _ := rotating(t, 3)
	leader := c.leader()
	old := leader.server.config.Signer.Key().ID
	c.rotate(leader, time.Second)
	c.until("the old keys are gone", func() bool { return c.settledKeys(3) })
	for range 2 { // away from it, and back
		now := c.leader()
		check(t, now.group.Transfer(c.context(), ""))
		c.until("another leads", func() bool { return c.leader() != now })
	}
	c.acquire(c.leader(), acquireOf("ledger/eu", "A", "1", 0))
	out, err := c.leader().cluster.Keys(c.context(), &lockpb.KeysRequest{})
	check(t, err)
	for _, key := range out.GetKeys() {
		if key.GetKeyId() == old {
			t.Errorf("the retired key of %s is back", key.GetNode())
		}
	}
}

func TestANodeThatCannotRotateIsNamed(t *testing.T) {
	c, holders := rotating(t, 3)
	follower := c.followers()[0]
	for i, n := range c.nodes {
		if n == follower {
			holders[i].fail(errors.New("the disk is full"), nil)
		}
	}
	out := c.rotate(c.leader(), time.Second)
	if missed := out.GetMissed(); len(missed) != 1 || missed[0] != follower.id {
		t.Errorf("missed %v, want %s", missed, follower.id)
	}
	follower.kill()
	out = c.rotate(c.leader(), time.Second)
	if missed := out.GetMissed(); len(missed) != 1 || missed[0] != follower.id {
		t.Errorf("missed %v, want %s, which is dead", missed, follower.id)
	}
}

// Wherever a rotation fails, the node goes on with a key that verifies, and the next rotation comes to its end.
func TestARotationThatFailsHalfWay(t *testing.T) {
	full := errors.New("the disk is full")
	for name, fault := range map[string]func(*node, *keyHolder){
		"no key can be made":             func(_ *node, k *keyHolder) { k.fail(full, nil) },
		"the key cannot be put in place": func(_ *node, k *keyHolder) { k.fail(nil, full) },
		"the answer to its registration is lost": func(n *node, _ *keyHolder) {
			n.group.loseAnswers(1<<30, func(cmd lock.Command) bool { _, ok := cmd.(lock.PutKey); return ok })
		},
		"the retirement is refused": func(n *node, _ *keyHolder) {
			n.group.refuse(func(cmd lock.Command) bool { _, ok := cmd.(lock.RetireKey); return ok })
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, holders := rotating(t, 1)
			n := c.nodes[0]
			n.server.config.Patience = 100 * time.Millisecond
			proxy := c.verifier(n)
			fault(n, holders[0])
			ctx, cancel := context.WithTimeout(c.context(), 2*time.Second)
			defer cancel()
			if _, err := n.cluster.Rotate(ctx, &lockpb.RotateRequest{Overlap: 500}); err == nil {
				t.Fatal("the fault does not show")
			}
			during := c.acquire(n, acquireOf("ledger/eu", "A", "1", 0))
			if _, err := proxy.Verify(c.context(), during.GetTicket()); err != nil {
				t.Errorf("a ticket that was signed after the fault: %v", err)
			}
			holders[0].fail(nil, nil)
			n.group.spoil.Store(nil)
			c.rotate(n, 500*time.Millisecond)
			c.until("one key is left", func() bool { return c.settledKeys(1) })
			renewed := c.renew(n, during.GetLeaseId())
			if _, err := proxy.Verify(c.context(), renewed.GetTicket()); err != nil {
				t.Errorf("a ticket of the key that is left: %v", err)
			}
		})
	}
}

func TestBadRotations(t *testing.T) {
	c, _ := rotating(t, 1)
	n := c.nodes[0]
	for name, overlap := range map[string]int64{"negative": -1, "above what milliseconds hold": 1 << 31} {
		_, err := n.cluster.Rotate(c.context(), &lockpb.RotateRequest{Overlap: overlap})
		if r := wantRefusal(t, err, lockpb.Reason_INVALID, lockpb.Applied_NO); r.detail.GetField() != "overlap" {
			t.Errorf("%s: field %q", name, r.detail.GetField())
		}
	}
	_, err := n.cluster.Rekey(c.context(), &lockpb.RekeyRequest{Node: "n9", Public: make([]byte, 32)})
	wantRefusal(t, err, lockpb.Reason_PERMISSION_DENIED, lockpb.Applied_NO)
}

// refuse makes the commands for which match is true look refused for overload.
func (f *faulty) refuse(match func(lock.Command) bool) {
	spoil := func(cmd lock.Command, _ group.Outcome, err error) error {
		if err == nil && match(cmd) {
			return &group.Error{Kind: group.Overloaded}
		}
		return nil
	}
	f.spoil.Store(&spoil)
}

// A member that has just come up is asked, although the connection to it waits before it tries again.
func TestRotationAtAMemberThatIsBack(t *testing.T) {
	c, _ := rotating(t, 3)
	asked, back := c.nodes[0], c.nodes[1]
	gone, err := net.Listen("tcp", "127.0.0.1:0")
	check(t, err)
	check(t, gone.Close())
	asked.server.peers.learn(Member{ID: back.id, GRPC: gone.Addr().String()})
	conn, err := asked.server.peers.conn(back.id)
	check(t, err)
	conn.Connect()
	for state := conn.GetState(); state != connectivity.TransientFailure; state = conn.GetState() {
		if !conn.WaitForStateChange(c.context(), state) {
			t.Fatalf("the connection is %s", state)
		}
	}
	listener, err := net.Listen("tcp", gone.Addr().String())
	check(t, err)
	go func() { _ = back.grpc.Serve(listener) }() // it ends with the node
	if out := c.rotate(asked, time.Second); len(out.GetMissed()) != 0 {
		t.Errorf("missed %v", out.GetMissed())
	}
	if conn.GetState() != connectivity.Shutdown {
		t.Error("the connection that had failed was asked, within its pause or after it")
	}
}
