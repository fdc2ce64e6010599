package proxy

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"

	"github.com/lychgate/lychgate/adapters/postgres"
	"github.com/lychgate/lychgate/fencestore/pgstore"
	"github.com/lychgate/lychgate/proxy/primary"
)

// hosts looks at the hosts of a listener whose server may be on any of them.
type hosts struct {
	*primary.Prober
	asker *primary.Asker
	field string
}

// chooses reports whether somebody has to say which host is the server.
func (p Postgres) chooses() bool {
	return strings.Contains(p.Upstream, ",") || p.TargetSessionAttrs != "" && p.TargetSessionAttrs != string(primary.Any)
}

// newHosts makes one for a listener that chooses; nil for others. The store follows it.
func newHosts(field string, c Postgres, store *pgstore.Store, logger *slog.Logger) (*hosts, error) {
	if !c.chooses() {
		return nil, nil //nolint:nilnil // there is nothing to look at
	}
	names, err := postgres.ParseUpstreams(c.Upstream)
	if err != nil {
		return nil, &FieldError{field + ".upstream", err.Error()}
	}
	h := &hosts{field: field}
	h.asker = primary.NewAsker(func(host string) (string, error) { return pgstore.DSNOf(c.Store, host) })
	h.Prober, err = primary.New(primary.Config{
		Hosts: names, Attrs: primary.Attrs(c.TargetSessionAttrs), Ask: h.asker.Ask, Follow: store.Follow, Logger: logger,
	})
	return h, err
}

// run looks until ctx is done.
func (h *hosts) run(ctx context.Context) {
	h.Run(ctx)
	h.asker.Close(context.WithoutCancel(ctx))
}

// upstreams is what the adapter is told; nil: it has one host.
func (h *hosts) upstreams() postgres.Upstreams {
	if h == nil {
		return nil
	}
	return h
}

// problem is a sentence for /readyz; empty: there is none.
func (h *hosts) problem() string {
	if h == nil {
		return ""
	}
	if err := h.Problem(); err != nil {
		return fmt.Sprintf("%s: none of the hosts is the server: %v", h.field, err)
	}
	return ""
}

func (p Postgres) validateHosts(v *validation, field string) {
	names, err := postgres.ParseUpstreams(p.Upstream)
	switch {
	case !strings.Contains(p.Upstream, ","):
		v.upstream(field+"upstream", p.Upstream)
	case err != nil:
		v.add(field+"upstream", err.Error())
	}
	if p.TargetSessionAttrs != "" {
		v.oneOf(field+"target_session_attrs", p.TargetSessionAttrs, primary.AllAttrs()...)
	}
	unix := func(host string) bool { return strings.HasPrefix(host, "/") }
	v.check(p.UpstreamTLS.Mode == "" || p.UpstreamTLS.Mode == string(postgres.TLSDisable) || !slices.ContainsFunc(names, unix),
		field+"upstream_tls.mode", "is "+p.UpstreamTLS.Mode+", and upstream is a unix socket, over which there is no TLS")
}
