package group

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// newGrowing is a durable cluster of the first three members; the others' configurations name them all.
func newGrowing(t *testing.T, nodes int) *durable {
	d := newDurable(t, nodes)
	folders := d.adjust
	d.adjust = func(c *Config) {
		folders(c)
		c.Limits.SnapshotEvery, c.Limits.TrailingLogs = 40, 10
		c.Timing.Snapshot = time.Second
		if c.Node <= "n3" {
			c.Members = c.Members[:3]
		}
	}
	return d
}

func (m *member) asMember() lock.Member {
	return lock.Member{ID: m.id, Peer: string(m.address), GRPC: m.id + ":7600", HTTP: m.id + ":7601"}
}

// change calls fn on the leader until it is not told that this one does not lead.
func (d *durable) change(fn func(ctx context.Context, g *Group) error) error {
	d.t.Helper()
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		err := fn(ctx, d.leader().node())
		cancel()
		var e *Error
		if errors.As(err, &e) && e.Kind == NotLeader {
			time.Sleep(100 * time.Millisecond)
			continue
		}
		return err
	}
}

func wantMember(t *testing.T, what string, err error, want MemberReason) {
	t.Helper()
	var e *MemberError
	if !errors.As(err, &e) || e.Reason != want {
		t.Errorf("%s: got %v, want %s", what, err, want)
	}
}

func votersOf(g *Group) string {
	var ids []string
	for _, p := range g.Peers() {
		if p.Voter {
			ids = append(ids, p.ID)
		}
	}
	return strings.Join(ids, " ")
}

// A node with an empty folder joins a cluster that serves, and counts from then on; another leaves. Nothing is lost.
func TestJoinAndRemove(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T) {
		d := newGrowing(t, 4)
		n4 := d.members[3]
		d.startThese(d.members[:3]...)
		last := d.grant("a", 100)
		d.startThese(n4)
		time.Sleep(5 * time.Second)
		if s := n4.node().Status(); !s.Blank || s.Pending != notJoined {
			t.Errorf("before it is joined the node says %+v", s)
		}
		if err := d.change(func(ctx context.Context, g *Group) error { return g.Join(ctx, n4.asMember()) }); err != nil {
			t.Fatal(err)
		}
		d.awaitVote(n4)
		if got := votersOf(d.leader().node()); got != "n1 n2 n3 n4" {
			t.Errorf("voters: %s", got)
		}
		if next := d.grant("b", 1); next <= last {
			t.Errorf("token %d after %d", next, last)
		}
		d.awaitSame(d.members...)

		// Its vote counts: with one of four gone two of the old ones and it are a majority.
		lost := d.others(d.leader())[0]
		if lost == n4 {
			lost = d.others(d.leader())[1]
		}
		d.kill(lost)
		last = d.grant("c", 1)
		if err := d.change(func(ctx context.Context, g *Group) error { return g.Remove(ctx, lost.id) }); err != nil {
			t.Fatal(err)
		}
		if got := votersOf(d.leader().node()); strings.Contains(got, lost.id) || !strings.Contains(got, "n4") {
			t.Errorf("voters: %s", got)
		}

		// The removed node starts again, with what it remembers: it disturbs nobody, and says what it is.
		before := d.leader()
		term := before.node().Status().Term
		d.startThese(lost)
		time.Sleep(30 * time.Second)
		if s := lost.node().Status(); s.Pending != removed {
			t.Errorf("the removed node says %+v", s)
		}
		if s := before.node().Status(); s.Term != term || s.State != "Leader" {
			t.Errorf("the leader was disturbed: %+v, the term was %d", s, term)
		}
		if next := d.grant("d", 1); next <= last {
			t.Errorf("token %d after %d", next, last)
		}

		// The joined one restarts: it is found again by its address in the log.
		d.kill(n4)
		d.startThese(n4)
		d.grant("e", 1)
		d.awaitVote(n4)
		d.end(d.members...)
	})
}

// What cannot be is refused, each with its reason, and changes nothing.
func TestMemberChangesThatAreRefused(t *testing.T) {
	bubble(t, 2*time.Minute, func(t *testing.T) {
		d := newGrowing(t, 4)
		n4 := d.members[3]
		d.startThese(d.members[:3]...)
		d.grant("a", 1)
		leader := d.leader()
		g, other, third := leader.node(), d.others(leader)[0], d.others(leader)[1]
		if third == n4 {
			third = d.others(leader)[2]
		}
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		wantMember(t, "an id that exists", g.Join(ctx, other.asMember()), MemberExists)
		wantMember(t, "the leader's own id", g.Join(ctx, leader.asMember()), MemberExists)
		twin := n4.asMember()
		twin.Peer = string(other.address)
		wantMember(t, "an address that exists", g.Join(ctx, twin), MemberExists)
		wantMember(t, "an unknown member", g.Remove(ctx, "n9"), NoSuchMember)
		wantMember(t, "a transfer to nobody", g.Transfer(ctx, "n9"), NoSuchMember)
		wantMember(t, "a node that is not up", g.Join(ctx, n4.asMember()), NotCaughtUp)
		wantKind(t, "a follower", other.node().Join(context.Background(), n4.asMember()), NotLeader)
		wantKind(t, "a follower", other.node().Remove(context.Background(), n4.id), NotLeader)
		if got := votersOf(g); got != "n1 n2 n3" {
			t.Errorf("voters: %s", got)
		}
		d.startThese(n4) // it is started late, and joined again
		if err := d.change(func(ctx context.Context, g *Group) error { return g.Join(ctx, n4.asMember()) }); err != nil {
			t.Errorf("joined again: %v", err)
		}
		if err := d.change(func(ctx context.Context, g *Group) error { return g.Remove(ctx, n4.id) }); err != nil {
			t.Errorf("removed: %v", err)
		}

		// Of three one is down: it may go, the two others may not.
		d.kill(third)
		time.Sleep(3 * time.Second)
		leader = d.leader()
		for _, m := range d.members[:3] {
			if m != third && m != leader {
				wantMember(t, "one of the last two that are up", leader.node().Remove(context.Background(), m.id), QuorumAtRisk)
			}
		}
		if err := d.change(func(ctx context.Context, g *Group) error { return g.Remove(ctx, third.id) }); err != nil {
			t.Errorf("the one that is down: %v", err)
		}
		for _, m := range d.members {
			if m != third {
				d.kill(m)
			}
		}
		time.Sleep(time.Minute)
	})
}

// A leader that is to be removed hands over first; the last voter cannot go.
func TestRemoveTheLeader(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		d := newGrowing(t, 3)
		d.startThese(d.members...)
		last := d.grant("a", 3)
		for range 2 {
			gone := d.leader()
			if err := d.change(func(ctx context.Context, g *Group) error { return g.Remove(ctx, gone.id) }); err != nil {
				t.Fatal(err)
			}
			if next := d.leader(); next == gone {
				t.Errorf("%s leads after it was removed", gone.id)
			}
			if next := d.grant(string(rune('b'+last)), 1); next <= last {
				t.Errorf("token %d after %d", next, last)
			}
		}
		left := d.leader()
		wantMember(t, "the last", left.node().Remove(context.Background(), left.id), LastVoter)
		d.end(d.members...)
	})
}

// Leadership goes to the node that is named.
func TestTransferToANode(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		c := newCluster(t, 3, nil)
		c.start()
		defer c.stopAll()
		for _, to := range c.members {
			if err := c.leader().node().Transfer(context.Background(), to.id); err != nil {
				t.Fatal(err)
			}
			if leader := c.leader(); leader != to {
				t.Errorf("%s leads, want %s", leader.id, to.id)
			}
		}
	})
}

// A replica is stuck if nothing is applied for a time although there is something; being idle, or slow, is not it.
func TestProgress(t *testing.T) {
	const bound = 10 * time.Second
	var p progress
	for i, step := range []struct {
		applied, committed uint64
		now                time.Duration
		stuck              bool
	}{
		{5, 5, time.Second, false},
		{5, 5, time.Hour, false},               // idle
		{5, 9, time.Hour + time.Second, false}, // something to do
		{5, 9, time.Hour + 9*time.Second, false},
		{5, 20, time.Hour + 11*time.Second, true},
		{6, 20, time.Hour + 12*time.Second, false}, // it goes on
		{4, 20, time.Hour + 15*time.Second, false}, // an old snapshot is no progress
		{6, 20, time.Hour + 23*time.Second, true},
		{20, 20, time.Hour + 24*time.Second, false},
	} {
		if got := p.look(step.applied, step.committed, step.now, bound) != ""; got != step.stuck {
			t.Errorf("step %d: stuck is %v, want %v", i+1, got, step.stuck)
		}
	}
}
