package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"time"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/stage"
	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// existing is a cluster that runs already: nothing is started, stopped or filled there.
type existing struct {
	program string
	flags   []string
	grpc    []string
	client  client.Config
}

func (e *existing) name() string    { return "lychgate" }
func (e *existing) addrs() []string { return e.grpc }
func (e *existing) worker() *exec.Cmd {
	return &exec.Cmd{Path: e.program, Args: append([]string{"lychgate", "bench", "worker"}, e.flags...)}
}

// awaitReady asks once: a cluster that runs already either serves or does not.
func (e *existing) awaitReady(ctx context.Context) error {
	for _, addr := range e.grpc {
		st, err := e.status(ctx, addr)
		switch {
		case err != nil:
			return err
		case st.GetLeader() == "":
			return fmt.Errorf("%s knows no leader", addr)
		}
	}
	return nil
}

// statusTimeout bounds how long a node is waited for.
const statusTimeout = 5 * time.Second

func (e *existing) status(ctx context.Context, addr string) (*lockpb.StatusResponse, error) {
	cfg := e.client
	cfg.Addrs = []string{addr}
	c, err := client.Dial(cfg)
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }() // nothing was changed
	ctx, cancel := context.WithTimeoutCause(ctx, statusTimeout, fmt.Errorf("no answer within %v", statusTimeout))
	defer cancel()
	return c.Cluster().Status(ctx, &lockpb.StatusRequest{})
}

var errExisting = errors.New("the cluster is not this run's")

func (e *existing) leader(context.Context) (int, error) { return 0, errExisting }
func (e *existing) node(int) *stage.Child               { return nil }
func (e *existing) kill(int)                            {}
func (e *existing) restart(int) error                   { return errExisting }
func (e *existing) stop()                               {}
