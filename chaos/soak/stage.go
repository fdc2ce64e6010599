package main

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/ticket"
	fencesql "github.com/lychgate/lychgate/sql"
	"github.com/lychgate/lychgate/sql/pgserver"
	"github.com/lychgate/lychgate/sql/pgserver/freeport"
)

// resources are few, so that many want the same.
var resources = []string{"account/1", "account/2", "account/3", "account/4"}

const cluster = "soak"

// soak is one run.
type soak struct {
	options options
	dir     string
	out     io.Writer
	dice    *rand.Rand

	postgres *pgserver.Server
	issuer   *issuer
	proxies  []*proxy // the last one is never killed: what it leaks is seen
	clients  []*process
	started  int // client processes so far

	record *record
	acts   map[string]int // troubles by name
}

func newSoak(o options, dir string, out io.Writer) *soak {
	return &soak{
		options: o, dir: dir, out: out, dice: rand.New(rand.NewPCG(o.seed, 0)),
		record: newRecord(), acts: map[string]int{},
	}
}

func (s *soak) open(ctx context.Context) error {
	log, err := os.Create(filepath.Join(s.dir, "postgres.log"))
	if err != nil {
		return err
	}
	s.postgres, err = pgserver.Start(ctx, pgserver.Config{Log: log, Settings: map[string]string{
		"fsync": "off", "max_connections": "200", // the operating system stays up
	}})
	if err != nil {
		return err
	}
	if err := s.prepare(ctx); err != nil {
		return fmt.Errorf("prepare the database: %w", err)
	}
	if s.issuer, err = newIssuer(); err != nil {
		return err
	}
	addresses, err := freeport.Addresses(6)
	if err != nil {
		return err
	}
	for i := range 3 {
		p := &proxy{name: fmt.Sprintf("proxy%d", i+1), listen: addresses[2*i], admin: addresses[2*i+1]}
		s.proxies = append(s.proxies, p)
		if err := s.startProxy(ctx, p); err != nil {
			return err
		}
	}
	for range s.options.clients {
		if err := s.startClient(); err != nil {
			return err
		}
	}
	return nil
}

func (s *soak) prepare(ctx context.Context) error {
	if err := s.superuser(ctx, "postgres", "create database app"); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, s.postgres.DSN("postgres", "app"))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }() // nothing is left to be lost
	if _, err := fencesql.Install(ctx, conn, fencesql.Options{}); err != nil {
		return err
	}
	sql := `create role app login;
		create table counter (resource text primary key, n bigint not null);
		create table written (resource text, place bigint, token bigint, op text);
		grant all on counter, written to app;`
	for _, r := range resources {
		sql += "insert into counter values ('" + r + "', 0);"
	}
	_, err = conn.PgConn().Exec(ctx, sql).ReadAll()
	return err
}

// superuser runs statements past the proxies.
func (s *soak) superuser(ctx context.Context, database, sql string) error {
	conn, err := pgx.Connect(ctx, s.postgres.DSN("postgres", database))
	if err != nil {
		return err
	}
	_, err = conn.PgConn().Exec(ctx, sql).ReadAll()
	return errors.Join(err, conn.Close(ctx))
}

// close ends everything that was started.
func (s *soak) close() error {
	for _, c := range s.clients {
		c.end()
	}
	for _, p := range s.proxies {
		if p.process != nil {
			p.process.end()
		}
	}
	if s.issuer != nil {
		_ = s.issuer.server.Close() // nobody asks any more
	}
	if s.postgres != nil {
		return s.postgres.Stop()
	}
	return nil
}

// issuer stands in for the coordinators: it grants, signs and publishes its key.
type issuer struct {
	signer  *ticket.Signer
	server  *http.Server
	address string

	mu   sync.Mutex
	last lease.Token
}

func newIssuer() (*issuer, error) {
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		return nil, err
	}
	i := &issuer{}
	if i.signer, err = ticket.NewSigner(private); err != nil {
		return nil, err
	}
	ring, err := ticket.NewKeyRing(cluster, []ticket.Key{i.signer.Key()})
	if err != nil {
		return nil, err
	}
	keys, err := ticket.Document{Ring: ring, Index: 1}.Marshal()
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /ticket", i.serveTicket)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(keys) })
	i.address = "http://" + l.Addr().String()
	i.server = &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = i.server.Serve(l) }() // ends with Close
	return i, nil
}

// grant is of a new token, larger than all before.
func (i *issuer) grant(resource string) (grant, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.last++
	var id [14]byte
	for n := range 8 {
		id[n] = byte(i.last >> (8 * n))
	}
	raw, err := i.signer.Sign(ticket.Claims{
		Cluster: cluster, Resource: lease.Resource(resource), Token: i.last, Mode: lease.Exclusive,
		Lease: lease.NewID(0, id).Hash(), Client: ticket.ClientHash("", "soak"),
	})
	return grant{Resource: resource, Token: uint64(i.last), Ticket: raw}, err
}

func (i *issuer) serveTicket(w http.ResponseWriter, r *http.Request) {
	g, err := i.grant(r.URL.Query().Get("resource"))
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(w).Encode(g) // the client is gone
}
