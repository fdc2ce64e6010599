package group

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// onceOn runs a node over the files in dir until it leads or gives up, and says why it gave up.
func onceOn(t *testing.T, dir, node string, members ...string) error {
	t.Helper()
	config := Config{
		Node: node, Dir: dir, Listen: "127.0.0.1:0", Cluster: "owner", Lock: testLockConfig(),
		Timing: Timing{Heartbeat: 50 * time.Millisecond},
	}
	for _, id := range members {
		config.Members = append(config.Members, Member{ID: id, Peer: "peer-of-" + id + ":1"})
	}
	g, err := New(config)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- g.Run(ctx) }()
	for {
		changed := g.Changed()
		if _, self := g.Leader(); self {
			cancel()
			return <-ended
		}
		select {
		case err := <-ended:
			if ctx.Err() != nil {
				t.Fatalf("the node neither led nor gave up: %v", err)
			}
			return err
		case <-changed:
		}
	}
}

// A node comes back with what it promised and with nothing else.
func TestNodeOnlyStartsOnItsOwnMemory(t *testing.T) {
	remove := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			if err := os.RemoveAll(filepath.Join(dir, name)); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, test := range map[string]struct {
		harm    func(t *testing.T, dir string)
		node    string
		members []string
		want    string // part of the error; empty: it starts
	}{
		"untouched":             {node: "a", members: []string{"a"}},
		"made before the mark":  {harm: remove("group-0.node"), node: "a", members: []string{"a"}},
		"another node's":        {node: "b", members: []string{"b"}, want: `belongs to node "a"`},
		"without its log":       {harm: remove("group-0/log.db"), node: "a", members: []string{"a"}, want: "is gone"},
		"without its stores":    {harm: remove("group-0"), node: "a", members: []string{"a"}, want: "is gone"},
		"with a member more":    {node: "a", members: []string{"a", "b"}}, // which has not joined yet
		"everything is removed": {harm: remove("."), node: "b", members: []string{"b"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "data")
			if err := onceOn(t, dir, "a", "a"); err != nil {
				t.Fatal(err)
			}
			if test.harm != nil {
				test.harm(t, dir)
			}
			err := onceOn(t, dir, test.node, test.members...)
			switch {
			case test.want == "" && err != nil:
				t.Errorf("it does not start: %v", err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("got %v, want an error about %q", err, test.want)
			}
		})
	}
}

// A snapshot alone is no memory: the votes were in the log's file.
func TestSnapshotWithoutALogIsRefused(t *testing.T) {
	dir := t.TempDir()
	if err := onceOn(t, dir, "a", "a"); err != nil {
		t.Fatal(err)
	}
	stores, err := openStores(dir, 0, hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	sink, err := stores.Snapshots.Create(1, 2, 1, raft.Configuration{}, 1, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := sink.Close(); err != nil {
		t.Fatal(err)
	}
	if err := stores.close(); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"group-0.node", "group-0/log.db"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := onceOn(t, dir, "a", "a"); err == nil || !strings.Contains(err.Error(), "is gone") {
		t.Errorf("got %v, want a refusal", err)
	}
}
