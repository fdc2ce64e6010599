package group

import (
	"context"
	"crypto/ed25519"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

func testAcquire(client, request, resource string, id byte) lock.Acquire {
	return lock.Acquire{
		Identity: "tenant", Client: lease.ClientID(client), Request: lease.RequestID(request),
		Resource: lease.Resource(resource), Mode: lease.Exclusive, TTL: 10 * time.Second,
		Lease: lease.NewID(0, [14]byte{id}),
	}
}

func mustPropose(t *testing.T, g *Group, cmd lock.Command) Outcome {
	t.Helper()
	outcome, err := g.Propose(context.Background(), cmd)
	if err != nil {
		t.Fatalf("propose %T: %v", cmd, err)
	}
	return outcome
}

func TestOneNode(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		public, _, err := ed25519.GenerateKey(nil)
		if err != nil {
			t.Fatal(err)
		}
		c := newCluster(t, 1, func(config *Config) {
			config.Key = lock.PutKey{Node: config.Node, KeyID: "k1", Public: public}
		})
		c.start()
		defer c.stopAll()
		g := c.leader().node()

		if !g.Signable() {
			t.Error("the leader serves and its key is not known")
		}
		granted, ok := mustPropose(t, g, testAcquire("a", "1", "ledger", 1)).Result.(lock.Granted)
		if !ok || granted.Token == 0 {
			t.Fatalf("an acquire of a free resource gives %+v", granted)
		}
		if r := mustPropose(t, g, testAcquire("b", "1", "ledger", 2)).Result; r.(lock.Refused).Reason != lock.ReasonHeld {
			t.Errorf("an acquire of a held resource gives %+v", r)
		}
		time.Sleep(5 * time.Second)
	})
}
