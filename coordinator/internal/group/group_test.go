package group

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
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

// mustGrant proposes an acquire that nothing can refuse.
func mustGrant(t *testing.T, g *Group, cmd lock.Acquire) lock.Granted {
	t.Helper()
	outcome := mustPropose(t, g, cmd)
	granted, ok := outcome.Result.(lock.Granted)
	if !ok {
		t.Fatalf("the acquire of %s is answered %+v", cmd.Resource, outcome.Result)
	}
	return granted
}

// wantKind checks the error of a call that got no result.
func wantKind(t *testing.T, what string, err error, want Kind) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Kind != want {
		t.Errorf("%s ends with %v, want %q", what, err, want)
		return &Error{}
	}
	return e
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
		granted := mustGrant(t, g, testAcquire("a", "1", "ledger", 1))
		if granted.Token == 0 {
			t.Error("token 0 is issued")
		}
		if r := mustPropose(t, g, testAcquire("b", "1", "ledger", 2)).Result; r.(lock.Refused).Reason != lock.ReasonHeld {
			t.Errorf("an acquire of a held resource gives %+v", r)
		}
		time.Sleep(5 * time.Second)
		renewed := mustPropose(t, g, lock.Renew{Identity: "tenant", Lease: granted.Grant.Lease})
		if left := renewed.Result.(lock.Renewed).Deadline.Sub(renewed.Now); left != 10*time.Second {
			t.Errorf("a renewal leaves %s", left)
		}
		time.Sleep(10*time.Second + 500*time.Millisecond)
		if outcome, err := g.Read(context.Background(), func(m *lock.Machine) {
			if _, held := m.Lease(granted.Grant.Lease); held {
				t.Error("a lease is held longer than its TTL after its last renewal")
			}
		}); err != nil || outcome.Index == 0 {
			t.Errorf("read: %+v, %v", outcome, err)
		}
	})
}

func TestStateSurvivesARestartOfAllNodes(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		var mu sync.Mutex
		replayed := make(map[string]int)
		c.onApply = func(node string, a Applied) {
			mu.Lock()
			defer mu.Unlock()
			if a.Replayed {
				replayed[node]++
			}
		}
		c.start()
		cmd := testAcquire("a", "1", "ledger", 1)
		cmd.TTL = time.Hour
		first := mustGrant(t, c.leader().node(), cmd)
		var name string
		c.leader().node().View(func(m *lock.Machine) { name = m.Info().Cluster })
		c.stopAll()
		if len(replayed) != 0 {
			t.Errorf("entries of the first start are marked as replayed: %v", replayed)
		}
		c.start()
		defer c.stopAll()
		g := c.leader().node()
		again := mustGrant(t, g, cmd)
		if again.Token != first.Token || again.Grant.Lease != first.Grant.Lease || !again.Retried {
			t.Errorf("a retry after the restart gives %+v, want the grant %+v", again, first)
		}
		g.View(func(m *lock.Machine) {
			if got := m.Info().Cluster; got != name {
				t.Errorf("the cluster is called %q after the restart, was %q", got, name)
			}
		})
		mu.Lock()
		defer mu.Unlock()
		if len(replayed) != 3 {
			t.Errorf("entries from before the restart are marked as replayed on %v, want on three nodes", replayed)
		}
	})
}

func TestFollowersSayWhoLeads(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.start()
		defer c.stopAll()
		leader := c.leader()
		time.Sleep(time.Second)
		for _, m := range c.others(leader) {
			if id, self := m.node().Leader(); id != leader.id || self {
				t.Errorf("%s says that %q leads, itself %t; want %q", m.id, id, self, leader.id)
			}
			_, err := m.node().Propose(context.Background(), testAcquire("a", "1", "ledger", 1))
			if e := wantKind(t, "a proposal to a follower", err, NotLeader); e.Leader != leader.id {
				t.Errorf("%s points at %q, want %q", m.id, e.Leader, leader.id)
			}
			_, err = m.node().Read(context.Background(), func(*lock.Machine) { t.Error("a read runs on a follower") })
			wantKind(t, "a read at a follower", err, NotLeader)
			wait := m.node().Await("tenant", "a", "1")
			if end := <-wait.C; end.Err == nil || end.Err.Kind != NotLeader {
				t.Errorf("a wait on a follower ends with %+v", end)
			}
			wait.Close()
		}
	})
}

func TestACallerThatGoesAway(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		c := newCluster(t, 1, func(config *Config) { config.Limits.InFlight = 1 })
		c.start()
		defer c.stopAll()
		m := c.leader()
		m.disk.hang()
		results := make(chan error, 2)
		propose := func(n byte) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			_, err := m.node().Propose(ctx, testAcquire("a", fmt.Sprint(n), fmt.Sprint(n), n))
			results <- err
		}
		go propose(1)
		time.Sleep(10 * time.Millisecond)
		go propose(2)
		if e := wantKind(t, "a call whose entry is on its way", <-results, Unknown); !errors.Is(e, context.DeadlineExceeded) {
			t.Errorf("its cause is %v", e.Err)
		}
		wantKind(t, "a call that is still queued", <-results, Abandoned)
		if n := m.node().Status().Queued; n != 0 {
			t.Errorf("%d abandoned commands are still queued", n)
		}
		m.disk.resume()
		if _, err := m.node().Read(context.Background(), func(machine *lock.Machine) {
			if len(machine.Get("1").Holders) != 1 || len(machine.Get("2").Holders) != 0 {
				t.Error("the one on its way must have been applied, the abandoned one not")
			}
		}); err != nil {
			t.Error(err)
		}
	})
}

// A command that cannot be encoded is certainly not applied, and takes nothing that shares its entry with it.
func TestACommandThatCannotBeEncodedFailsAlone(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		c := newCluster(t, 1, func(config *Config) { config.Limits.InFlight = 1 })
		c.start()
		defer c.stopAll()
		m := c.leader()
		m.disk.hang()
		type result struct {
			index uint64
			err   error
		}
		propose := func(cmd lock.Command) <-chan result {
			done := make(chan result, 1)
			go func() {
				out, err := m.node().Propose(context.Background(), cmd)
				done <- result{out.Index, err}
			}()
			synctest.Wait()
			return done
		}
		first := propose(testAcquire("a", "0", "0", 1)) // in flight: the others gather behind it
		good := propose(testAcquire("a", "1", "1", 2))
		noMode, noText := testAcquire("b", "2", "2", 3), testAcquire("b", "3", "\xff", 4)
		noMode.Mode = 99
		bad := []<-chan result{propose(noMode), propose(noText)}
		also := propose(testAcquire("c", "4", "4", 5))
		m.disk.resume()
		for _, done := range bad {
			wantKind(t, "a command that cannot be encoded", (<-done).err, Malformed)
		}
		a, b := <-good, <-also
		if err := errors.Join((<-first).err, a.err, b.err); err != nil || a.index != b.index {
			t.Errorf("the others in entries %d and %d: %v", a.index, b.index, err)
		}
		wantKind(t, "one that is alone", (<-propose(noMode)).err, Malformed)
		mustGrant(t, m.node(), testAcquire("a", "5", "5", 6))
	})
}

func TestAFullQueueRefuses(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		c := newCluster(t, 1, func(config *Config) { config.Limits.InFlight, config.Limits.Queue = 1, 8 })
		c.start()
		defer c.stopAll()
		m := c.leader()
		m.disk.hang()
		results := make(chan error, 20)
		for i := range byte(20) {
			go func() {
				_, err := m.node().Propose(context.Background(), testAcquire("a", fmt.Sprint(i), fmt.Sprint(i), i))
				results <- err
			}()
		}
		refused := 0
		for quiet := false; !quiet; {
			select {
			case err := <-results:
				wantKind(t, "a call past the bound", err, Overloaded)
				refused++
			case <-time.After(time.Second):
				quiet = true
			}
		}
		m.disk.resume()
		for range 20 - refused {
			if err := <-results; err != nil {
				t.Errorf("an accepted command ends with %v", err)
			}
		}
		if refused < 12 {
			t.Errorf("%d of 20 are refused by a queue for 4", refused)
		}
	})
}

func TestStoppingNode(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.start()
		leader := c.leader()
		stopped := time.Now()
		c.stop(leader)
		_, err := leader.node().Propose(context.Background(), lock.Tick{})
		wantKind(t, "a proposal to a stopped node", err, Stopping)
		for {
			_, self := c.others(leader)[0].node().Leader()
			_, other := c.others(leader)[1].node().Leader()
			if self || other {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(stopped); took > 300*time.Millisecond {
			t.Errorf("after an orderly stop another node leads after %s: leadership was not handed over", took)
		}
		c.startNode(leader)
		c.stopAll()
	})
}

func TestAnUnreadableEntryStopsTheNode(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		c.start()
		m := c.leader()
		granted := mustPropose(t, m.node(), testAcquire("a", "1", "ledger", 1))
		if err := m.node().raft.Load().Apply([]byte("from a later release"), 0).Error(); err != nil {
			t.Fatal(err)
		}
		for _, when := range []string{"at once", "after a restart"} {
			err := <-m.ended
			if !errors.Is(err, errEnvelope) || !strings.Contains(err.Error(), fmt.Sprintf("log entry %d", granted.Index+1)) {
				t.Errorf("%s: run ends with %v", when, err)
			}
			m.node().View(func(machine *lock.Machine) {
				if got := machine.Info().Index; got != granted.Index {
					t.Errorf("%s: entry %d is applied, want %d: the last that is understood", when, got, granted.Index)
				}
			})
			_, err = m.node().Propose(context.Background(), lock.Tick{})
			wantKind(t, when+": a proposal", err, Stopping)
			c.startNode(m)
		}
		<-m.ended
	})
}
