package group

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// durable is a cluster whose nodes keep their stores in folders, and ask one another before they take part.
type durable struct {
	*cluster
	dir string

	mu   sync.Mutex
	up   map[string]bool
	deaf map[string]bool // it gets no answers to what it asks
}

func newDurable(t *testing.T, nodes int) *durable {
	d := &durable{dir: t.TempDir(), up: make(map[string]bool), deaf: make(map[string]bool)}
	d.cluster = newCluster(t, nodes, func(c *Config) {
		c.Stores, c.Dir, c.Peers = nil, d.folder(c.Node), acquaintance{d, c.Node}
	})
	return d
}

func (d *durable) folder(node string) string { return filepath.Join(d.dir, node) }

// acquaintance asks the other groups of the test directly.
type acquaintance struct {
	durable *durable
	node    string
}

func (a acquaintance) Ask(ctx context.Context, other string, q Question) (Answer, error) {
	a.durable.mu.Lock()
	reached := a.durable.up[other] && !a.durable.deaf[a.node]
	a.durable.mu.Unlock()
	if !reached {
		return Answer{}, errLost
	}
	for _, m := range a.durable.members {
		if m.id == other {
			return m.node().Answer(ctx, q)
		}
	}
	return Answer{}, errors.New("no such node")
}

func (d *durable) mark(m *member, up bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.up[m.id] = up
}

func (d *durable) setDeaf(m *member, deaf bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.deaf[m.id] = deaf
}

func (d *durable) startThese(members ...*member) {
	d.t.Helper()
	for _, m := range members {
		d.startNode(m)
		d.mark(m, true)
	}
}

// kill ends nodes without letting them say good-bye.
func (d *durable) kill(members ...*member) {
	d.t.Helper()
	for _, m := range members {
		d.mark(m, false)
		d.crash(m)
	}
}

// empty takes a node's folder away, as a disk that is not mounted does.
func (d *durable) empty(m *member) {
	d.t.Helper()
	if err := os.RemoveAll(d.folder(m.id)); err != nil {
		d.t.Fatal(err)
	}
}

func (d *durable) end(members ...*member) {
	d.kill(members...)
	time.Sleep(time.Minute) // the library leaves calls to peers behind that end by their timeout
}

func (d *durable) rejoining(m *member) bool {
	d.t.Helper()
	_, err := os.Stat(filepath.Join(d.folder(m.id), "group-0.rejoining"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		d.t.Fatal(err)
	}
	return err == nil
}

// holder is a resource's holder as the leader says.
func holder(t *testing.T, g *Group, resource string) lock.View {
	t.Helper()
	var view lock.View
	if _, err := g.Read(context.Background(), func(m *lock.Machine) { view = m.Get(lease.Resource(resource)) }); err != nil {
		t.Fatal(err)
	}
	return view
}

// grant has the leader grant n new locks that last, and returns the last token.
func (d *durable) grant(name string, n int) (last lease.Token) {
	d.t.Helper()
	for i := range n {
		cmd := testAcquire(name, fmt.Sprint(i), fmt.Sprintf("%s/%d", name, i), name[0])
		cmd.Lease, cmd.TTL = lease.NewID(0, [14]byte{name[0], byte(i)}), time.Hour
		last = mustGrant(d.t, d.leader().node(), cmd).Token
	}
	return last
}

// await waits for a condition, in virtual time.
func (d *durable) await(what string, done func() bool) {
	d.t.Helper()
	if !polled(time.Minute, done) {
		d.t.Fatalf("%s: not within a minute", what)
	}
}

func (d *durable) awaitVote(m *member) {
	d.t.Helper()
	d.await(m.id+" takes part", func() bool { return m.node().Status().State != "" && m.node().Status().Pending == "" })
	if d.rejoining(m) {
		d.t.Errorf("%s takes part, and is marked as rejoining", m.id)
	}
}

// awaitSame waits until the replicas have the same state.
func (d *durable) awaitSame(members ...*member) {
	d.t.Helper()
	d.await("the replicas are the same", func() bool {
		seen := make(map[string]bool)
		for _, m := range members {
			m.node().View(func(s *lock.Machine) { seen[fmt.Sprintf("%d %x", s.Info().Index, s.Digest())] = true })
		}
		return len(seen) == 1
	})
}

// silent lets time go by, and fails if a node grants anything or leads.
func (d *durable) silent(members ...*member) {
	d.t.Helper()
	for range 20 {
		time.Sleep(time.Second)
		for _, m := range members {
			if leader, _ := m.node().Leader(); leader != "" {
				d.t.Fatalf("%s knows the leader %s", m.id, leader)
			}
			_, err := m.node().Propose(context.Background(), testAcquire("thief", "1", "a/0", 99))
			wantKind(d.t, "an acquire", err, NotLeader)
		}
	}
}

// The disk of one node is not there, and of the others only one that lags is up: nobody leads, until one comes that has
// what was acknowledged.
func TestAnEmptiedNodeAndALaggingOneAreNoMajority(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		d := newDurable(t, 3)
		n1, n2, n3 := d.members[0], d.members[1], d.members[2]
		d.startThese(n1, n2, n3)
		d.grant("a", 3)
		d.network.isolate(n3.address, true)
		if d.leader() == n3 {
			t.Fatal("the lagging one leads")
		}
		last := d.grant("b", 5)
		d.kill(n3, n1, n2)
		d.empty(n1)

		d.startThese(n1, n3)
		d.silent(n1, n3)
		if s := n1.node().Status(); !s.Blank || !strings.HasPrefix(s.Pending, catchingUp) {
			t.Errorf("the emptied node says %+v", s)
		}
		d.startThese(n2)
		g := d.leader().node()
		if v := holder(t, g, "b/4"); len(v.Holders) != 1 || v.Holders[0].Token != last {
			t.Errorf("what was acknowledged last is now %+v", v)
		}
		if next := d.grant("c", 1); next <= last {
			t.Errorf("token %d after %d", next, last)
		}
		d.awaitVote(n1)
		d.awaitSame(n1, n2, n3)

		d.kill(n2) // now its vote is needed
		if next := d.grant("d", 1); next <= last {
			t.Errorf("token %d after %d", next, last)
		}
		d.end(n1, n3)
	})
}

// A disk is replaced while the others serve: by replaying their log, or from a snapshot.
func TestAnEmptiedNodeJoinsAgain(t *testing.T) {
	for _, way := range []struct {
		name   string
		limits Limits
	}{{"log", Limits{}}, {"snapshot", Limits{SnapshotEvery: 20, TrailingLogs: 5}}} {
		t.Run(way.name, func(t *testing.T) {
			bubble(t, time.Minute, func(t *testing.T) {
				d := newDurable(t, 3)
				folders := d.adjust
				d.adjust = func(c *Config) {
					folders(c)
					c.Limits, c.Timing = way.limits, Timing{Snapshot: 200 * time.Millisecond}
				}
				d.startThese(d.members...)
				last := d.grant("a", 100)
				lost := d.others(d.leader())[0]
				d.kill(lost)
				d.empty(lost)
				d.startThese(lost)
				d.awaitVote(lost)
				if index := lost.node().appliedIndex(); index < 100 {
					t.Errorf("it votes with entry %d", index)
				}
				d.awaitSame(d.members...)
				d.kill(d.others(lost)[0])
				if next := d.grant("b", 1); next <= last {
					t.Errorf("token %d after %d", next, last)
				}
				d.kill(lost)
				d.startThese(lost) // it remembers, and asks nobody
				if d.grant("c", 1) <= last {
					t.Error("tokens went back")
				}
				d.end(lost, d.others(lost)[1])
			})
		})
	}
}

// What one node alone remembers is not what a majority remembers.
func TestTwoEmptiedNodesOfThree(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		d := newDurable(t, 3)
		d.startThese(d.members...)
		d.grant("a", 3)
		d.kill(d.members...)
		d.empty(d.members[0])
		d.empty(d.members[1])
		d.startThese(d.members...)
		d.silent(d.members...)
		for _, m := range d.members[:2] {
			if s := m.node().Status(); !s.Blank || !strings.HasPrefix(s.Pending, catchingUp) {
				t.Errorf("%s says %+v", m.id, s)
			}
		}
		if v := d.members[2].node().Status(); v.Pending != "" || v.Blank {
			t.Errorf("the one with data says %+v", v)
		}
		d.end(d.members...)
	})
}

// A node that crashes while it catches up has no vote afterwards either.
func TestCrashWhileCatchingUp(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		d := newDurable(t, 3)
		d.startThese(d.members...)
		last := d.grant("a", 20)
		leader := d.leader()
		lost, other := d.others(leader)[0], d.others(leader)[1]
		d.kill(lost)
		d.empty(lost)
		d.network.isolate(lost.address, true) // it can ask, but gets no entries
		d.startNode(lost)
		d.mark(lost, true)
		d.await("it starts to catch up", func() bool { return d.rejoining(lost) && lost.node().Status().State != "" })
		time.Sleep(10 * time.Second)
		if s := lost.node().Status(); s.Pending != catchingUp || s.State != "Follower" || s.Blank {
			t.Errorf("it says %+v", s)
		}
		var vote raft.RequestVoteResponse
		ask := &raft.RequestVoteRequest{
			RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax, ID: []byte(other.id), Addr: []byte(other.address)},
			Term:      1000, LastLogIndex: 1000, LastLogTerm: 1000,
		}
		if err := d.network.attach("candidate:1").RequestVote("", lost.address, ask, &vote); err != nil || vote.Granted {
			t.Errorf("it is asked for its vote: %+v, %v", vote, err)
		}
		d.kill(lost) // heals its links, too
		d.network.isolate(other.address, true)
		d.kill(other)
		d.startThese(lost)
		d.silentOf(lost, leader)
		if s := lost.node().Status(); !d.rejoining(lost) || s.Blank || !strings.HasPrefix(s.Pending, catchingUp) {
			t.Errorf("it forgot that it has no vote: %+v", s)
		}
		d.startThese(other)
		d.awaitVote(lost)
		if next := d.grant("b", 1); next <= last {
			t.Errorf("token %d after %d", next, last)
		}
		d.awaitSame(d.members...)
		d.end(d.members...)
	})
}

// silentOf lets time go by, and fails if two nodes of three grant anything.
func (d *durable) silentOf(members ...*member) {
	d.t.Helper()
	time.Sleep(5 * time.Second) // the leader steps down
	d.silent(members...)
}

// A cluster is created once all members are up, however late the last one is, and in the moment in which it comes.
func TestCreationWaitsForAllMembers(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		d := newDurable(t, 3)
		n1, n2, n3 := d.members[0], d.members[1], d.members[2]
		d.startThese(n1, n2)
		d.silent(n1, n2)
		if s := n1.node().Status(); !s.Blank || !strings.HasSuffix(s.Pending, "start n3") {
			t.Errorf("it says %+v", s)
		}
		began := time.Now()
		d.startThese(n3)
		d.grant("a", 1)
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("the last member and the first grant are %s apart", took)
		}
		for _, m := range d.members {
			d.awaitVote(m)
		}
		d.awaitSame(d.members...)
		d.end(d.members...)
	})
}

// A member that hears nothing of the others for a while joins what they have created without it.
func TestAMemberThatIsLateAtCreation(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		d := newDurable(t, 3)
		late := d.members[2]
		d.setDeaf(late, true) // the others hear that it is blank when they ask
		d.startThese(d.members...)
		d.grant("a", 1)
		if s := late.node().Status(); !s.Blank {
			t.Errorf("it says %+v", s)
		}
		d.setDeaf(late, false)
		d.awaitVote(late)
		d.awaitSame(d.members...)
		d.end(d.members...)
	})
}

// A node that remembers asks nobody.
func TestARestartAsksNobody(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		d := newDurable(t, 3)
		d.startThese(d.members...)
		last := d.grant("a", 1)
		d.kill(d.members...)
		for _, m := range d.members {
			d.setDeaf(m, true)
		}
		d.startThese(d.members[:2]...)
		if next := d.grant("b", 1); next <= last {
			t.Errorf("token %d after %d", next, last)
		}
		d.end(d.members[:2]...)
	})
}

// A node that waits for the others stops at once, and says so to its callers.
func TestStopWhileWaitingForMembers(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		d := newDurable(t, 3)
		d.startThese(d.members[0])
		time.Sleep(3 * time.Second)
		g := d.members[0].node()
		began := time.Now()
		d.stop(d.members[0])
		if took := time.Since(began); took != 0 {
			t.Errorf("it takes %s", took)
		}
		_, err := g.Propose(context.Background(), lock.Tick{})
		wantKind(t, "a command after the stop", err, Stopping)
	})
}

// A leader that is cut off from the majority has nothing to show.
func TestADeposedLeaderProvesNothing(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		d := newDurable(t, 3)
		d.startThese(d.members...)
		old := d.leader()
		other := d.others(old)[0]
		question := Question{From: other.id, Blank: true}
		if a, err := old.node().Answer(t.Context(), question); err != nil || a.Proof.Term == 0 || a.Proof.Index == 0 {
			t.Errorf("the leader answers %+v, %v", a, err)
		}
		if a, err := other.node().Answer(t.Context(), Question{From: old.id}); err != nil || a != (Answer{}) {
			t.Errorf("a follower answers %+v, %v", a, err)
		}
		d.network.isolate(old.address, true)
		if a, err := old.node().Answer(t.Context(), question); err != nil || a != (Answer{}) {
			t.Errorf("the deposed leader answers %+v, %v", a, err)
		}
		d.end(d.members...)
	})
}
