package coordinator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/lychgate/lychgate/coordinator/internal/access"
	"github.com/lychgate/lychgate/coordinator/lockpb"
	"github.com/lychgate/lychgate/coordinator/tlstest"
)

// guarded is a cluster with certificates, tokens and rules.
type guarded struct {
	*running
	nodes, clients *tlstest.CA
	dirs           []string // of the nodes' files
}

func newGuarded(t *testing.T, n int) *guarded {
	t.Helper()
	g := &guarded{running: newRunning(t, n), nodes: tlstest.NewCA(t), clients: tlstest.NewCA(t)}
	for i := range g.configs {
		c := &g.configs[i]
		dir := t.TempDir()
		g.dirs = append(g.dirs, dir)
		c.TLS = &TLS{
			CA:       tlstest.Write(t, dir, "nodes.crt", g.nodes.PEM()),
			ClientCA: tlstest.Write(t, dir, "clients.crt", g.clients.PEM()),
		}
		c.TLS.Cert, c.TLS.Key = g.nodes.Issue(nil, "lychgate://node/"+c.Node).Write(t, dir, "node")
		ledger := "ledger/"
		c.Access = &Access{
			Tokens: tlstest.Write(t, dir, "tokens", []byte(access.Line("acme:token", "s3cret")+"\n"+access.Line("root", "adm1n"))),
			Rules: []AccessRule{
				{Identity: "acme:*", Prefix: &ledger, Allow: []string{"acquire", "read"}},
				{Identity: "root", Prefix: everything(), Allow: []string{"acquire", "shared", "read", "admin"}},
			},
		}
	}
	return g
}

// as dials a node's gRPC port with a certificate, or with none.
func (g *guarded) as(i int, pair *tlstest.Pair) *grpc.ClientConn {
	g.t.Helper()
	conn, err := grpc.NewClient(g.running.nodes[i].node.GRPCAddr(), grpc.WithTransportCredentials(credentials.NewTLS(g.config(pair))))
	check(g.t, err)
	g.t.Cleanup(func() { _ = conn.Close() })
	return conn
}

func (g *guarded) config(pair *tlstest.Pair) *tls.Config {
	config := &tls.Config{RootCAs: g.nodes.Pool(), ServerName: "localhost"}
	if pair != nil {
		config.Certificates = []tls.Certificate{pair.Certificate(g.t)}
	}
	return config
}

func (g *guarded) client(uri string) *tlstest.Pair {
	p := g.clients.Issue(nil, uri)
	return &p
}

func (g *guarded) node(uri string) *tlstest.Pair {
	p := g.nodes.Issue(nil, uri)
	return &p
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	t.Cleanup(cancel)
	return ctx
}

func bearer(ctx context.Context, token string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
}

func reasonOf(err error) lockpb.Reason {
	for _, detail := range status.Convert(err).Details() {
		if r, ok := detail.(*lockpb.Refusal); ok {
			return r.GetReason()
		}
	}
	return lockpb.Reason_REASON_UNSPECIFIED
}

func acquireRequest(resource, request string) *lockpb.AcquireRequest {
	return &lockpb.AcquireRequest{Resource: resource, ClientId: "c1", RequestId: request}
}

// Three nodes find one another by their certificates, and a client's identity goes with its call through any of them.
func TestClusterWithTLS(t *testing.T) {
	g := newGuarded(t, 3)
	g.startAll()
	for i := range g.configs {
		worker := lockpb.NewLocksClient(g.as(i, g.client("lychgate://identity/acme:worker")))
		out, err := worker.Acquire(within(t), acquireRequest("ledger/eu", g.configs[i].Node))
		if err != nil {
			t.Fatalf("by certificate at node %d: %v", i+1, err)
		}
		seen, err := worker.Get(within(t), &lockpb.GetRequest{Resource: "ledger/eu"})
		check(t, err)
		if id := seen.GetLock().GetHolders()[0].GetIdentity(); id != "acme:worker" {
			t.Errorf("node %d: held by %q, want acme:worker", i+1, id)
		}
		_, err = worker.Release(within(t), &lockpb.ReleaseRequest{LeaseId: out.GetLeaseId()})
		check(t, err)
		_, err = worker.Acquire(within(t), acquireRequest("other/eu", "other"+g.configs[i].Node))
		if reasonOf(err) != lockpb.Reason_PERMISSION_DENIED {
			t.Errorf("node %d: another prefix: %v", i+1, err)
		}
		nobody := lockpb.NewLocksClient(g.as(i, nil))
		if _, err = nobody.Acquire(within(t), acquireRequest("ledger/eu", "r9")); reasonOf(err) != lockpb.Reason_UNAUTHENTICATED {
			t.Errorf("node %d: nobody: %v", i+1, err)
		}
		if _, err = nobody.Acquire(bearer(within(t), "s3cre"), acquireRequest("ledger/eu", "r9")); reasonOf(err) != lockpb.Reason_UNAUTHENTICATED {
			t.Errorf("node %d: a wrong token: %v", i+1, err)
		}
		out, err = nobody.Acquire(bearer(within(t), "s3cret"), acquireRequest("ledger/eu", "t"+g.configs[i].Node))
		if err != nil {
			t.Fatalf("by token at node %d: %v", i+1, err)
		}
		_, err = nobody.Release(bearer(within(t), "s3cret"), &lockpb.ReleaseRequest{LeaseId: out.GetLeaseId()})
		check(t, err)
	}
}

// Only who has a node's certificate of a member, or a gateway's, may say for whom it sends a call on.
func TestOnlyNodesSendCallsOn(t *testing.T) {
	g := newGuarded(t, 1)
	g.startAll()
	onBehalf := metadata.AppendToOutgoingContext(within(t), "lychgate-forwarded", "n1", "lychgate-identity", "root")
	for name, test := range map[string]struct {
		pair *tlstest.Pair
		want lockpb.Reason
	}{
		"no certificate":   {nil, lockpb.Reason_PERMISSION_DENIED},
		"a client":         {g.client("lychgate://identity/acme:worker"), lockpb.Reason_PERMISSION_DENIED},
		"node, no member":  {g.node("lychgate://node/n9"), lockpb.Reason_PERMISSION_DENIED},
		"a member":         {g.node("lychgate://node/n1"), lockpb.Reason_REASON_UNSPECIFIED},
		"a gateway":        {g.node("lychgate://gateway/g1"), lockpb.Reason_REASON_UNSPECIFIED},
		"admin, by itself": {nil, lockpb.Reason_PERMISSION_DENIED},
	} {
		_, err := lockpb.NewLocksClient(g.as(0, test.pair)).Break(onBehalf, &lockpb.BreakRequest{Resource: "any/thing"})
		if reasonOf(err) != test.want {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
	}
	// The node that sent it on can tell that it is itself that is not let in.
	_, err := lockpb.NewLocksClient(g.as(0, g.node("lychgate://node/n9"))).Break(onBehalf, &lockpb.BreakRequest{Resource: "any/thing"})
	for _, d := range status.Convert(err).Details() {
		if r, ok := d.(*lockpb.Refusal); !ok || r.GetField() != "lychgate-forwarded" {
			t.Errorf("no member: got %v", d)
		}
	}
	// A node's certificate gives its bearer no right of its own.
	_, err = lockpb.NewLocksClient(g.as(0, g.node("lychgate://node/n1"))).Break(within(t), &lockpb.BreakRequest{Resource: "any/thing"})
	if reasonOf(err) != lockpb.Reason_PERMISSION_DENIED {
		t.Errorf("a node by itself: %v", err)
	}
	for name, pair := range map[string]*tlstest.Pair{
		"nobody": nil, "a client": g.client("lychgate://identity/root"), "a gateway": g.node("lychgate://gateway/g1"), "no member": g.node("lychgate://node/n9"),
	} {
		cluster := lockpb.NewClusterClient(g.as(0, pair))
		if _, err := cluster.Meet(bearer(within(t), "adm1n"), &lockpb.MeetRequest{Node: "n2"}); reasonOf(err) != lockpb.Reason_PERMISSION_DENIED {
			t.Errorf("Meet by %s: %v", name, err)
		}
		if _, err := cluster.Rekey(bearer(within(t), "adm1n"), &lockpb.RekeyRequest{Node: "n1"}); reasonOf(err) != lockpb.Reason_PERMISSION_DENIED {
			t.Errorf("Rekey by %s: %v", name, err)
		}
	}
}

// A certificate that nobody can believe does not get as far as a call.
func TestUnbelievableCertificates(t *testing.T) {
	g := newGuarded(t, 1)
	g.startAll()
	other := tlstest.NewCA(t).Issue(nil, "lychgate://identity/root")
	for name, pair := range map[string]*tlstest.Pair{
		"another CA":                &other,
		"a node of the clients' CA": g.client("lychgate://node/n1"),
		"a client of the nodes' CA": g.node("lychgate://identity/root"),
		"a name that cannot be one": g.client("lychgate://identity/acme%20worker"),
		"a gateway of the clients'": g.client("lychgate://gateway/g1"),
	} {
		_, err := lockpb.NewClusterClient(g.as(0, pair)).Keys(within(t), &lockpb.KeysRequest{})
		if status.Code(err) != codes.Unavailable {
			t.Errorf("%s over gRPC: %v", name, err)
		}
		web := &http.Client{Transport: &http.Transport{TLSClientConfig: g.config(pair), DisableKeepAlives: true}}
		if response, err := web.Get("https://" + g.running.nodes[0].node.HTTPAddr() + "/livez"); err == nil {
			_ = response.Body.Close()
			t.Errorf("%s over HTTP: %s", name, response.Status)
		}
	}
}

func TestHTTPWithTLS(t *testing.T) {
	g := newGuarded(t, 1)
	g.startAll()
	base := "https://" + g.running.nodes[0].node.HTTPAddr()
	ask := func(pair *tlstest.Pair, path, token, body string) (int, map[string]any) {
		web := &http.Client{Transport: &http.Transport{TLSClientConfig: g.config(pair), DisableKeepAlives: true}}
		method := http.MethodGet
		if body != "" {
			method = http.MethodPost
		}
		request, err := http.NewRequestWithContext(within(t), method, base+path, strings.NewReader(body))
		check(t, err)
		if token != "" {
			request.Header.Set("Authorization", "Bearer "+token)
		}
		// A caller must not be able to say over HTTP that it is a node.
		request.Header.Set("Lychgate-Forwarded", "n1")
		request.Header.Set("Lychgate-Identity", "root")
		request.Header.Set("Grpc-Metadata-Lychgate-Forwarded", "n1")
		request.Header.Set("Grpc-Metadata-Lychgate-Identity", "root")
		response, err := web.Do(request)
		check(t, err)
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		check(t, err)
		var out map[string]any
		_ = json.Unmarshal(text, &out)
		return response.StatusCode, out
	}
	acquire := `{"resource": "ledger/eu", "client_id": "c", "request_id": "r"}`
	worker := g.client("lychgate://identity/acme:worker")
	for name, test := range map[string]struct {
		pair              *tlstest.Pair
		path, token, body string
		want              int
	}{
		"nobody":                         {nil, "/lock/acquire", "", acquire, http.StatusUnauthorized},
		"a certificate":                  {worker, "/lock/get?resource=ledger/eu", "", "", http.StatusOK},
		"a certificate without right":    {worker, "/lock/get?resource=other", "", "", http.StatusForbidden},
		"a token":                        {nil, "/lock/get?resource=ledger/eu", "s3cret", "", http.StatusOK},
		"a token before the certificate": {worker, "/lock/get?resource=other", "adm1n", "", http.StatusOK},
		"a wrong token":                  {worker, "/lock/get?resource=ledger/eu", "x", "", http.StatusUnauthorized},
		"public keys":                    {nil, "/.well-known/jwks.json", "", "", http.StatusOK},
		"health":                         {nil, "/readyz", "", "", http.StatusOK},
	} {
		if code, out := ask(test.pair, test.path, test.token, test.body); code != test.want {
			t.Errorf("%s: got %d %v, want %d", name, code, out, test.want)
		}
	}
	if response, err := http.Get("http://" + g.running.nodes[0].node.HTTPAddr() + "/lock/list"); err == nil {
		defer response.Body.Close()
		if response.StatusCode == http.StatusOK {
			t.Error("plain text was answered")
		}
	}
}

// Where a certificate is asked for, a token alone does not connect.
func TestRequiredClientCertificate(t *testing.T) {
	g := newGuarded(t, 1)
	g.configs[0].TLS.RequireClientCert = true
	g.startAll()
	_, err := lockpb.NewLocksClient(g.as(0, nil)).Get(bearer(within(t), "adm1n"), &lockpb.GetRequest{Resource: "x"})
	if status.Code(err) != codes.Unavailable {
		t.Errorf("without a certificate: %v", err)
	}
	_, err = lockpb.NewLocksClient(g.as(0, g.client("lychgate://identity/acme:w"))).Get(bearer(within(t), "adm1n"), &lockpb.GetRequest{Resource: "x"})
	check(t, err)
}

// A node that shows another node's certificate takes no part, and the others say so.
func TestNodeWithTheCertificateOfAnother(t *testing.T) {
	g := newGuarded(t, 3)
	// The third one's certificate is that of a node which is no member; it does not know, and would start.
	g.configs[2].TLS.Cert, g.configs[2].TLS.Key = g.nodes.Issue(nil, "lychgate://node/n9").Write(t, g.dirs[2], "node")
	node, err := New(g.configs[2], Deps{})
	check(t, err)
	if err := node.Run(within(t)); err == nil || !strings.Contains(err.Error(), "names lychgate://node/n9, and this is lychgate://node/n3") {
		t.Errorf("got %v, want an error that names both", err)
	}
}

func TestExpiryIsAMetric(t *testing.T) {
	g := newGuarded(t, 1)
	registry := prometheus.NewRegistry()
	node, err := New(g.configs[0], Deps{Registry: registry})
	check(t, err)
	_, err = node.openSecurity()
	check(t, err)
	families, err := registry.Gather()
	check(t, err)
	seen := 0
	for _, f := range families {
		if f.GetName() == "lychgate_certificate_expiry_timestamp_seconds" {
			for _, m := range f.GetMetric() {
				seen++
				if m.GetGauge().GetValue() < 1e9 {
					t.Errorf("%v", m)
				}
			}
		}
	}
	if seen != 2 {
		t.Errorf("%d certificates, want the own and the CA's", seen)
	}
}

// An expired or missing file keeps a node from starting, and says which.
func TestUnusableSecurityFiles(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(c *Config)
		said  string
	}{
		"no key":     {func(c *Config) { c.TLS.Key = filepath.Join(c.Dir, "none.key") }, "none.key"},
		"no tokens":  {func(c *Config) { c.Access.Tokens = filepath.Join(c.Dir, "none") }, "access: "},
		"bad tokens": {func(c *Config) { check(t, os.WriteFile(c.Access.Tokens, []byte("acme:worker s3cret"), 0o600)) }, ":1: the second word"},
		"expired": {func(c *Config) {
			p := tlstest.NewCA(t).Issue(func(c *x509.Certificate) { c.NotAfter = c.NotBefore.Add(1) }, "lychgate://node/n1")
			check(t, os.WriteFile(c.TLS.Cert, p.Cert, 0o600))
			check(t, os.WriteFile(c.TLS.Key, p.Key, 0o600))
		}, "has expired"},
	} {
		g := newGuarded(t, 1)
		test.spoil(&g.configs[0])
		node, err := New(g.configs[0], Deps{})
		check(t, err)
		if err := node.Run(within(t)); err == nil || !strings.Contains(err.Error(), test.said) {
			t.Errorf("%s: got %v, want an error that says %q", name, err, test.said)
		}
	}
}
