package proxy

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lychgate/lychgate/coordinator/tlstest"
)

// A user of the console who is known by a certificate gets in with the one, by the listener's CA, and with nothing else.
func TestConsoleByCertificate(t *testing.T) {
	ca, foreign, dir := tlstest.NewCA(t), tlstest.NewCA(t), t.TempDir()
	_, r := startWithConsole(t, func(c *Config) {
		cert, key := foreign.Issue(nil).Write(t, dir, "listener")
		c.Postgres[0].TLS = TLS{Cert: cert, Key: key, ClientCA: tlstest.Write(t, dir, "clients.crt", ca.PEM())}
		c.Console.Users = append(c.Console.Users, ConsoleUser{Name: "badge", Certificate: "operator"})
	})
	named := func(ca *tlstest.CA, name string) []tls.Certificate {
		return []tls.Certificate{ca.Issue(func(c *x509.Certificate) { c.Subject.CommonName = name }).Certificate(t)}
	}
	operator := named(ca, "operator")
	for name, c := range map[string]struct {
		user, password string
		mode           string
		shown          []tls.Certificate
		lets           bool
	}{
		"the certificate":                 {"badge", "", "require", operator, true},
		"of another name":                 {"badge", "", "require", named(ca, "somebody"), false},
		"of a foreign CA":                 {"badge", "", "require", named(foreign, "operator"), false},
		"none":                            {"badge", "", "require", nil, false},
		"no TLS":                          {"badge", "right", "disable", nil, false},
		"a password, none":                {"badge", "right", "require", nil, false},
		"somebody else's":                 {"ops", "", "require", operator, false},
		"a password beside a certificate": {"ops", "right", "require", operator, true},
		"nobody's":                        {"ghost", "", "require", operator, false},
	} {
		config, err := pgx.ParseConfig(fmt.Sprintf("postgres://%s:%s@%s/lychgate?sslmode=%s", c.user, c.password, r.PostgresAddrs()[0], c.mode))
		if err != nil {
			t.Fatal(err)
		}
		if c.mode != "disable" {
			config.TLSConfig.Certificates = c.shown
		}
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if (err == nil) != c.lets {
			t.Errorf("%s: got %v", name, err)
		}
		if err == nil {
			_ = conn.Close(t.Context())
		}
	}
}
