package group

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"

	"github.com/lychgate/lychgate/coordinator/internal/lock"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// wantRestored starts a restored node, and checks that its tokens are above last, that nothing is held, and that another
// node with an empty folder can join it.
func (d *durable) wantRestored(m, joins *member, restored Restored, last lease.Token) {
	d.t.Helper()
	d.startThese(m)
	g := d.leader().node()
	if v := holder(d.t, g, "a/0"); len(v.Holders) != 0 {
		d.t.Errorf("a lease of the earlier life is held: %+v", v)
	}
	next := d.grant("z", 1)
	if next.Incarnation() != restored.Incarnation || next <= last {
		d.t.Errorf("token %d of incarnation %d after %d, want incarnation %d", next, next.Incarnation(), last, restored.Incarnation)
	}
	if got := votersOf(g); got != m.id {
		d.t.Errorf("voters: %s", got)
	}
	d.startThese(joins)
	if err := d.change(func(ctx context.Context, g *Group) error { return g.Join(ctx, joins.asMember()) }); err != nil {
		d.t.Error(err)
	}
	d.awaitVote(joins)
	d.awaitSame(m, joins)
}

// A backup is restored into empty folders. The cluster had gone on after it; no token of that time comes again.
func TestRestoreABackup(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		d := newDurable(t, 3)
		n1, n2 := d.members[0], d.members[1]
		d.startThese(d.members...)
		d.grant("a", 30)
		var backup bytes.Buffer
		leader := d.leader()
		saved, err := save(context.Background(), leader.node(), &backup)
		if err != nil {
			t.Fatal(err)
		}
		if saved.Index == 0 || saved.Term == 0 || len(saved.Members) != 3 || saved.Cluster == "" {
			t.Errorf("saved %+v", saved)
		}
		follower := d.others(leader)[0]
		_, err = save(context.Background(), follower.node(), &bytes.Buffer{})
		wantKind(t, "a save on a follower", err, NotLeader)
		last := d.grant("b", 30) // which the backup does not have
		d.kill(d.members...)
		for _, m := range d.members {
			d.empty(m)
		}
		restored, err := Restore(Restoration{
			Dir: d.folder("n1"), Node: "n1", Peer: string(n1.address), Backup: bytes.NewReader(backup.Bytes()), Cluster: saved.Cluster, Known: []uint32{3},
		})
		if err != nil {
			t.Fatal(err)
		}
		if restored.Ended != 30 || restored.Incarnation < 4 || restored.Incarnation > 3+drawn || restored.Aside != "" {
			t.Errorf("restored %+v", restored)
		}
		d.wantRestored(n1, n2, restored, last)
		d.end(n1, n2)
	})
}

// Of three nodes one is left. What only it and the lost majority had is in it, and what it had in its log alone ends, too.
func TestRecoverFromASurvivor(t *testing.T) {
	for _, snapshots := range []uint64{8192, 20} {
		t.Run(fmt.Sprintf("a snapshot every %d entries", snapshots), func(t *testing.T) {
			bubble(t, time.Minute, func(t *testing.T) {
				d := newDurable(t, 3)
				folders := d.adjust
				d.adjust = func(c *Config) {
					folders(c)
					c.Limits.SnapshotEvery, c.Limits.TrailingLogs, c.Timing.Snapshot = snapshots, 5, 200*time.Millisecond
				}
				d.startThese(d.members...)
				last := d.grant("a", 50)
				survivor, lost := d.leader(), d.others(d.leader())
				for _, m := range lost {
					d.network.isolate(m.address, true)
				}
				ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
				_, err := survivor.node().Propose(ctx, testAcquire("tail", "1", "tail", 250)) // it reaches no other log
				cancel()
				wantKind(t, "an acquire that nobody else has", err, Unknown)
				d.kill(d.members...)
				for _, m := range lost {
					d.empty(m)
				}
				restored, err := Restore(Restoration{Dir: d.folder(survivor.id), Node: survivor.id, Peer: string(survivor.address)})
				if err != nil {
					t.Fatal(err)
				}
				if restored.Ended != 51 || restored.Aside == "" {
					t.Errorf("restored %+v, want 51 leases ended: the tail of the log counts", restored)
				}
				if _, err := os.Stat(filepath.Join(restored.Aside, "log.db")); err != nil {
					t.Errorf("the old folder is gone: %v", err)
				}
				d.wantRestored(survivor, lost[0], restored, last)
				d.end(survivor, lost[0])
			})
		})
	}
}

// aBackup is a small cluster's, and its description.
func aBackup(t *testing.T) ([]byte, Saved) {
	t.Helper()
	var backup bytes.Buffer
	var saved Saved
	bubble(t, time.Minute, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		c.start()
		mustGrant(t, c.leader().node(), testAcquire("a", "1", "x", 1))
		var err error
		if saved, err = save(context.Background(), c.leader().node(), &backup); err != nil {
			t.Fatal(err)
		}
		c.stopAll()
	})
	return backup.Bytes(), saved
}

// Whatever is wrong with a backup is found before anything is written.
func TestBackupsThatAreRefused(t *testing.T) {
	whole, saved := aBackup(t)
	for _, c := range []struct {
		name   string
		change func(r *Restoration)
		backup []byte
		want   string
	}{
		{"empty", nil, nil, "damaged"},
		{"another file", nil, []byte("PK\x03\x04 and so on, and on"), "does not begin as one"},
		{"cut in its head", nil, whole[:20], "cut"},
		{"cut in its state", nil, whole[:len(whole)-1], "damaged"},
		{"longer", nil, append(bytes.Clone(whole), 0), "damaged"},
		{"another group's", func(r *Restoration) { r.Group = 1 }, whole, "is of group 0 and not of group 1"},
		{"another cluster's", func(r *Restoration) { r.Cluster = "other" }, whole, `and not of "other"`},
		{"an incarnation that was", func(r *Restoration) { r.Incarnation, r.Known = 7, []uint32{7} }, whole, "is not above 7"},
		{"an incarnation too high", func(r *Restoration) { r.Incarnation = lease.MaxIncarnation + 1 }, whole, "the highest that there is"},
		{"no incarnation left", func(r *Restoration) { r.Known = []uint32{lease.MaxIncarnation} }, whole, "tokens can grow no more"},
		{"no node", func(r *Restoration) { r.Node = "" }, whole, "no node"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			r := Restoration{Dir: dir, Node: "n1", Peer: "n1:7602", Backup: bytes.NewReader(c.backup)}
			if c.change != nil {
				c.change(&r)
			}
			if _, err := Restore(r); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want an error with %q", err, c.want)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("it left %v, %v", left, err)
			}
		})
	}
	t.Run("every flipped bit", func(t *testing.T) {
		for i := range len(whole) {
			flipped := bytes.Clone(whole)
			flipped[i] ^= 1 << (i % 8)
			if _, err := Restore(Restoration{Dir: t.TempDir(), Node: "n1", Peer: "n1:7602", Backup: bytes.NewReader(flipped)}); err == nil {
				t.Fatalf("a flipped bit in byte %d of %d is not found", i, len(whole))
			}
		}
	})
	t.Run("a folder that is not empty", func(t *testing.T) {
		dir := t.TempDir()
		r := Restoration{Dir: dir, Node: "n1", Peer: "n1:7602", Backup: bytes.NewReader(whole), Cluster: saved.Cluster}
		if _, err := Restore(r); err != nil {
			t.Fatal(err)
		}
		r.Backup = bytes.NewReader(whole)
		if _, err := Restore(r); err == nil || !strings.Contains(err.Error(), "not empty") {
			t.Errorf("got %v", err)
		}
		r.Backup, r.Node = nil, "n2"
		if _, err := Restore(r); err == nil || !strings.Contains(err.Error(), `belongs to node "n1"`) {
			t.Errorf("as another node's survivor: got %v", err)
		}
	})
	t.Run("a survivor without a log", func(t *testing.T) {
		if _, err := Restore(Restoration{Dir: t.TempDir(), Node: "n1", Peer: "n1:7602"}); err == nil || !strings.Contains(err.Error(), "not a survivor's") {
			t.Errorf("got %v", err)
		}
	})
}

// Two restores of one backup are two lives: their incarnations are drawn, within what is left.
func TestIncarnationsAreDrawn(t *testing.T) {
	for _, c := range []struct {
		draw uint32
		have []uint32
		want uint32
	}{
		{0, nil, 1},
		{255, nil, 256},
		{17, []uint32{4, 90, 3}, 108},
		{255, []uint32{lease.MaxIncarnation - 1}, lease.MaxIncarnation},
		{200, []uint32{lease.MaxIncarnation - 100}, lease.MaxIncarnation - 100 + 1 + 0},
	} {
		got, err := nextIncarnation(c.draw, c.have...)
		if err != nil || got != c.want {
			t.Errorf("draw %d above %v: %d, %v, want %d", c.draw, c.have, got, err, c.want)
		}
	}
	seen := make(map[uint32]bool)
	for range 50 {
		n, err := NextIncarnation(5)
		if err != nil || n <= 5 || n > 5+drawn {
			t.Fatalf("got %d, %v", n, err)
		}
		seen[n] = true
	}
	if len(seen) < 20 {
		t.Errorf("50 draws give only %d incarnations", len(seen))
	}
}

// A writer that fails ends a save.
func TestASaveThatFails(t *testing.T) {
	bubble(t, time.Minute, func(t *testing.T) {
		c := newCluster(t, 1, nil)
		c.start()
		defer c.stopAll()
		g := c.leader().node()
		full := errors.New("full")
		if _, err := save(context.Background(), g, failingWriter{full}); !errors.Is(err, full) {
			t.Errorf("got %v", err)
		}
	})
}

// save writes a save as a call for one does, with all that was acknowledged before.
func save(ctx context.Context, g *Group, w io.Writer) (Saved, error) {
	if _, err := g.Read(ctx, func(*lock.Machine) {}); err != nil {
		return Saved{}, err
	}
	state, info := g.Freeze()
	saved := Saved{
		Cluster: info.Cluster, Incarnation: info.Incarnation, Version: info.Version, Index: info.Index, Term: g.Status().Term,
	}
	for _, p := range g.Peers() {
		saved.Members = append(saved.Members, p.ID)
	}
	return saved, WriteSave(w, saved, state)
}

type failingWriter struct{ err error }

func (w failingWriter) Write([]byte) (int, error) { return 0, w.err }

// A tail that a deposed leader left behind an installed snapshot is no part of the state; what follows it is.
func TestReplayKnowsItsHistory(t *testing.T) {
	entry := func(index, term uint64) *raft.Log {
		log, err := seal(term, lock.Entry{Commands: []lock.Command{lock.Tick{}}})
		if err != nil {
			t.Fatal(err)
		}
		log.Index, log.Term = index, term
		return &log
	}
	for _, c := range []struct {
		name string
		logs []*raft.Log
		want uint64
		fail bool
	}{
		{"nothing", nil, 10, false},
		{"what follows", []*raft.Log{entry(10, 5), entry(11, 5), entry(12, 6)}, 12, false},
		{"what follows, compacted", []*raft.Log{entry(11, 5), entry(12, 6)}, 12, false},
		{"another history", []*raft.Log{entry(9, 3), entry(10, 3), entry(11, 3)}, 10, false},
		{"another history, its beginning removed", []*raft.Log{entry(11, 3), entry(12, 3)}, 10, false},
		{"a hole", []*raft.Log{entry(12, 6)}, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			logs := raft.NewInmemStore()
			if err := logs.StoreLogs(c.logs); err != nil {
				t.Fatal(err)
			}
			s := &state{machine: lock.New(), index: 10, term: 5}
			err := s.replay(logs)
			if c.fail != (err != nil) || !c.fail && s.index != c.want {
				t.Errorf("it ends at %d, %v, want %d", s.index, err, c.want)
			}
		})
	}
}

// A damaged log file is an error that names it, and not the end of the process.
func TestADamagedLogFile(t *testing.T) {
	dir := t.TempDir()
	if err := onceOn(t, dir, "a", "a"); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "group-0", "log.db")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	for name, damage := range map[string]func(b []byte) []byte{
		"cut to its head":  func(b []byte) []byte { return b[:2*page] },
		"cut in a page":    func(b []byte) []byte { return b[:2*page+100] },
		"zeroed":           func(b []byte) []byte { clear(b[2*page:]); return b },
		"zeroed, all":      func(b []byte) []byte { clear(b); return b },
		"overwritten":      func(b []byte) []byte { copy(b[2*page:], bytes.Repeat([]byte{0xff}, len(b)-2*page)); return b },
		"not a log":        func([]byte) []byte { return []byte(strings.Repeat("hello ", 5000)) },
		"lengths that lie": func(b []byte) []byte { return lyingLengths(b, page) },
	} {
		t.Run(name, func(t *testing.T) {
			if err := os.WriteFile(path, damage(bytes.Clone(whole)), 0o600); err != nil {
				t.Fatal(err)
			}
			stores, err := openStores(dir, 0, hclog.NewNullLogger())
			if err == nil {
				t.Errorf("it opens")
				_ = stores.close()
				return
			}
			if !strings.Contains(err.Error(), "log") {
				t.Errorf("got %v", err)
			}
		})
	}
	choices := rand.New(rand.NewPCG(1, 1))
	for range 200 { // not every change is found, but none ends the process
		changed := bytes.Clone(whole)
		for range 1 + choices.IntN(4) {
			changed[choices.IntN(len(changed))] = byte(choices.Uint32())
		}
		if err := os.WriteFile(path, changed, 0o600); err != nil {
			t.Fatal(err)
		}
		if store, err := openBolt(path); err == nil {
			_ = store.Close()
		}
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	stores, err := openStores(dir, 0, hclog.NewNullLogger())
	if err != nil {
		t.Fatalf("the whole one does not open: %v", err)
	}
	if err := stores.close(); err != nil {
		t.Error(err)
	}
}

// lyingLengths makes every page but the two meta pages claim more elements than it has room for.
func lyingLengths(b []byte, page int) []byte {
	for at := 2 * page; at+page <= len(b); at += page {
		b[at+10], b[at+11] = 0xff, 0x7f
	}
	return b
}
