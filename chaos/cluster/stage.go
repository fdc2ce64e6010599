//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	fencesql "github.com/lychgate/lychgate/sql"
	"github.com/lychgate/lychgate/sql/pgserver"
)

const ttl = 5 * time.Second

// resources are few, so that many want the same. The two accounts are taken together.
var resources = []string{"register/1", "register/2", "account/1", "account/2"}

type stage struct {
	options  options
	out      io.Writer
	dice     *rand.Rand
	began    time.Time
	db       *host
	nodes    []*service
	proxies  []*service
	clients  []*worker
	postgres *pgserver.Server
	record   *record
}

// run is the whole story, as the first process of its namespaces.
func run(ctx context.Context, o options, out io.Writer) error {
	s := &stage{options: o, out: out, dice: rand.New(rand.NewPCG(o.seed, 0)), began: time.Now(), record: newRecord()}
	if err := s.open(ctx); err != nil {
		return fmt.Errorf("set the stage: %w", errors.Join(err, s.close()))
	}
	s.makeTrouble(ctx)
	err := s.judge(ctx)
	return errors.Join(err, s.close())
}

func (s *stage) open(ctx context.Context) error {
	if err := s.mounts(); err != nil {
		return err
	}
	s.db = &host{"db", "10.77.0.1"}
	err := errors.Join(ip("link", "set", "lo", "up"), ip("link", "add", "br0", "type", "bridge"),
		ip("link", "set", "br0", "address", s.db.mac()), ip("addr", "add", s.db.address+"/24", "dev", "br0"), ip("link", "set", "br0", "up"))
	for i := range s.options.nodes {
		s.nodes = append(s.nodes, &service{host: &host{fmt.Sprintf("n%d", i+1), fmt.Sprintf("10.77.0.%d", 11+i)}})
	}
	for i := range 2 {
		s.proxies = append(s.proxies, &service{host: &host{fmt.Sprintf("p%d", i+1), fmt.Sprintf("10.77.0.%d", 21+i)}})
		s.clients = append(s.clients, &worker{host: &host{fmt.Sprintf("c%d", i+1), fmt.Sprintf("10.77.0.%d", 31+i)}})
	}
	for _, h := range s.hosts() {
		err = errors.Join(err, plug(h))
	}
	if err != nil {
		return err
	}
	if err := s.openDatabase(ctx); err != nil {
		return err
	}
	if err := s.openServices(ctx); err != nil {
		return err
	}
	for i, c := range s.clients {
		if err := s.startClient(i, c); err != nil {
			return err
		}
	}
	return nil
}

// hosts are all but the database.
func (s *stage) hosts() (all []*host) {
	for _, n := range s.nodes {
		all = append(all, n.host)
	}
	for i := range s.proxies {
		all = append(all, s.proxies[i].host, s.clients[i].host)
	}
	return all
}

// mounts are private: what is mounted here nobody else sees.
func (s *stage) mounts() error {
	err := syscall.Mount("none", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, "")
	err = errors.Join(err, syscall.Mount("proc", "/proc", "proc", 0, ""), os.MkdirAll("/run/netns", 0o755))
	if err != nil {
		return err
	}
	return syscall.Mount("tmpfs", "/run/netns", "tmpfs", 0, "size=1m")
}

// plug makes a host and connects it to the bridge.
func plug(h *host) error {
	return errors.Join(
		ip("netns", "add", h.name),
		ip("link", "add", "v-"+h.name, "type", "veth", "peer", "name", "eth0", "netns", h.name),
		ip("link", "set", "v-"+h.name, "master", "br0", "up"),
		ip("-n", h.name, "link", "set", "lo", "up"),
		ip("-n", h.name, "link", "set", "eth0", "address", h.mac()),
		ip("-n", h.name, "addr", "add", h.address+"/24", "dev", "eth0"),
		ip("-n", h.name, "link", "set", "eth0", "up"))
}

func (s *stage) openDatabase(ctx context.Context) error {
	log, err := os.Create(filepath.Join(s.options.report, "postgres.log"))
	if err != nil {
		return err
	}
	s.postgres, err = pgserver.Start(ctx, pgserver.Config{
		Log: log, HBA: []string{"host all all 10.77.0.0/24 trust"},
		Settings: map[string]string{"fsync": "off", "max_connections": "200", "listen_addresses": "127.0.0.1,10.77.0.1"},
	})
	if err != nil {
		return err
	}
	if err := s.sql(ctx, "postgres", "create database app"); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, s.postgres.DSN("postgres", "app"))
	if err != nil {
		return err
	}
	_, err = fencesql.Install(ctx, conn, fencesql.Options{})
	if err = errors.Join(err, conn.Close(ctx)); err != nil {
		return err
	}
	text := `create role app login;
		create table register (resource text primary key, n bigint not null, balance bigint not null);
		create table written (resource text, place bigint, token bigint, op text);
		grant all on register, written to app;`
	for _, r := range resources {
		text += "insert into register values ('" + r + "', 0, 1000);"
	}
	return s.sql(ctx, "app", text)
}

// sql runs statements past the proxies.
func (s *stage) sql(ctx context.Context, database, text string) error {
	conn, err := pgx.Connect(ctx, s.postgres.DSN("postgres", database))
	if err != nil {
		return err
	}
	_, err = conn.PgConn().Exec(ctx, text).ReadAll()
	return errors.Join(err, conn.Close(ctx))
}

func (s *stage) addresses(port int) (all []string) {
	for _, n := range s.nodes {
		all = append(all, fmt.Sprintf("%s:%d", n.address, port))
	}
	return all
}

const nodeConfig = "node: %s\ndir: %s\ninsecure: true\nlease: {min_ttl: 5s}\nlog: {level: info, format: text}\nmembers:\n"

const proxyConfig = `node: %[1]s
coordinators: [%[2]s]
watch: {addresses: [%[3]s]}
admin: %[4]s:7610
drain_timeout: 2s
postgres:
  - {listen: "%[4]s:7632", upstream: "10.77.0.1:%[5]d", database: app, policy: require, takeover_timeout: 5s,
     store: "postgres://lychgate_proxy@10.77.0.1:%[5]d/app?sslmode=disable"}
log: {level: info}
`

func (s *stage) openServices(ctx context.Context) error {
	members := ""
	for _, n := range s.nodes {
		members += fmt.Sprintf("  - {id: %s, peer: '%[2]s:7602', grpc: '%[2]s:7600', http: '%[2]s:7601'}\n", n.name, n.address)
	}
	for _, n := range s.nodes {
		n.dir = filepath.Join(s.options.report, "disk-"+n.name)
		if err := errors.Join(os.MkdirAll(n.dir, 0o700), syscall.Mount("tmpfs", n.dir, "tmpfs", 0, "size=96m")); err != nil {
			return err
		}
		if err := s.configure(n, "coordinator", fmt.Sprintf(nodeConfig, n.name, n.dir)+members); err != nil {
			return err
		}
	}
	for _, n := range s.nodes {
		if err := s.ready(ctx, n, 7601); err != nil {
			return err
		}
	}
	http, grpc := strings.Join(prefixed("http://", s.addresses(7601)), ", "), strings.Join(s.addresses(7600), ", ")
	for _, p := range s.proxies {
		if err := s.configure(p, "proxy", fmt.Sprintf(proxyConfig, p.name, http, grpc, p.address, s.postgres.Port())); err != nil {
			return err
		}
	}
	for _, p := range s.proxies {
		if err := s.ready(ctx, p, 7610); err != nil {
			return err
		}
	}
	return nil
}

func prefixed(prefix string, all []string) (with []string) {
	for _, a := range all {
		with = append(with, prefix+a)
	}
	return with
}

// configure writes a service's configuration and starts it.
func (s *stage) configure(p *service, kind, text string) error {
	path := filepath.Join(s.options.report, p.name+".yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return err
	}
	p.args = []string{kind, "--config", path}
	return p.start(s.options.binary, s.options.report)
}

// ready waits until a service says that it is.
func (s *stage) ready(ctx context.Context, p *service, port int) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c := http.Client{Timeout: time.Second}
	for {
		r, err := c.Get(fmt.Sprintf("http://%s:%d/readyz", p.address, port))
		if err == nil {
			_ = r.Body.Close() // only the status counts
			if r.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(r.Status)
		}
		if ctx.Err() != nil {
			return fmt.Errorf("%s is not ready: %w", p.name, err)
		}
		pause(ctx, 100*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// close ends everything; what it misses ends with the namespaces.
func (s *stage) close() error {
	for _, c := range s.clients {
		if c.cmd != nil {
			c.kill()
		}
	}
	for _, p := range append(s.nodes, s.proxies...) {
		if p.cmd != nil {
			p.kill()
		}
	}
	if s.postgres != nil {
		return s.postgres.Stop()
	}
	return nil
}
