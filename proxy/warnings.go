package proxy

import (
	"fmt"
	"net"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lychgate/lychgate/adapters/postgres"
)

// Warnings says what about a valid configuration is probably not meant, each beginning with the key.
func (c Config) Warnings() []string {
	var found []string
	for i, p := range c.Postgres {
		upstream, store := p.addresses()
		if upstream != store {
			found = append(found, fmt.Sprintf("postgres[%d].store: goes to %s and the upstream is %s: floors must live in the database that is written to",
				i, store, upstream))
		}
		if doubt := p.ProxyProtocol.warning(); doubt != "" {
			found = append(found, fmt.Sprintf("postgres[%d].proxy_protocol.from: %s", i, doubt))
		}
	}
	return found
}

// addresses are those of the two ways to the database, in a form in which they can be compared.
func (p Postgres) addresses() (upstream, store string) {
	network, address, err := postgres.ParseUpstream(p.Upstream)
	if err != nil {
		return "", "" // Validate says so
	}
	parsed, err := pgconn.ParseConfig(p.Store)
	if err != nil {
		return "", ""
	}
	upstream = sameForm(network, address)
	store = sameForm(pgconn.NetworkAddress(parsed.Host, parsed.Port))
	for _, other := range parsed.Fallbacks {
		if sameForm(pgconn.NetworkAddress(other.Host, other.Port)) == upstream {
			return upstream, upstream
		}
	}
	return upstream, store
}

// role is the one that the store logs in as.
func (p Postgres) role() string {
	parsed, err := pgconn.ParseConfig(p.Store)
	if err != nil {
		return "" // Validate says so
	}
	return parsed.User
}

// sameForm is an address with one name for this machine.
func sameForm(network, address string) string {
	host, port, err := net.SplitHostPort(address)
	if network == "unix" || err != nil {
		return address
	}
	if ip := net.ParseIP(host); host == "localhost" || ip != nil && ip.IsLoopback() {
		host = "localhost"
	}
	return net.JoinHostPort(host, port)
}
