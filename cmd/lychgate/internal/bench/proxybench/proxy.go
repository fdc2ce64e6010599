package proxybench

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/stage"
	fencesql "github.com/lychgate/lychgate/sql"
	"github.com/lychgate/lychgate/sql/pgserver/freeport"
)

// startProxy starts a proxy of its own process with default settings, but for the number of connections. Its second
// listener also lets in who has no ticket; the difference is what binding costs.
func (r *run) startProxy(ctx context.Context) (fenced, lax target, err error) {
	addrs, err := freeport.Addresses(3)
	if err != nil {
		return target{}, target{}, err
	}
	dir, admin := r.path("proxy"), addrs[2]
	config := fmt.Sprintf("node: bench\nadmin: %s\ncoordinators: [%q]\npostgres:\n", admin, r.keys)
	for i, policy := range []string{"require", "allow"} {
		config += fmt.Sprintf("  - {listen: %s, policy: %s, upstream: %s, database: %s, store: %q, max_connections: %d}\n",
			addrs[i], policy, address(r.postgres.Host(), r.postgres.Port()), database,
			r.postgres.DSN(fencesql.DefaultProxyRole, database), r.size.idle+spareConnections)
	}
	process, err := r.lychgate(dir, "proxy", config)
	if err != nil {
		return target{}, target{}, err
	}
	err = stage.Await(ctx, "start of the proxy", func() (bool, error, error) {
		if process.Ended() {
			return false, nil, fmt.Errorf("the proxy ended: %w; see %s", process.Err(), dir)
		}
		lacking := ready(ctx, admin)
		return lacking == nil, lacking, nil
	})
	fenced = target{name: "lychgate", address: addrs[0], process: process}
	lax = target{name: "lychgate without a ticket", address: addrs[1], process: process}
	return fenced, lax, err
}

// ready is nil if the proxy says that it can serve.
func ready(ctx context.Context, admin string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+admin+"/readyz", nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, 10_000))
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("it is not ready: %s", strings.TrimSpace(string(text)))
	}
	return err
}
