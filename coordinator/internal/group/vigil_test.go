package group

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/raft"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
)

// notes is a log that can be read while it is written.
type notes struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (n *notes) Write(p []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Write(p)
}

// stood counts the nodes that stood for election because the leader's process was gone.
func (n *notes) stood() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return strings.Count(n.text.String(), "this node stands for election")
}

// wake is a cluster whose leader is about to be lost.
type wake struct {
	*cluster
	quay   *quay
	log    *notes
	leader *member
	rest   []*member // the others, in the order of their turns
	term   uint64
}

// attend runs fn on a cluster on a quay that has had a leader for a while.
func attend(t *testing.T, nodes int, number uint16, fn func(t *testing.T, w *wake)) {
	t.Helper()
	bubble(t, time.Minute, func(t *testing.T) {
		w := &wake{cluster: newCluster(t, nodes, func(c *Config) { c.Group = number }), quay: newQuay(), log: &notes{}}
		w.logger = slog.New(slog.NewTextHandler(w.log, nil))
		w.onQuay(w.quay)
		w.start()
		defer w.stopAll()
		w.leader, _ = serving(t, w.members)
		time.Sleep(10 * time.Second)
		w.rest = w.others(w.leader)
		for range int(number) % len(w.rest) { // the first has the rank that is the group's number
			last := len(w.rest) - 1
			w.rest = slices.Concat(w.rest[last:], w.rest[:last])
		}
		w.term = w.leader.node().raft.Load().CurrentTerm()
		fn(t, w)
		if t.Failed() {
			t.Log(w.log.text.String())
		}
	})
}

func (w *wake) terms() uint64 {
	var highest uint64
	for _, m := range w.members {
		highest = max(highest, m.node().raft.Load().CurrentTerm())
	}
	return highest - w.term
}

// No heartbeat timeout passes between the end of a leader's process and the next leader, and there is one election.
func TestTheNextLeaderStandsAtOnce(t *testing.T) {
	for _, test := range []struct {
		nodes int
		group uint16
	}{{3, 0}, {3, 1}, {4, 0}, {5, 2}} {
		t.Run(fmt.Sprintf("%d nodes, group %d", test.nodes, test.group), func(t *testing.T) {
			attend(t, test.nodes, test.group, func(t *testing.T, w *wake) {
				w.killOn(w.quay, w.leader)
				next, took := serving(t, w.rest)
				if took > 50*time.Millisecond {
					t.Errorf("it took %s", took)
				}
				if next != w.rest[0] {
					t.Errorf("%s leads, whose turn it was not", next.id)
				}
				time.Sleep(10 * time.Second)
				if w.terms() != 1 || w.log.stood() != 1 {
					t.Errorf("%d nodes stood, and there were %d terms", w.log.stood(), w.terms())
				}
			})
		})
	}
}

// Who lacks an entry cannot win, and its attempt must not cost a heartbeat timeout.
func TestTheFirstInTurnLags(t *testing.T) {
	for nodes, bound := range map[int]time.Duration{3: 50 * time.Millisecond, 5: 250 * time.Millisecond} {
		t.Run(fmt.Sprintf("%d nodes", nodes), func(t *testing.T) {
			attend(t, nodes, 0, func(t *testing.T, w *wake) {
				w.quay.set(w.quay.cut, string(w.rest[0].address), true)
				mustGrant(t, w.leader.node(), testAcquire("a", "1", "x", 1))
				w.killOn(w.quay, w.leader)
				w.quay.set(w.quay.cut, string(w.rest[0].address), false)
				next, took := serving(t, w.rest)
				if took > bound {
					t.Errorf("it took %s, more than %s", took, bound)
				}
				if next == w.rest[0] {
					t.Error("who lacks an entry leads")
				}
				time.Sleep(10 * time.Second)
				if w.terms() > 2 || w.log.stood() > 2 {
					t.Errorf("%d nodes stood, and there were %d terms", w.log.stood(), w.terms())
				}
			})
		})
	}
}

// What looks like the end of a process and is none costs no leadership.
func TestALeaderThatLivesIsLeftAlone(t *testing.T) {
	for name, disturb := range map[string]func(q *quay, leader string){
		"its connections end, and it can be reached":  func(q *quay, leader string) { q.hangUp(leader) },
		"it refuses new connections, and has its own": func(q *quay, leader string) { q.set(q.shut, leader, true) },
	} {
		t.Run(name, func(t *testing.T) {
			attend(t, 3, 0, func(t *testing.T, w *wake) {
				for range 10 {
					disturb(w.quay, string(w.leader.address))
					time.Sleep(time.Second)
				}
				if _, self := w.leader.node().Leader(); !self || w.terms() != 0 {
					t.Errorf("it leads: %v, after %d more terms", self, w.terms())
				}
			})
		})
	}
}

// A leader that was cut off is not known to be gone: the heartbeat decides.
func TestACutIsNoEndOfAProcess(t *testing.T) {
	attend(t, 3, 0, func(t *testing.T, w *wake) {
		w.quay.set(w.quay.cut, string(w.leader.address), true)
		_, took := serving(t, w.rest)
		if took < 400*time.Millisecond || w.log.stood() != 0 {
			t.Errorf("another one leads after %s, and %d stood", took, w.log.stood())
		}
	})
}

// A leader that lives, loses its connections and refuses new ones loses the leadership, once.
func TestALeaderThatRefusesIsReplacedOnce(t *testing.T) {
	attend(t, 3, 0, func(t *testing.T, w *wake) {
		address := string(w.leader.address)
		w.quay.set(w.quay.shut, address, true)
		for range 60 {
			w.quay.hangUp(address)
			time.Sleep(time.Second)
		}
		next, _ := serving(t, w.rest)
		if next == w.leader || w.terms() > 2 || w.log.stood() != 1 {
			t.Errorf("%d nodes stood, and there were %d terms", w.log.stood(), w.terms())
		}
	})
}

// A firewall that answers for nodes which live, again and again, has leadership move in bounds.
func TestFalseEvidenceMovesLeadershipInBounds(t *testing.T) {
	attend(t, 3, 0, func(t *testing.T, w *wake) {
		const minutes = 1
		for range minutes * 60 {
			leader, _ := serving(t, w.members)
			address := string(leader.address)
			w.quay.set(w.quay.shut, address, true)
			w.quay.hangUp(address)
			time.Sleep(700 * time.Millisecond)
			w.quay.set(w.quay.shut, address, false)
			time.Sleep(300 * time.Millisecond)
		}
		// Each of three nodes stands once in 5 s at most.
		if most := minutes * 60 * 3 / 5; w.log.stood() > most || w.log.stood() < 6 {
			t.Errorf("%d nodes stood, want 6 to %d", w.log.stood(), most)
		}
		serving(t, w.members)
	})
}

// A planned stop hands over, and nobody takes the end of its connections for more.
func TestAPlannedStopElectsOnce(t *testing.T) {
	attend(t, 5, 0, func(t *testing.T, w *wake) {
		w.stop(w.leader)
		w.quay.kill(string(w.leader.address))
		_, took := serving(t, w.rest)
		time.Sleep(10 * time.Second)
		if took > 50*time.Millisecond || w.terms() != 1 || w.log.stood() != 0 {
			t.Errorf("it took %s, %d nodes stood, and there were %d terms", took, w.log.stood(), w.terms())
		}
		w.startNode(w.leader) // for the end of the test
	})
}

// A member without a vote leaves it to those with one.
func TestWhoHasNoVoteDoesNotStand(t *testing.T) {
	attend(t, 4, 0, func(t *testing.T, w *wake) {
		first := w.rest[0]
		if err := w.leader.node().raft.Load().DemoteVoter(raft.ServerID(first.id), 0, 0).Error(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		w.killOn(w.quay, w.leader)
		next, took := serving(t, w.rest)
		if next != w.rest[1] || took > 50*time.Millisecond || w.terms() != 1 {
			t.Errorf("%s leads after %s and %d terms, want %s at once", next.id, took, w.terms(), w.rest[1].id)
		}
	})
}

// Who was away has caught up soon after it is back, however long it was away: it may be needed.
func TestWhoIsBackCatchesUpAtOnce(t *testing.T) {
	for _, away := range []time.Duration{3 * time.Second, 12 * time.Second, 2 * time.Minute} {
		t.Run(away.String(), func(t *testing.T) {
			attend(t, 3, 0, func(t *testing.T, w *wake) {
				m := w.rest[0]
				w.killOn(w.quay, m)
				if err := <-m.ended; err != nil {
					t.Log(err)
				}
				time.Sleep(away)
				last := mustPropose(t, w.leader.node(), lock.Tick{}).Index
				w.startNode(m)
				began := time.Now()
				for m.node().Glance().Index < last && time.Since(began) < time.Minute {
					time.Sleep(10 * time.Millisecond)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("it lacks an entry for %s after it is back", took)
				}
			})
		})
	}
}

// A request that is kept for a node which is away holds nobody up who ends.
func TestARequestThatIsKeptEndsWithItsNode(t *testing.T) {
	for name, end := range map[string]func(*muzzle){
		"muted":  func(m *muzzle) { m.mute(errStopped) },
		"ended":  func(m *muzzle) { m.end(errStopped) },
		"closed": func(m *muzzle) { _ = m.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, time.Minute, func(t *testing.T) {
				_, away := raft.NewInmemTransport("n1:1")
				m := newMuzzle(away, func() uint64 { return 0 })
				defer m.Close() //nolint:errcheck // never an error
				done := make(chan error, 1)
				go func() {
					done <- m.AppendEntries("n2", "n2:1", &raft.AppendEntriesRequest{LeaderCommitIndex: 1}, &raft.AppendEntriesResponse{})
				}()
				began := time.Now()
				time.Sleep(time.Second)
				end(m)
				if err := <-done; err == nil || time.Since(began) != time.Second {
					t.Errorf("it ended after %s with %v", time.Since(began), err)
				}
			})
		})
	}
}

// A node that may not vote does not stand, whatever has become of the leader.
func TestAMuzzledNodeDoesNotStand(t *testing.T) {
	_, transport := raft.NewInmemTransport("n1:1")
	m := newMuzzle(transport, func() uint64 { return 0 })
	defer m.Close() //nolint:errcheck // never an error
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := m.stand(ctx); !errors.Is(err, errNoVote) {
		t.Errorf("a node without memory that is to stand says %v", err)
	}
}
