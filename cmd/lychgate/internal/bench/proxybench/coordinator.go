package proxybench

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/load"
	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/stage"
	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/sql/pgserver/freeport"
)

// leaseTTL is long: the machine is kept busy, and a lease that is lost would be no fault of the proxy.
const leaseTTL = 10 * time.Minute

// startCoordinator starts one node, which is all that it takes to grant leases and sign tickets, and leaves r.locks
// connected to it.
func (r *run) startCoordinator(ctx context.Context) error {
	addrs, err := freeport.Addresses(3)
	if err != nil {
		return err
	}
	grpc, http, peer := addrs[0], addrs[1], addrs[2]
	dir := r.path("coordinator")
	r.keys = "http://" + http
	config := fmt.Sprintf("node: n1\ndir: %s\nmembers:\n  - {id: n1, peer: %s, grpc: %s, http: %s}\n", filepath.Join(dir, "n1"), peer, grpc, http)
	node, err := r.lychgate(dir, "coordinator", config)
	if err != nil {
		return err
	}
	if r.locks, err = client.Dial(client.Config{Addrs: []string{grpc}, TTL: leaseTTL}); err != nil {
		return err
	}
	return stage.Await(ctx, "start of the coordinator", func() (bool, error, error) {
		if node.Ended() {
			return false, nil, fmt.Errorf("the coordinator ended: %w; see %s", node.Err(), dir)
		}
		st, err := load.Status(ctx, grpc)
		if err == nil && (st.GetBlank() || st.GetPending() != "" || st.GetLeader() == "") {
			err = fmt.Errorf("it is not ready: %s", st.GetPending())
		}
		return err == nil, err, nil
	})
}

// lychgate starts a part of the product, with its configuration and its log in a folder of its own.
func (r *run) lychgate(dir, part, config string) (*stage.Child, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, part+".yaml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, part+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the child has its own
	cmd := stage.Lychgate(r.config.Program, part, "--config", file)
	cmd.Stdout, cmd.Stderr = log, log
	return r.children.Start(cmd)
}
