package drivers_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lychgate/lychgate/adapters/postgres"
	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/ticket"
	"github.com/lychgate/lychgate/fencestore/pgstore"
	"github.com/lychgate/lychgate/proxy/gate"
	fencesql "github.com/lychgate/lychgate/sql"
	"github.com/lychgate/lychgate/sql/pgserver"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

var server *pgserver.Server

func TestMain(m *testing.M) {
	os.Exit(pgtest.Main(m, pgserver.Config{
		Settings: map[string]string{"max_connections": "60"},
		HBA:      []string{"host all scram all scram-sha-256"},
	}, &server))
}

const cluster = "c1"

// world is a database behind a proxy that lets nobody do anything without a ticket. Its table guarded may be written
// only by who holds the resource that stands in the row; its table item is anybody's.
type world struct {
	t      *testing.T
	name   string // of the database
	host   string
	port   string
	root   string // file with the certificate that the proxy's own is to be checked against
	signer *ticket.Signer
}

func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, name: pgtest.NewDatabase(t, server)}
	_, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	if w.signer, err = ticket.NewSigner(private); err != nil {
		t.Fatal(err)
	}
	admin := pgtest.Connect(t, server.DSN("postgres", w.name))
	if _, err := fencesql.Install(t.Context(), admin, fencesql.Options{}); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, admin, `do $$ begin create role app login; create role scram login password 'secret' in role app; exception when duplicate_object then null; end $$;
		grant all on schema public to app;
		create table guarded (resource text not null, n bigint not null);
		create table item (id bigint primary key, name text, price numeric);
		grant all on guarded, item to app`)
	if _, err := fencesql.Protect(t.Context(), admin, "guarded", "resource"); err != nil {
		t.Fatal(err)
	}
	w.serve()
	return w
}

// verifier answers from a key ring.
type verifier struct{ ring *ticket.KeyRing }

func (v verifier) Verify(_ context.Context, raw string) (ticket.Claims, error) {
	return v.ring.Verify(raw)
}

// serve runs the proxy until the test is done.
func (w *world) serve() {
	w.t.Helper()
	must := func(err error) {
		w.t.Helper()
		if err != nil {
			w.t.Fatal(err)
		}
	}
	ring, err := ticket.NewKeyRing(cluster, []ticket.Key{w.signer.Key()})
	must(err)
	store, err := pgstore.New(pgstore.Config{DSN: server.DSN(fencesql.DefaultProxyRole, w.name), Conns: 3})
	must(err)
	log := slog.New(slog.DiscardHandler)
	g, err := gate.New(gate.Config{
		Listener: "drivers", Adapter: "postgres", Policy: gate.Require, Verifier: verifier{ring}, Store: store, Logger: log,
	})
	must(err)
	certificate, root := newCertificate(w.t)
	w.root = root
	proxy, err := postgres.New(postgres.Config{
		Gate: g, Upstream: fmt.Sprintf("127.0.0.1:%d", server.Port()), Database: w.name, Logger: log,
		TLS: &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	})
	must(err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(err)
	w.host, w.port, err = net.SplitHostPort(l.Addr().String())
	must(err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := proxy.Serve(ctx, l); err != nil {
			w.t.Errorf("serve: %v", err)
		}
	})
	w.t.Cleanup(func() {
		stop()
		running.Wait()
		store.Close()
	})
}

// tickets are grants of one resource, each with a larger token than the one before.
func (w *world) tickets(resource string, n int) (list []string) {
	w.t.Helper()
	for token := range n {
		raw, err := w.signer.Sign(ticket.Claims{
			Cluster: cluster, Resource: lease.Resource(resource), Token: lease.Token(token + 1), Mode: lease.Exclusive,
			Lease: lease.NewID(1, [14]byte{byte(token)}).Hash(), Client: ticket.ClientHash("test", "client"),
		})
		if err != nil {
			w.t.Fatal(err)
		}
		list = append(list, raw)
	}
	return list
}

// newCertificate makes one for 127.0.0.1 and the path of a file with it, for clients that check.
func newCertificate(t *testing.T) (tls.Certificate, string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "proxy"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "root.crt")
	if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o644); err != nil {
		t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, path
}

// environment is what the cases of a driver are given: libpq's variables, the resource, and its tickets in ascending order.
// The user scram has the password "secret"; ROOTCERT is for those cases that speak TLS.
func (w *world) environment(resource string) []string {
	return append(os.Environ(),
		"PGHOST="+w.host, "PGPORT="+w.port, "PGDATABASE="+w.name, "PGUSER=app", "PGSSLMODE=disable", "PGCONNECT_TIMEOUT=30",
		"ROOTCERT="+w.root,
		"RESOURCE="+resource, "TICKETS="+strings.Join(w.tickets(resource, 120), " "))
}
