package postgres_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lychgate/lychgate/adapters/postgres"
	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// authority signs certificates.
type authority struct {
	t    testing.TB
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	t.Helper()
	a := &authority{t: t, key: newKey(t), pool: x509.NewCertPool()}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, a.key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pool.AddCert(a.cert)
	return a
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// issue makes a certificate of a name, which is an address or a common name.
func (a *authority) issue(name string) tls.Certificate {
	a.t.Helper()
	key := newKey(a.t)
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if ip := net.ParseIP(name); ip != nil {
		template.IPAddresses = []net.IP{ip}
	} else {
		template.DNSNames = []string{name}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// encryptServer gives the test's server a certificate for 127.0.0.1 until the test ends.
func encryptServer(t testing.TB, w *world, a *authority) tls.Certificate {
	t.Helper()
	certificate := a.issue("127.0.0.1")
	der, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for setting, block := range map[string]*pem.Block{
		"ssl_cert_file": {Type: "CERTIFICATE", Bytes: certificate.Certificate[0]},
		"ssl_key_file":  {Type: "PRIVATE KEY", Bytes: der},
		"ssl_ca_file":   {Type: "CERTIFICATE", Bytes: a.cert.Raw},
	} {
		path := filepath.Join(server.Dir(), "data", setting+".pem")
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := server.Own(path); err != nil {
			t.Fatal(err)
		}
		pgtest.Exec(t, w.admin, fmt.Sprintf("alter system set %s = '%s.pem'", setting, setting))
	}
	offer := func(on string, want byte) {
		if err := try(w.admin, "alter system set ssl = "+on); err != nil {
			t.Fatal(err)
		}
		if err := try(w.admin, "select pg_reload_conf()"); err != nil {
			t.Fatal(err)
		}
		await(t, "the server's TLS "+on, func() bool { return answerToSSL(t) == want })
	}
	offer("on", 'S')
	t.Cleanup(func() { offer("off", 'N') })
	return certificate
}

func answerToSSL(t testing.TB) byte {
	t.Helper()
	conn, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", server.Port()))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	answer := make([]byte, 1)
	if _, err := conn.Write(wire.Request(wire.SSLCode, nil)); err != nil {
		t.Fatal(err)
	}
	_, _ = conn.Read(answer)
	return answer[0]
}

const encrypted = "select case when ssl then 'encrypted ' || version else 'plain' end from pg_stat_ssl where pid = pg_backend_pid()"

func TestServerLegModes(t *testing.T) {
	w := newWorld(t)
	ours, foreign := newAuthority(t), newAuthority(t)
	encryptServer(t, w, ours)
	for _, c := range []struct {
		leg  postgres.UpstreamTLS
		want string // what the session says, or the detail of the refusal
	}{
		{postgres.UpstreamTLS{}, "plain"},
		{postgres.UpstreamTLS{Mode: postgres.TLSDisable}, "plain"},
		{postgres.UpstreamTLS{Mode: postgres.TLSPrefer}, "encrypted TLSv1.3"},
		{postgres.UpstreamTLS{Mode: postgres.TLSRequire}, "encrypted TLSv1.3"},
		{postgres.UpstreamTLS{Mode: postgres.TLSRequire, CA: foreign.pool}, "not signed by upstream_tls.ca"},
		{postgres.UpstreamTLS{Mode: postgres.TLSVerifyCA, CA: ours.pool}, "encrypted TLSv1.3"},
		{postgres.UpstreamTLS{Mode: postgres.TLSVerifyCA, CA: ours.pool, ServerName: "elsewhere"}, "encrypted TLSv1.3"},
		{postgres.UpstreamTLS{Mode: postgres.TLSVerifyCA, CA: foreign.pool}, "not signed by upstream_tls.ca"},
		{postgres.UpstreamTLS{Mode: postgres.TLSVerifyFull, CA: ours.pool}, "encrypted TLSv1.3"},
		{postgres.UpstreamTLS{Mode: postgres.TLSVerifyFull, CA: ours.pool, ServerName: "elsewhere"}, "has another name"},
		{postgres.UpstreamTLS{Mode: postgres.TLSVerifyFull, CA: foreign.pool}, "not signed by upstream_tls.ca"},
		{postgres.UpstreamTLS{Mode: postgres.TLSVerifyFull}, "not signed by upstream_tls.ca"},
	} {
		t.Run(fmt.Sprintf("%s/%s", c.leg.Mode, c.want), func(t *testing.T) {
			p := w.proxy(func(s *settings) { s.server.UpstreamTLS = c.leg })
			if !strings.Contains(c.want, "TLSv") && c.want != "plain" {
				if e := p.refuse("app", "57P03", with(w.ticket("a", 1))); !strings.Contains(e.Detail, c.want) {
					t.Errorf("got detail %q, want %q in it", e.Detail, c.want)
				}
				return
			}
			conn := p.connect(with(w.ticket("a", 1)))
			var got string
			if err := conn.QueryRow(t.Context(), encrypted).Scan(&got); err != nil || got != c.want {
				t.Errorf("got %q, %v, want %q", got, err, c.want)
			}
			exec(t, conn, "insert into entry select n, 'x' from generate_series(1, 5000) n; delete from entry")
		})
	}
}

func TestServerLegWithoutTLS(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(func(s *settings) { s.server.UpstreamTLS.Mode = postgres.TLSPrefer })
	exec(t, p.connect(with(w.ticket("a", 1))), "select 1")
	p = w.proxy(func(s *settings) { s.server.UpstreamTLS.Mode = postgres.TLSRequire })
	if e := p.refuse("app", "57P03", with(w.ticket("a", 1))); !strings.Contains(e.Detail, "does not offer TLS") {
		t.Errorf("got %q", e.Detail)
	}
}

// A server that answers with something else, or not at all, holds nobody up, and nothing that follows in plaintext counts.
func TestServerLegFaults(t *testing.T) {
	for name, c := range map[string]struct{ answer, want string }{
		"an error":           {"EFATAL\x00", `with 'E'`},
		"bytes behind its S": {"SR\x00\x00\x00\x08\x00\x00\x00\x00", "handshake"},
		"it hangs up":        {"", "no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			addr, stop := serve(t, func(ctx context.Context, l net.Listener) error {
				defer context.AfterFunc(ctx, func() { l.Close() })()
				for {
					conn, err := l.Accept()
					if err != nil {
						return nil
					}
					_, _, _ = wire.ReadStartup(conn)
					_, _ = conn.Write([]byte(c.answer))
					conn.Close()
				}
			})
			t.Cleanup(stop)
			w := newWorld(t)
			p := w.proxy(func(s *settings) {
				s.server.Upstream, s.server.UpstreamTLS.Mode = addr, postgres.TLSRequire
			})
			if e := p.refuse("app", "57P03", with(w.ticket("a", 1))); !strings.Contains(e.Detail, c.want) {
				t.Errorf("got detail %q, want %q in it", e.Detail, c.want)
			}
		})
	}
	t.Run("it is silent", func(t *testing.T) {
		addr, stop := serve(t, func(ctx context.Context, l net.Listener) error {
			<-ctx.Done()
			return l.Close()
		})
		t.Cleanup(stop)
		w := newWorld(t)
		p := w.proxy(func(s *settings) {
			s.server.Upstream, s.server.UpstreamTLS.Mode, s.server.DialTimeout = addr, postgres.TLSRequire, 50*time.Millisecond
		})
		p.refuse("app", "57P03", with(w.ticket("a", 1)))
	})
}

func TestCertificateOfTheProxy(t *testing.T) {
	w := newWorld(t)
	pgtest.Exec(t, w.admin, "do $$ begin create role certified login; exception when duplicate_object then null; end $$")
	a := newAuthority(t)
	encryptServer(t, w, a)
	leg := postgres.UpstreamTLS{Mode: postgres.TLSVerifyFull, CA: a.pool, Certificates: []tls.Certificate{a.issue("certified")}}
	p := w.proxy(func(s *settings) { s.server.UpstreamTLS = leg })
	r := dialRaw(t, p.addr, "certified", w.name, with(w.ticket("a", 1)))
	r.login()
	leg.Certificates = nil
	p = w.proxy(func(s *settings) { s.server.UpstreamTLS = leg })
	p.refuse("certified", "28000", with(w.ticket("a", 1)))
}

func TestCancelOverAnEncryptedLeg(t *testing.T) {
	w := newWorld(t)
	a := newAuthority(t)
	encryptServer(t, w, a)
	p := w.proxy(func(s *settings) {
		s.server.UpstreamTLS = postgres.UpstreamTLS{Mode: postgres.TLSVerifyFull, CA: a.pool}
	})
	r := p.raw(with(w.ticket("a", 1)))
	r.send(&query{String: "select pg_sleep(600)"})
	await(t, "it to run", func() bool {
		var n int
		err := w.admin.QueryRow(context.Background(), "select count(*) from pg_stat_activity where query like 'select pg_sleep%' and state = 'active' and datname = $1", w.name).Scan(&n)
		return err == nil && n == 1
	})
	cancelVia(t, p.addr, r.key, nil)
	r.expect("Ready", "Columns 1", "Error ERROR 57014 canceling statement due to user request", "Ready I")
}

func TestUpstreamTLSThatCannotBe(t *testing.T) {
	w := newWorld(t)
	for want, config := range map[string]postgres.Config{
		"known are disable":   {Upstream: "h:1", UpstreamTLS: postgres.UpstreamTLS{Mode: "allow"}},
		"no TLS over the":     {Upstream: "/tmp:1", UpstreamTLS: postgres.UpstreamTLS{Mode: postgres.TLSRequire}},
		"needs a CA":          {Upstream: "h:1", UpstreamTLS: postgres.UpstreamTLS{Mode: postgres.TLSVerifyCA}},
		"direct needs a mode": {Upstream: "h:1", UpstreamTLS: postgres.UpstreamTLS{Mode: postgres.TLSPrefer, Direct: true}},
	} {
		config.Gate = w.proxy(nil).gate
		if _, err := postgres.New(config); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}
