package coordinator

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

func everything() *string { return new(string) }

func withTLS(c *Config) { c.TLS = &TLS{Cert: "n1.crt", Key: "n1.key", CA: "ca.crt"} }

func TestValidateSecurity(t *testing.T) {
	open := func(c *Config) { c.Listen.GRPC = "0.0.0.0:7600" }
	rule := AccessRule{Identity: "acme:*", Prefix: everything(), Allow: []string{"read"}}
	rules := func(r ...AccessRule) func(*Config) {
		return func(c *Config) { withTLS(c); c.Access = &Access{Tokens: "tokens", Rules: r} }
	}
	for name, test := range map[string]struct {
		change func(*Config)
		fields []string
		said   string
	}{
		"loopback without TLS":      {func(*Config) {}, nil, ""},
		"localhost and IPv6":        {func(c *Config) { c.Listen = Listen{Peer: "localhost:1", GRPC: "[::1]:2", HTTP: "127.0.0.9:3"} }, nil, ""},
		"open without TLS":          {open, []string{"tls"}, "listens on 0.0.0.0:7600"},
		"every address without TLS": {func(c *Config) { c.Listen.HTTP = ":7601" }, []string{"tls"}, "listens on :7601"},
		"a host name without TLS":   {func(c *Config) { c.Members[0].Peer = "n1:7602" }, []string{"tls"}, "listens on n1:7602"},
		"another member is open":    {func(c *Config) { c.Members[1].Peer = "n2:7602" }, nil, ""},
		"open and said so":          {func(c *Config) { open(c); c.Insecure = true }, nil, ""},
		"open with TLS":             {func(c *Config) { open(c); withTLS(c) }, nil, ""},
		"insecure beside TLS":       {func(c *Config) { withTLS(c); c.Insecure = true }, []string{"insecure"}, "take one of them away"},
		"no files":                  {func(c *Config) { c.TLS = &TLS{ExpiryWarning: -1} }, []string{"tls.ca", "tls.cert", "tls.expiry_warning", "tls.key"}, "is missing"},
		"rules":                     {rules(rule), nil, ""},
		"rules without TLS":         {func(c *Config) { rules(rule)(c); c.TLS = nil }, []string{"access"}, "may claim any identity"},
		"rules on a trial":          {func(c *Config) { rules(rule)(c); c.TLS, c.Insecure = nil, true }, nil, ""},
		"no way to say who one is":  {func(c *Config) { rules(rule)(c); c.TLS, c.Insecure, c.Access.Tokens = nil, true, "" }, []string{"access.tokens"}, "nobody could say"},
		"no rules":                  {rules(), []string{"access.rules"}, "nobody could do anything"},
		"a rule without a prefix":   {rules(AccessRule{Identity: "*", Allow: []string{"read"}}), []string{"access.rules[0].prefix"}, `say prefix: ""`},
		"an unknown right":          {rules(rule, AccessRule{Identity: "x", Prefix: everything(), Allow: []string{"write"}}), []string{"access.rules[1].allow"}, `"write" is no right`},
		"a rule twice":              {rules(rule, rule), []string{"access.rules[1].prefix"}, "put what both allow into one"},
	} {
		c := testConfig()
		test.change(&c)
		err := c.Validate()
		if got := fieldsOf(err); !slices.Equal(got, test.fields) {
			t.Errorf("%s: faults of %q, want %q (%v)", name, got, test.fields, err)
		}
		if err != nil && !strings.Contains(err.Error(), test.said) {
			t.Errorf("%s: %v does not say %q", name, err, test.said)
		}
	}
}

func TestWarningsOfSecurity(t *testing.T) {
	c := testConfig()
	if got := c.Warnings(); len(got) != 0 {
		t.Errorf("of a trial on loopback: %q", got)
	}
	withTLS(&c)
	if got := strings.Join(c.Warnings(), "\n"); !strings.Contains(got, "every client that reaches the node") {
		t.Errorf("TLS without rules: %q", got)
	}
	c.Access = &Access{Rules: []AccessRule{
		{Identity: "acme:*", Prefix: everything(), Allow: []string{"read"}},
		{Identity: "acme:w", Prefix: everything(), Allow: []string{"read"}},
	}}
	if got := c.Warnings(); len(got) != 1 || !strings.Contains(got[0], "access.rules[1] changes nothing") {
		t.Errorf("a rule in vain: %q", got)
	}
}

// Whoever starts a node without certificates or rules reads in its log what that means.
func TestStartSaysWhatIsNotAskedFor(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"a trial on loopback": {func(*Config) {}, `level=INFO msg="no TLS and no access rules: peers and clients are not authenticated`},
		"an open network": {
			func(c *Config) { c.Insecure, c.Listen.Peer = true, "0.0.0.0:0" },
			`level=WARN msg="no TLS and no access rules: peers and clients are not authenticated`,
		},
		"rules without TLS": {func(c *Config) {
			c.Insecure = true
			c.Access = &Access{Tokens: "none", Rules: []AccessRule{{Identity: "*", Prefix: everything(), Allow: []string{"read"}}}}
		}, "no TLS: peers are not authenticated, and whoever says that it is a node may claim any identity"},
		"TLS without rules": {withTLS, "no access rules: whoever reaches this node may do everything"},
	} {
		var out bytes.Buffer
		c := testConfig()
		test.change(&c)
		n, err := New(c, Deps{Logger: slog.New(slog.NewTextHandler(&out, nil))})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		n.announceSecurity()
		if !strings.Contains(out.String(), test.want) {
			t.Errorf("%s: the log does not say %q:\n%s", name, test.want, out.String())
		}
	}
}
