// Package dev runs everything on one machine to try Lychgate out: three coordinator nodes in this process, a
// proxy, and a throw-away PostgreSQL with a fenced demo table. It is not for data that matters.
package dev

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lychgate/lychgate/coordinator"
	"github.com/lychgate/lychgate/coordinator/ticket"
	"github.com/lychgate/lychgate/proxy"
	"github.com/lychgate/lychgate/sql/pgserver"
)

// Config says what to run. The zero value keeps nothing and uses free ports.
type Config struct {
	Dir          string // keeps the data; empty: a temporary folder, removed at the end
	Postgres     string // connection string of a superuser to a server that runs already; empty: a throw-away one
	PostgresPort int    // of the throw-away server; 0: a free one
	Ports        Ports
	Logger       *slog.Logger
	Stopping     func()    // called once, when the stop begins; may be nil
	PostgresLog  io.Writer // the throw-away server's log; nil: dropped
}

// Bounds of the parts.
const (
	startTimeout = 2 * time.Minute
	drainTimeout = 2 * time.Second // dev is stopped by a person who waits
	pollInterval = 20 * time.Millisecond
)

// Run starts everything, calls ready once it can be used, and blocks until ctx is done or a part breaks. When
// it returns, all that it started has ended; after a stop by ctx the error is nil.
func Run(ctx context.Context, c Config, ready func(Endpoints) error) (err error) {
	ports, err := c.Ports.resolve()
	if err != nil {
		return err
	}
	dir, remove, err := c.folder()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	r := &runner{config: c, dir: dir, ports: ports, stack: newStack(ctx)}
	defer func() {
		if c.Stopping != nil {
			c.Stopping()
		}
		err = errors.Join(err, r.stack.stop())
	}()
	e, err := r.start()
	if err == nil {
		err = ready(e)
	}
	if err == nil {
		<-r.stack.ctx.Done()
		err = context.Cause(r.stack.ctx)
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil // a planned stop
	}
	return err
}

// folder is where the data lives, and how to remove it if it is temporary.
func (c Config) folder() (dir string, remove func() error, err error) {
	if c.Dir == "" {
		dir, err = os.MkdirTemp("", "lychgate-dev-")
		if err == nil {
			err = os.Chmod(dir, 0o755) // PostgreSQL may run under an account of its own
		}
		return dir, func() error { return os.RemoveAll(dir) }, err
	}
	if dir, err = filepath.Abs(c.Dir); err == nil {
		err = os.MkdirAll(dir, 0o755)
	}
	return dir, func() error { return nil }, err
}

type runner struct {
	config Config
	dir    string
	ports  addresses
	stack  *stack
}

// start brings the parts up one after the other.
func (r *runner) start() (Endpoints, error) {
	ctx, cancel := context.WithTimeout(r.stack.ctx, startTimeout)
	defer cancel()
	superuser, err := r.startPostgres(ctx)
	if err != nil {
		return Endpoints{}, err // names its part
	}
	if err := r.startNodes(); err != nil {
		return Endpoints{}, err
	}
	cluster, err := r.cluster(ctx)
	if err != nil {
		return Endpoints{}, err
	}
	db, err := prepare(ctx, superuser, r.config.Postgres == "", cluster)
	if err != nil {
		return Endpoints{}, inPart("database", err)
	}
	if err := r.startProxy(ctx, db); err != nil {
		return Endpoints{}, inPart("proxy", err)
	}
	e := Endpoints{
		Proxy: r.ports.proxy, Admin: "http://" + r.ports.admin, Dir: r.dir,
		Database: appDatabase, User: appRole, Password: db.appPassword, Direct: db.direct, HTTP: r.urls(),
	}
	if r.config.Postgres == "" {
		e.Superuser = db.superuser
	}
	for _, n := range r.ports.nodes {
		e.GRPC = append(e.GRPC, n.grpc)
	}
	return e, nil
}

// startPostgres returns a superuser's connection string.
func (r *runner) startPostgres(ctx context.Context) (string, error) {
	if r.config.Postgres != "" {
		return r.config.Postgres, nil
	}
	server, err := pgserver.Start(ctx, pgserver.Config{
		Dir: filepath.Join(r.dir, "postgres"), Port: r.config.PostgresPort, Log: r.config.PostgresLog,
	})
	if err != nil {
		return "", err
	}
	r.stack.run("PostgreSQL", func(ctx context.Context) error {
		<-ctx.Done()
		return inPart("PostgreSQL", server.Stop())
	})
	return server.DSN("postgres", "postgres"), nil
}

func (r *runner) startNodes() error {
	var members []coordinator.Member
	for i, n := range r.ports.nodes {
		members = append(members, coordinator.Member{ID: nodeName(i), Peer: n.peer, GRPC: n.grpc, HTTP: n.http})
	}
	var nodes []*coordinator.Node
	for _, m := range members {
		c := coordinator.DefaultConfig()
		c.Node, c.Dir, c.Members = m.ID, filepath.Join(r.dir, m.ID), members
		node, err := coordinator.New(c, coordinator.Deps{Logger: r.config.Logger})
		if err != nil {
			return err
		}
		nodes = append(nodes, node)
	}
	r.stack.run("the coordinator", func(ctx context.Context) error { return runAll(ctx, nodes) })
	for _, node := range nodes {
		if err := r.stack.await(node.Ready()); err != nil {
			return err
		}
	}
	return nil
}

// cluster learns the name of the cluster, which a new one gives itself.
func (r *runner) cluster(ctx context.Context) (string, error) {
	keys, err := ticket.NewRemote(ticket.RemoteConfig{URLs: r.urls()})
	if err != nil {
		return "", err
	}
	defer keys.Close()
	if err := keys.Refresh(ctx); err != nil {
		return "", err
	}
	return keys.Cluster(), nil
}

// urls are the HTTP addresses of the nodes.
func (r *runner) urls() []string {
	var urls []string
	for _, n := range r.ports.nodes {
		urls = append(urls, "http://"+n.http)
	}
	return urls
}

func nodeName(i int) string { return fmt.Sprintf("n%d", i+1) }

// runAll runs the nodes and stops them together: there is nobody left to hand leadership to.
func runAll(ctx context.Context, nodes []*coordinator.Node) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, node := range nodes {
		group.Go(func() error { return node.Run(ctx) })
	}
	return group.Wait()
}

func (r *runner) startProxy(ctx context.Context, db database) error {
	c := proxy.DefaultConfig()
	c.Node, c.Admin, c.DrainTimeout = "dev", r.ports.admin, drainTimeout
	c.Coordinators = r.urls()
	for _, n := range r.ports.nodes {
		c.Watch.Addresses = append(c.Watch.Addresses, n.grpc)
	}
	c.Postgres = []proxy.Postgres{{Listen: r.ports.proxy, Upstream: db.upstream, Database: appDatabase, Store: db.store}}
	server, err := proxy.New(c.WithDefaults(), proxy.Deps{Logger: r.config.Logger})
	if err != nil {
		return err
	}
	r.stack.run("proxy", func(ctx context.Context) error { return inPart("proxy", server.Run(ctx)) })
	if err := r.stack.await(server.Bound()); err != nil {
		return err
	}
	return untilEmpty(ctx, func() []string { return append(server.Problems(), server.Degraded()...) })
}

// untilEmpty polls until there are no problems left, and says which there are when it may not wait any longer.
func untilEmpty(ctx context.Context, problems func() []string) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		left := problems()
		if len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("not ready: %v: %w", left, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

func inPart(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, err)
}
