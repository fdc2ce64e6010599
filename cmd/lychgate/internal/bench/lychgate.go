package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/load"
	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/stage"
	"github.com/lychgate/lychgate/sql/pgserver/freeport"
)

// lychgate is a cluster of coordinators, as "lychgate coordinator" runs them with default settings.
type lychgate struct {
	nodes
	program string
	dir     string
	grpc    []string
	relays  []*relay // between the nodes; nil: none
}

// startLychgate starts three nodes. With a delay their peer addresses are those of relays.
func startLychgate(c *stage.Children, program, dir string, least, most time.Duration) (*lychgate, error) {
	addrs, err := freeport.Addresses(3 * nodeCount)
	if err != nil {
		return nil, err
	}
	l := &lychgate{program: program, dir: dir, grpc: addrs[:nodeCount]}
	l.children, l.start = c, l.startNode
	http, listen := addrs[nodeCount:2*nodeCount], addrs[2*nodeCount:]
	peers := listen
	if most > 0 {
		if peers, err = l.relay(listen, least, most); err != nil {
			return nil, err
		}
	}
	if err := l.configure(peers, http, listen); err != nil {
		return nil, errors.Join(err, l.closeRelays())
	}
	if err := l.startAll(); err != nil {
		l.stop()
		return nil, err
	}
	return l, nil
}

// relay puts a relay in front of each peer port.
func (l *lychgate) relay(listen []string, least, most time.Duration) ([]string, error) {
	peers := make([]string, nodeCount)
	for i, to := range listen {
		r, err := newRelay(to, least, most)
		if err != nil {
			return nil, errors.Join(err, l.closeRelays())
		}
		l.relays = append(l.relays, r)
		peers[i] = r.addr()
	}
	return peers, nil
}

func (l *lychgate) closeRelays() error {
	for _, r := range l.relays {
		r.close()
	}
	return nil
}

// configure writes the nodes' configurations. Whatever is not in them is the default.
func (l *lychgate) configure(peers, http, listen []string) error {
	members := ""
	for i := range nodeCount {
		members += fmt.Sprintf("  - {id: n%d, peer: %s, grpc: %s, http: %s}\n", i+1, peers[i], l.grpc[i], http[i])
	}
	for i := range nodeCount {
		text := fmt.Sprintf("node: n%d\ndir: %s\nmembers:\n%slisten: {peer: %s}\n",
			i+1, filepath.Join(l.dir, nodeName(i)), members, listen[i])
		if err := os.MkdirAll(l.dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(l.config(i), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (l *lychgate) config(i int) string { return filepath.Join(l.dir, nodeName(i)+".yaml") }

func (l *lychgate) startNode(i int) (*stage.Child, error) {
	out, err := logged(l.dir, i)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the child has its own
	cmd := stage.Lychgate(l.program, "coordinator", "--config", l.config(i))
	cmd.Stdout, cmd.Stderr = out, out
	return l.children.Start(cmd)
}

func (l *lychgate) name() string      { return "lychgate" }
func (l *lychgate) addrs() []string   { return l.grpc }
func (l *lychgate) worker() *exec.Cmd { return stage.Lychgate(l.program, "bench", "worker") }

func (l *lychgate) stop() {
	l.nodes.stop()
	_ = l.closeRelays() // never fails
}

// awaitReady waits until every node follows a leader and votes.
func (l *lychgate) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return stage.Await(ctx, "start of lychgate", func() (bool, error, error) {
		if err := l.broken(l.dir); err != nil {
			return false, nil, err
		}
		for _, addr := range l.grpc {
			st, err := load.Status(ctx, addr)
			switch {
			case err != nil:
				return false, err, nil
			case st.GetBlank() || st.GetPending() != "" || st.GetLeader() == "":
				return false, fmt.Errorf("%s is not ready: %s", st.GetNode(), st.GetPending()), nil
			}
		}
		return true, nil, nil
	})
}

// leader asks the nodes which run for the leader of the first group, as the leader itself sees it.
func (l *lychgate) leader(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	at := 0
	err := stage.Await(ctx, "leader of lychgate", func() (bool, error, error) {
		for i, addr := range l.grpc {
			if l.running[i].Ended() {
				continue
			}
			st, err := load.Status(ctx, addr)
			if err == nil && st.GetLeader() == st.GetNode() && st.GetState() == "leader" {
				at = i
				return true, nil, nil
			}
		}
		return false, errors.New("no node leads"), nil
	})
	return at, err
}
