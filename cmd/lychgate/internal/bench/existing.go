package bench

import (
	"context"
	"errors"
	"fmt"
	"os/exec"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/load"
)

// existing is a cluster that runs already: nothing is started, stopped or filled there.
type existing struct {
	program string
	grpc    []string
}

func (e *existing) name() string    { return "lychgate" }
func (e *existing) addrs() []string { return e.grpc }
func (e *existing) worker() *exec.Cmd {
	return &exec.Cmd{Path: e.program, Args: []string{"lychgate", "bench", "worker"}}
}

// awaitReady asks once: a cluster that runs already either serves or does not.
func (e *existing) awaitReady(ctx context.Context) error {
	for _, addr := range e.grpc {
		st, err := load.Status(ctx, addr)
		switch {
		case err != nil:
			return fmt.Errorf("%s: %w", addr, err)
		case st.GetLeader() == "":
			return fmt.Errorf("%s knows no leader", addr)
		}
	}
	return nil
}

var errExisting = errors.New("the cluster is not this run's")

func (e *existing) leader(context.Context) (int, error) { return 0, errExisting }
func (e *existing) node(int) *child                     { return nil }
func (e *existing) kill(int)                            {}
func (e *existing) restart(int) error                   { return errExisting }
func (e *existing) stop()                               {}
