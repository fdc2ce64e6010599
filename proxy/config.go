// Package proxy is the process that stands in front of the stores: it listens for the stores' own protocols,
// lets in only connections whose ticket the store accepts, and relays them. It holds no state of its own,
// so any number of proxies may stand side by side.
//
// This package is the facade: configuration, listeners, readiness and drain. What decides is package gate,
// what speaks a protocol is an adapter, what remembers is a fence store.
package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lychgate/lychgate/adapters/postgres"
	"github.com/lychgate/lychgate/fencestore/pgstore"
	"github.com/lychgate/lychgate/proxy/gate"
)

// Config is a proxy. DefaultConfig has the values that a file may leave out; Validate says what is wrong.
type Config struct {
	Node         string   `koanf:"node"`         // names this proxy in logs and metrics
	Coordinators []string `koanf:"coordinators"` // HTTP addresses that publish the keys of tickets
	// CoordinatorTLS is for coordinators of https:// addresses.
	CoordinatorTLS CoordinatorTLS `koanf:"coordinator_tls"`
	Watch          Watch          `koanf:"watch"`
	Cluster        string         `koanf:"cluster"` // the cluster whose tickets count; empty: that of the first coordinator that answers
	Admin          string         `koanf:"admin"`   // metrics, health and the table of bindings; not for the world
	Postgres       []Postgres     `koanf:"postgres"`
	Limits         Limits         `koanf:"limits"`
	Console        Console        `koanf:"console"`
	ReusePort      bool           `koanf:"reuse_port"`    // another process of the same user may listen too, the next proxy before this one stops
	DrainTimeout   time.Duration  `koanf:"drain_timeout"` // from a stop to cutting what still runs
	Log            Log            `koanf:"log"`
}

// Postgres is one listener in front of one database: floors live in the database, so each has its own.
type Postgres struct {
	Listen   string `koanf:"listen"`
	Upstream string `koanf:"upstream"` // host:port, or /folder/of/the/socket:port; several hosts are separated by commas
	// TargetSessionAttrs is which of the hosts may be the server: read-write, primary or any; empty: read-write where there are
	// several. The store's connections go to the same one, whatever host its connection string has.
	TargetSessionAttrs string        `koanf:"target_session_attrs"`
	Database           string        `koanf:"database"`
	Store              string        `koanf:"store"`        // connection string of the proxy's own role, for its side connections
	StoreConns         int           `koanf:"store_conns"`  // side connections, always open
	Policy             string        `koanf:"policy"`       // what a connection without a ticket gets: the text of a gate.Policy
	Replication        string        `koanf:"replication"`  // refuse or serve replication connections
	OnLeaseEnd         string        `koanf:"on_lease_end"` // keep or cut the bindings of a lease that ended without a successor
	TLS                TLS           `koanf:"tls"`
	ProxyProtocol      ProxyProtocol `koanf:"proxy_protocol"`
	UpstreamTLS        UpstreamTLS   `koanf:"upstream_tls"`
	Auth               Auth          `koanf:"auth"`
	AllowUnsigned      bool          `koanf:"allow_unsigned"` // accept fence.resource and fence.token unsigned: for development
	MaxConnections     int           `koanf:"max_connections"`
	TakeoverTimeout    time.Duration `koanf:"takeover_timeout"` // how long a successor waits for old sessions to be gone
}

// Watch is how the proxy follows what the coordinators grant, so that old holders are fenced before the new one comes.
// TLS is that of the coordinators: it is spoken where they have https:// addresses.
type Watch struct {
	Addresses []string `koanf:"addresses"`  // gRPC addresses of coordinators or gateways; empty: there is no watch
	TokenFile string   `koanf:"token_file"` // of an identity with the right "read"; empty: none, or the certificate tells
	Prefix    string   `koanf:"prefix"`     // of the resources that are watched; empty: all
	// FoldEvery is how often the floors of resources that nobody uses are folded into one in the store; 0: never. It takes the
	// right "read" for everything, and at least one address of a coordinator.
	FoldEvery time.Duration `koanf:"fold_every"`
}

// CoordinatorTLS are PEM files. Empty: the CAs that the system trusts, and no certificate of the proxy's own.
type CoordinatorTLS struct {
	CA   string `koanf:"ca"`
	Cert string `koanf:"cert"` // where the coordinators require one
	Key  string `koanf:"key"`
}

// TLS is the certificate of a listener; empty means plaintext.
type TLS struct {
	Cert     string `koanf:"cert"`
	Key      string `koanf:"key"`
	ClientCA string `koanf:"client_ca"` // verifies the certificates of clients that show one, for users of the console
}

// UpstreamTLS is the leg to the server, in libpq's modes. Empty means plaintext.
type UpstreamTLS struct {
	Mode       string `koanf:"mode"`        // disable, prefer, require, verify-ca or verify-full; empty: disable
	CA         string `koanf:"ca"`          // PEM file; empty: the CAs that the system trusts, for verify-full only
	Cert       string `koanf:"cert"`        // the proxy's own, where the server asks for one
	Key        string `koanf:"key"`         // of cert
	ServerName string `koanf:"server_name"` // in the server's certificate; empty: the host of upstream
	Direct     bool   `koanf:"direct"`      // without asking first: PostgreSQL 17 and later
}

// Auth is how clients authenticate: with the server, the messages passing through (relay), or with the proxy, which holds
// their SCRAM verifiers and logs in for them with what they prove (scram).
type Auth struct {
	Method string `koanf:"method"` // relay or scram; empty: relay
	File   string `koanf:"file"`   // of scram: see postgres.Verifiers
}

// The methods of Auth.
const (
	AuthRelay = "relay"
	AuthScram = "scram"
)

// Log is how the process writes its log.
type Log struct {
	Level  string `koanf:"level"`  // debug, info, warn or error
	Format string `koanf:"format"` // text or json
}

// What becomes of the bindings of a lease that ended without a successor.
const (
	keepBindings = "keep"
	cutBindings  = "cut"
)

// What becomes of replication connections.
const (
	refuseReplication = "refuse"
	serveReplication  = "serve"
)

// DefaultConfig is what a file is laid over. DefaultPostgres fills what a listener leaves out.
func DefaultConfig() Config {
	return Config{
		Node:         "proxy",
		Coordinators: []string{"http://127.0.0.1:7601"},
		Admin:        "127.0.0.1:7610",
		ReusePort:    true,
		DrainTimeout: 30 * time.Second,
		Watch:        Watch{FoldEvery: time.Hour},
		Log:          Log{Level: "info", Format: "text"},
	}
}

// DefaultPostgres is a listener without its upstream, database and store.
func DefaultPostgres() Postgres {
	return Postgres{
		Listen:          "127.0.0.1:7632",
		Auth:            Auth{Method: AuthRelay},
		StoreConns:      pgstore.DefaultConns,
		Policy:          gate.Require.String(),
		Replication:     refuseReplication,
		OnLeaseEnd:      keepBindings,
		MaxConnections:  1000,
		TakeoverTimeout: pgstore.DefaultTakeoverTimeout,
	}
}

// WithDefaults returns c with the values that its listeners leave out.
func (c Config) WithDefaults() Config {
	listeners := make([]Postgres, len(c.Postgres))
	for i, p := range c.Postgres {
		d := DefaultPostgres()
		d.Upstream, d.Database, d.Store, d.TLS, d.AllowUnsigned = p.Upstream, p.Database, p.Store, p.TLS, p.AllowUnsigned
		d.UpstreamTLS = p.UpstreamTLS
		d.TargetSessionAttrs = p.TargetSessionAttrs
		d.ProxyProtocol = p.ProxyProtocol
		d.Auth.File = p.Auth.File
		override(&d.Auth.Method, p.Auth.Method)
		override(&d.Listen, p.Listen)
		override(&d.StoreConns, p.StoreConns)
		override(&d.Policy, p.Policy)
		override(&d.Replication, p.Replication)
		override(&d.OnLeaseEnd, p.OnLeaseEnd)
		override(&d.MaxConnections, p.MaxConnections)
		override(&d.TakeoverTimeout, p.TakeoverTimeout)
		listeners[i] = d
	}
	c.Postgres = listeners
	return c
}

func override[T comparable](to *T, v T) {
	var zero T
	if v != zero {
		*to = v
	}
}

// FieldError names the key of the configuration that is wrong.
type FieldError struct {
	Field  string // "postgres[0].store"
	Reason string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

// Validate checks values and how they relate; it opens nothing. All that is wrong is joined, each a *FieldError.
func (c Config) Validate() error {
	var v validation
	v.check(c.Node != "", "node", "is missing: it names this proxy in logs and metrics")
	v.check(len(c.Coordinators) > 0, "coordinators", "is empty: tickets are verified with the coordinators' keys")
	for i, u := range c.Coordinators {
		v.httpURL(fmt.Sprintf("coordinators[%d]", i), u)
	}
	c.CoordinatorTLS.validate(&v, c.Coordinators)
	c.validateWatch(&v)
	v.address("admin", c.Admin)
	v.check(c.DrainTimeout > 0, "drain_timeout", "is not above 0")
	c.Limits.validate(&v)
	c.Console.validate(&v, c.Postgres)
	v.oneOf("log.level", c.Log.Level, "debug", "info", "warn", "error")
	v.oneOf("log.format", c.Log.Format, "text", "json")
	v.check(len(c.Postgres) > 0, "postgres", "is empty: a proxy needs at least one listener")
	taken := map[string]string{c.Admin: "admin"}
	for i, p := range c.Postgres {
		field := fmt.Sprintf("postgres[%d].", i)
		p.validate(&v, field)
		v.check(p.OnLeaseEnd != cutBindings || len(c.Watch.Addresses) > 0, field+"on_lease_end",
			"is cut, and watch.addresses is empty: nobody would tell that a lease has ended")
		if other, ok := taken[p.Listen]; ok && !anyPort(p.Listen) {
			v.add(field+"listen", "is the address of "+other+" too")
		}
		taken[p.Listen] = field + "listen"
	}
	return errors.Join(v.errs...)
}

func (t CoordinatorTLS) validate(v *validation, coordinators []string) {
	v.check((t.Cert == "") == (t.Key == ""), "coordinator_tls", "needs both cert and key, or neither")
	if t == (CoordinatorTLS{}) {
		return
	}
	for i, u := range coordinators {
		v.check(!strings.HasPrefix(u, "http://"), fmt.Sprintf("coordinators[%d]", i), "is plain HTTP, and coordinator_tls is set: say https://")
	}
}

func (p Postgres) validate(v *validation, field string) {
	v.address(field+"listen", p.Listen)
	p.validateHosts(v, field)
	v.check(p.Database != "", field+"database", "is missing: floors live in one database, so a listener serves one")
	v.store(field+"store", p.Store, p.Database)
	v.check(p.StoreConns >= 1 && p.StoreConns <= 100, field+"store_conns", "is not between 1 and 100")
	v.oneOf(field+"policy", p.Policy, gate.Require.String(), gate.ReadOnly.String(), gate.Allow.String())
	v.oneOf(field+"replication", p.Replication, refuseReplication, serveReplication)
	v.oneOf(field+"on_lease_end", p.OnLeaseEnd, keepBindings, cutBindings)
	v.check(p.MaxConnections >= 1, field+"max_connections", "is below 1")
	v.check(p.TakeoverTimeout > 0, field+"takeover_timeout", "is not above 0")
	v.check((p.TLS.Cert == "") == (p.TLS.Key == ""), field+"tls", "needs both cert and key, or neither")
	v.check(p.TLS.ClientCA == "" || p.TLS.Cert != "", field+"tls.client_ca", "needs a certificate of the listener's own: cert and key")
	p.ProxyProtocol.validate(v, field+"proxy_protocol")
	p.UpstreamTLS.validate(v, field+"upstream_tls")
	v.oneOf(field+"auth.method", p.Auth.Method, AuthRelay, AuthScram)
	v.check(p.Auth.Method != AuthScram || p.Auth.File != "", field+"auth.file", "is missing: with method scram it holds the users' verifiers")
	v.check(p.Auth.Method != AuthRelay || p.Auth.File == "", field+"auth.file", "does nothing with method relay: say auth.method: scram")
}

func (u UpstreamTLS) validate(v *validation, field string) {
	mode := postgres.TLSMode(u.Mode)
	if mode == "" || mode == postgres.TLSDisable {
		u.Mode = ""
		v.check(u == UpstreamTLS{}, field, "has no mode, or mode disable, and so the rest of it does nothing")
		return
	}
	v.oneOf(field+".mode", u.Mode, postgres.TLSModes()...)
	v.check((u.Cert == "") == (u.Key == ""), field, "needs both cert and key, or neither")
	v.check(mode != postgres.TLSVerifyCA || u.CA != "", field+".ca", "is missing: with verify-ca and the CAs that the system trusts, anybody could be the server")
	v.check(mode != postgres.TLSPrefer || u.CA == "", field+".ca", "does nothing in mode prefer: say verify-full, or verify-ca")
	v.check(mode != postgres.TLSPrefer || !u.Direct, field+".direct", "needs a mode that requires TLS: there is no plaintext behind it")
	v.check(mode == postgres.TLSVerifyFull || u.ServerName == "", field+".server_name", "is looked at in mode verify-full only")
}

// validation gathers what is wrong, so that one run shows all of it.
type validation struct{ errs []error }

func (v *validation) add(field, reason string) { v.errs = append(v.errs, &FieldError{field, reason}) }

func (v *validation) check(ok bool, field, reason string) {
	if !ok {
		v.add(field, reason)
	}
}

func (v *validation) oneOf(field, s string, known ...string) {
	v.check(slices.Contains(known, s), field, fmt.Sprintf("is %q; known are %s", s, strings.Join(known, ", ")))
}

func (v *validation) httpURL(field, s string) {
	u, err := url.Parse(s)
	v.check(err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "", field,
		fmt.Sprintf("is %q, not an HTTP address such as http://10.0.0.1:7601", s))
}

func (v *validation) address(field, s string) {
	if v.portOutOfRange(field, s) {
		return
	}
	_, port, err := net.SplitHostPort(s)
	v.check(err == nil && isPort(port, 0), field, fmt.Sprintf("is %q, not an address such as 127.0.0.1:7632", s))
}

// portOutOfRange says so of an address whose port is a number that no port has.
func (v *validation) portOutOfRange(field, s string) bool {
	port := s[strings.LastIndexByte(s, ':')+1:]
	n, err := strconv.Atoi(port)
	if err != nil || len(port) == len(s) || isPort(port, 0) {
		return false
	}
	v.add(field, fmt.Sprintf("is %q, but there is no port %d: the last is 65535", s, n))
	return true
}

func (v *validation) upstream(field, s string) {
	if s == "" {
		v.add(field, "is missing: where the database is, host:port or /folder/of/the/socket:port")
		return
	}
	if v.portOutOfRange(field, s) {
		return
	}
	if _, _, err := postgres.ParseUpstream(s); err != nil {
		v.add(field, err.Error())
	}
}

func (v *validation) store(field, dsn, database string) {
	if dsn == "" {
		v.add(field, "is missing: the proxy keeps floors over connections of its own role")
		return
	}
	parsed, err := pgconn.ParseConfig(dsn)
	if err != nil { // pgconn's error hides passwords
		v.add(field, "is not a PostgreSQL connection string: "+err.Error())
		return
	}
	if err := pgstore.OneServer(dsn); err != nil {
		v.add(field, "names "+err.Error())
	}
	v.check(parsed.Database == "" || database == "" || parsed.Database == database, field,
		fmt.Sprintf("is of database %q, but the listener serves %q: floors must live where the writes go", parsed.Database, database))
}

func isPort(s string, least int) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n >= least && n <= 65535
}

func anyPort(address string) bool { return strings.HasSuffix(address, ":0") }
