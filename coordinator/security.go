package coordinator

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/lychgate/lychgate/coordinator/internal/access"
	"github.com/lychgate/lychgate/coordinator/lease"
)

// TLS is the certificates of a node: for its peer port, its gRPC and its HTTP port, and for its calls to other nodes. The
// files are PEM, and are read anew when they change.
type TLS struct {
	Cert     string `koanf:"cert"`      // with the URI lychgate://node/ID, and the names or addresses at which clients reach the node
	Key      string `koanf:"key"`       //
	CA       string `koanf:"ca"`        // that the nodes have their certificates from
	ClientCA string `koanf:"client_ca"` // that clients have theirs from; empty: ca
	// RequireClientCert refuses clients without a certificate; otherwise they may show a token.
	RequireClientCert bool          `koanf:"require_client_cert"`
	ExpiryWarning     time.Duration `koanf:"expiry_warning"` // in the log, before a certificate expires; 0: 14 days
}

// Access is who may do what. What no rule allows is refused.
type Access struct {
	// Tokens is a file with an identity and the SHA-256 of its token on each line; it is read anew when it changes.
	Tokens string       `koanf:"tokens"`
	Rules  []AccessRule `koanf:"rules"`
}

// AccessRule allows identities something on the resources with a prefix.
type AccessRule struct {
	Identity string   `koanf:"identity"` // exact, or with a * at its end
	Prefix   *string  `koanf:"prefix"`   // has to be said; "" is every resource, and the cluster itself
	Allow    []string `koanf:"allow"`    // acquire, shared, read, admin
}

// TokenLine is the line of Access.Tokens that has an identity known by a token. The token itself is not in it.
func TokenLine(identity lease.Identity, token string) string { return access.Line(identity, token) }

// rules are those of the configuration in the terms of package access.
func (a *Access) rules() []access.Rule {
	rules := make([]access.Rule, len(a.Rules))
	for i, r := range a.Rules {
		rules[i].Identity = r.Identity
		if r.Prefix != nil {
			rules[i].Prefix = *r.Prefix
		}
		for _, right := range r.Allow {
			rules[i].Allow = append(rules[i].Allow, access.Right(right))
		}
	}
	return rules
}

func (c Config) validateSecurity(f *faults) {
	c.validateTLS(f)
	if c.Access == nil {
		return
	}
	if c.TLS == nil && !c.Insecure {
		f.add("access", "needs tls: without it whoever says that it is a node is believed, and so may claim any identity; "+
			"for a trial, say insecure: true")
	}
	if len(c.Access.Rules) == 0 {
		f.add("access.rules", `is empty, so nobody could do anything; {identity: "*", prefix: "", allow: [acquire, shared, read, admin]} allows everything to all who are authenticated`)
	}
	for i, r := range c.Access.Rules {
		if r.Prefix == nil {
			f.add(fmt.Sprintf("access.rules[%d].prefix", i), `is missing: say prefix: "" for everything`)
		}
	}
	for _, fault := range access.Check(c.Access.rules()) {
		f.add(fmt.Sprintf("access.rules[%d].%s", fault.Rule, fault.Field), "%s", fault.Reason)
	}
	if c.Access.Tokens == "" && c.TLS == nil {
		f.add("access.tokens", "is missing: without tls nobody could say who it is")
	}
}

func (c Config) validateTLS(f *faults) {
	if c.TLS == nil {
		if open := c.openAddresses(); len(open) > 0 && !c.Insecure {
			f.add("tls", "is missing: this node listens on %s, and whoever reaches it there may do everything and may take part as a node; "+
				"add tls, listen on a loopback address, or say insecure: true if everybody on that network is trusted", strings.Join(open, ", "))
		}
		return
	}
	if c.Insecure {
		f.add("insecure", "means nothing beside tls: take one of them away")
	}
	for field, path := range map[string]string{"tls.cert": c.TLS.Cert, "tls.key": c.TLS.Key, "tls.ca": c.TLS.CA} {
		if path == "" {
			f.add(field, "is missing")
		}
	}
	if c.TLS.ExpiryWarning < 0 {
		f.add("tls.expiry_warning", "%s is negative", c.TLS.ExpiryWarning)
	}
}

// openAddresses are those of this node's ports that other machines may reach.
func (c Config) openAddresses() (open []string) {
	listen := c.resolved().Listen
	for _, address := range []string{listen.Peer, listen.GRPC, listen.HTTP} {
		host, _, err := net.SplitHostPort(address)
		if err == nil && !isLoopback(host) {
			open = append(open, address)
		}
	}
	return open
}

// isLoopback reports whether a host can be nothing else. An empty one is every address of the machine.
func isLoopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// Warnings says what about a valid configuration is probably not meant.
func (c Config) Warnings() (found []string) {
	switch {
	case c.Access != nil:
		found = append(found, access.Doubts(c.Access.rules())...)
	case c.TLS != nil && !c.TLS.RequireClientCert:
		found = append(found, "access: there are no rules, so every client that reaches the node may do everything")
	case c.TLS != nil:
		found = append(found, "access: there are no rules, so every client with a certificate may do everything")
	}
	return found
}
