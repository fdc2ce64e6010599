package bench

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/load"
	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/stage"
)

// nodeCount is how many nodes a cluster has.
const nodeCount = 3

// Bounds of a cluster's life.
const (
	startTimeout = 60 * time.Second
)

// side is one of the two that are measured: a running cluster and its kind of workers.
type side interface {
	name() string
	addrs() []string
	// awaitReady blocks until every node serves.
	awaitReady(ctx context.Context) error
	// leader blocks until there is one, and tells which node it is.
	leader(ctx context.Context) (int, error)
	node(i int) *stage.Child
	// kill ends a node with SIGKILL; restart starts it again.
	kill(i int)
	restart(i int) error
	// worker is the command of a worker process.
	worker() *exec.Cmd
	stop()
}

// nodes are the processes of a cluster.
type nodes struct {
	children *stage.Children
	running  [nodeCount]*stage.Child
	start    func(i int) (*stage.Child, error)
}

func (n *nodes) node(i int) *stage.Child { return n.running[i] }

func (n *nodes) kill(i int) { n.running[i].Kill() }

func (n *nodes) restart(i int) error {
	p, err := n.start(i)
	if err != nil {
		return err
	}
	n.running[i] = p
	return nil
}

func (n *nodes) startAll() error {
	for i := range n.running {
		if err := n.restart(i); err != nil {
			return err
		}
	}
	return nil
}

func (n *nodes) stop() {
	for _, p := range n.running {
		if p != nil {
			p.Kill()
		}
	}
}

// broken is an error if a node that should run has ended.
func (n *nodes) broken(dir string) error {
	for i, p := range n.running {
		if p != nil && p.Ended() {
			return fmt.Errorf("node %d ended: %w; see %s", i+1, p.Err(), filepath.Join(dir, logName(i)))
		}
	}
	return nil
}

func nodeName(i int) string { return fmt.Sprintf("n%d", i+1) }

func logName(i int) string { return nodeName(i) + ".log" }

// logged opens the log of a node, to which it goes on writing when it is started again.
func logged(dir string, i int) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, logName(i)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
}

// planFor is what every plan has in common.
func (r *run) planFor(s side, kind, prefix string) load.Plan {
	return load.Plan{Kind: kind, Addrs: s.addrs(), Prefix: prefix, Ticketed: !r.config.NoTickets}
}
