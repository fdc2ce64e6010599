package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/stage"
	"github.com/lychgate/lychgate/sql/pgserver/freeport"
)

// etcd is a cluster of the peer's nodes, with its default settings; program is that of .ci/etcd.
type etcd struct {
	nodes
	program string
	dir     string
	clients []string
}

func startEtcd(c *stage.Children, program, dir string) (*etcd, error) {
	addrs, err := freeport.Addresses(2 * nodeCount)
	if err != nil {
		return nil, err
	}
	e := &etcd{program: program, dir: dir, clients: addrs[:nodeCount]}
	e.children, e.start = c, e.startNode
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	if err := e.configure(addrs[nodeCount:]); err != nil {
		return nil, err
	}
	if err := e.startAll(); err != nil {
		e.stop()
		return nil, err
	}
	return e, nil
}

func (e *etcd) configure(peers []string) error {
	members := map[string]string{}
	for i, p := range peers {
		members[nodeName(i)] = p
	}
	for i := range nodeCount {
		name := nodeName(i)
		text, err := json.Marshal(map[string]any{
			"name": name, "dir": filepath.Join(e.dir, name), "client": e.clients[i], "members": members,
			"log": filepath.Join(e.dir, "etcd-"+logName(i)),
		})
		if err != nil {
			return err
		}
		if err := os.WriteFile(e.config(i), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (e *etcd) config(i int) string { return filepath.Join(e.dir, nodeName(i)+".json") }

func (e *etcd) startNode(i int) (*stage.Child, error) {
	out, err := logged(e.dir, i)
	if err != nil {
		return nil, err
	}
	defer out.Close() // the child has its own
	cmd := exec.Command(e.program, "node", e.config(i))
	cmd.Stdout, cmd.Stderr = out, out
	return e.children.Start(cmd)
}

func (e *etcd) name() string      { return "etcd" }
func (e *etcd) addrs() []string   { return e.clients }
func (e *etcd) worker() *exec.Cmd { return exec.Command(e.program, "worker") }

// awaitReady waits until every node answers a linearizable question.
func (e *etcd) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return stage.Await(ctx, "start of etcd", func() (bool, error, error) {
		if err := e.broken(e.dir); err != nil {
			return false, nil, err
		}
		_, err := e.ask(ctx, append([]string{"ready"}, e.clients...))
		return err == nil, err, nil
	})
}

func (e *etcd) leader(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	addr, err := e.ask(ctx, append([]string{"leader"}, e.clients...))
	if err != nil {
		return 0, fmt.Errorf("leader of etcd: %w", err)
	}
	i := slices.Index(e.clients, addr)
	if i < 0 {
		return 0, fmt.Errorf("leader of etcd: %q is none of the nodes", addr)
	}
	return i, nil
}

// ask runs the peer's program for one answer.
func (e *etcd) ask(ctx context.Context, args []string) (string, error) {
	var out, stderr bytes.Buffer
	cmd := exec.Command(e.program, args...)
	cmd.Stdout, cmd.Stderr = &out, &stderr
	p, err := e.children.Start(cmd)
	if err != nil {
		return "", err
	}
	select {
	case <-p.Exited():
	case <-ctx.Done():
		p.Kill()
		return "", context.Cause(ctx)
	case <-time.After(startTimeout):
		p.Kill()
		return "", errors.New("no answer")
	}
	if p.Err() != nil {
		return "", fmt.Errorf("%w: %s", p.Err(), strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSpace(out.String()), nil
}
