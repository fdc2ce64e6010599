package proxy

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lychgate/lychgate/adapters/postgres"
	"github.com/lychgate/lychgate/proxy/admin"
)

// Console is who may log in to the virtual database "lychgate" of every listener. Without users there is none.
type Console struct {
	Users []ConsoleUser `koanf:"users"`
}

// ConsoleUser is one of them. Either Verifier or Certificate says how the user is known.
type ConsoleUser struct {
	Name        string `koanf:"name"`
	Verifier    string `koanf:"verifier"`    // of a password: SCRAM-SHA-256$…, as PostgreSQL keeps it in pg_authid.rolpassword
	Certificate string `koanf:"certificate"` // common name of a certificate by the listener's tls.client_ca
	ReadOnly    bool   `koanf:"read_only"`   // may only SHOW
}

func (c Console) users() []admin.ConsoleUser {
	users := make([]admin.ConsoleUser, len(c.Users))
	for i, u := range c.Users {
		users[i] = admin.ConsoleUser(u)
	}
	return users
}

func (c Console) validate(v *validation, listeners []Postgres) {
	if len(c.Users) == 0 {
		return
	}
	seen := map[string]bool{}
	for i, u := range c.users() {
		field := fmt.Sprintf("console.users[%d]", i)
		if err := u.Check(); err != nil {
			v.add(field, err.Error())
		}
		v.check(!seen[u.Name], field+".name", fmt.Sprintf("%q is there twice", u.Name))
		seen[u.Name] = true
		known := slices.ContainsFunc(listeners, func(p Postgres) bool { return p.TLS.ClientCA != "" })
		v.check(u.Certificate == "" || known, field+".certificate", "needs a listener with tls.client_ca, by which it is verified")
	}
	for i, p := range listeners {
		v.check(p.Database != postgres.ConsoleDatabase, fmt.Sprintf("postgres[%d].database", i),
			fmt.Sprintf("is %q, which is the name of the console", p.Database))
	}
}

// consoleFor is what a listener serves the console with; nil: there is none.
func (s *Server) consoleFor() postgres.Console {
	if len(s.config.Console.Users) == 0 {
		return nil
	}
	return s.console
}

// Bounds of SHOW FLOORS.
const (
	maxFloors     = 200 // of one listener
	floorsTimeout = 5 * time.Second
)

var _ admin.Operator = (*Server)(nil)

// Listeners is part of admin.Operator.
func (s *Server) Listeners() []admin.ListenerView {
	var views []admin.ListenerView
	for _, l := range s.listeners {
		views = append(views, l.view(s.limits))
	}
	return views
}

// Floors is part of admin.Operator.
func (s *Server) Floors(ctx context.Context) ([]admin.FloorView, error) {
	ctx, cancel := context.WithTimeout(ctx, floorsTimeout)
	defer cancel()
	cluster := s.keys.Cluster()
	var views []admin.FloorView
	for _, l := range s.listeners {
		found, err := l.floors(ctx, cluster)
		if err != nil {
			return views, fmt.Errorf("%s: %w", l.address, err)
		}
		views = append(views, found...)
	}
	return views, nil
}

// floors asks the store for the floors of what is bound.
func (l *listener) floors(ctx context.Context, cluster string) ([]admin.FloorView, error) {
	bindings, err := l.store.Bindings(ctx, cluster, maxFloors)
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	var views []admin.FloorView
	for _, b := range bindings {
		if seen[b.Claim.Resource] {
			continue
		}
		seen[b.Claim.Resource] = true
		floor, err := l.store.Floor(ctx, cluster, b.Claim.Resource)
		if err != nil {
			return nil, err
		}
		views = append(views, admin.FloorView{
			Listener: l.address, Cluster: cluster, Resource: floor.Resource, Token: uint64(floor.Token), Since: floor.Since,
		})
	}
	slices.SortFunc(views, func(a, b admin.FloorView) int { return cmp.Compare(a.Resource, b.Resource) })
	return views, nil
}

// Figures is part of admin.Operator.
func (s *Server) Figures() ([]admin.Figure, error) { return admin.Figures(s.registry) }

// Cut ends the bound connection of that number, and reports whether there is one.
func (s *Server) Cut(number uint64) bool {
	return slices.ContainsFunc(s.listeners, func(l *listener) bool { return l.gate.Cut(number) })
}

// Drain begins the planned end of Run, as when its context is done. It is idempotent.
func (s *Server) Drain() { s.stopOnce.Do(func() { close(s.stopping) }) }

// awaitDrain stops serving when Drain is called, and waits for the end of serving.
func (s *Server) awaitDrain(serving context.Context, stop context.CancelFunc) {
	select {
	case <-s.stopping:
		stop()
	case <-serving.Done():
	}
}

// view is the listener as the console shows it.
func (l *listener) view(limits *postgres.Limits) admin.ListenerView {
	c := l.current()
	v := admin.ListenerView{
		Name: l.field, Adapter: l.adapter, Address: l.address, State: "open", Guarantee: strict, Policy: c.Policy,
		Upstream: c.Upstream, Database: c.Database, TLS: c.TLS.Cert != "", Bindings: len(l.gate.Bindings()),
		Connections: limits.Use(l.address), MaxConnections: c.MaxConnections,
	}
	if at := l.addr(); at != nil {
		v.Address = at.String()
	}
	return v
}
