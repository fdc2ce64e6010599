package client_test

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator"
	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/coordinator/internal/access"
	"github.com/lychgate/lychgate/coordinator/lockpb"
	"github.com/lychgate/lychgate/coordinator/tlstest"
)

// guard is a real coordinator that asks who calls.
type guard struct {
	ca   *tlstest.CA
	dir  string
	addr string
}

func newGuard(t *testing.T) *guard {
	t.Helper()
	g := &guard{ca: tlstest.NewCA(t), dir: t.TempDir()}
	addrs := freeAddrs(t, 3)
	c := coordinator.DefaultConfig()
	c.Node, c.Dir = "n1", filepath.Join(g.dir, "n1")
	c.Members = []coordinator.Member{{ID: "n1", Peer: addrs[0], GRPC: addrs[1], HTTP: addrs[2]}}
	c.TLS = &coordinator.TLS{CA: tlstest.Write(t, g.dir, "ca.crt", g.ca.PEM())}
	c.TLS.Cert, c.TLS.Key = g.ca.Issue(nil, "lychgate://node/n1").Write(t, g.dir, "node")
	prefix := "ledger/"
	c.Access = &coordinator.Access{
		Tokens: tlstest.Write(t, g.dir, "tokens", []byte(access.Line("acme:worker", "s3cret"))),
		Rules:  []coordinator.AccessRule{{Identity: "acme:*", Prefix: &prefix, Allow: []string{"acquire"}}},
	}
	node, err := coordinator.New(c, coordinator.Deps{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := node.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	select {
	case <-node.Ready():
	case <-time.After(time.Minute):
		t.Fatal("the node is not ready")
	}
	g.addr = addrs[1]
	return g
}

func freeAddrs(t *testing.T, n int) (addrs []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// dial makes a client as a program would, of files.
func (g *guard) dial(t *testing.T, files client.Files, token client.Token) *client.Client {
	t.Helper()
	config, err := files.TLS()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.Dial(client.Config{Addrs: []string{g.addr}, TLS: config, Token: token})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func (g *guard) caFile() string { return filepath.Join(g.dir, "ca.crt") }

// soon is long for what must end by itself, and short beside what a call without a bound would wait.
func soon(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func TestTokenAndCertificate(t *testing.T) {
	g := newGuard(t)
	cert, key := g.ca.Issue(nil, "lychgate://identity/acme:other").Write(t, g.dir, "client")
	for name, c := range map[string]*client.Client{
		"token":       g.dial(t, client.Files{CA: g.caFile()}, client.StaticToken("s3cret")),
		"certificate": g.dial(t, client.Files{CA: g.caFile(), Cert: cert, Key: key}, nil),
	} {
		l, err := c.Acquire(soon(t), "ledger/"+name)
		if err != nil {
			t.Fatalf("by %s: %v", name, err)
		}
		if err := l.Release(soon(t)); err != nil {
			t.Errorf("by %s: %v", name, err)
		}
		_, err = c.Acquire(soon(t), "other")
		if !errors.Is(err, client.ErrPermissionDenied) {
			t.Errorf("by %s, without a right: %v", name, err)
		}
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Applied != lockpb.Applied_NO || e.Temporary() {
			t.Errorf("by %s, without a right: %#v", name, e)
		}
	}
}

// An acquire without a bound waits for a lock, and not for a right that it has not.
func TestNobodyIsRefusedAtOnce(t *testing.T) {
	g := newGuard(t)
	for name, token := range map[string]client.Token{
		"no token":      nil,
		"a wrong token": client.StaticToken("s3cre"),
		"no file":       client.TokenFile(filepath.Join(g.dir, "none")),
		"an empty file": client.TokenFile(tlstest.Write(t, g.dir, "empty", []byte("\n"))),
	} {
		c := g.dial(t, client.Files{CA: g.caFile()}, token)
		_, err := c.Acquire(soon(t), "ledger/eu")
		if !errors.Is(err, client.ErrUnauthenticated) {
			t.Errorf("%s: got %v, want ErrUnauthenticated", name, err)
		}
		if e, ok := errors.AsType[*client.Error](err); !ok || e.Applied != lockpb.Applied_NO || e.Temporary() {
			t.Errorf("%s: %#v", name, e)
		}
	}
}

func TestDistrustIsFinal(t *testing.T) {
	g := newGuard(t)
	foreign := tlstest.NewCA(t)
	cert, key := foreign.Issue(nil, "lychgate://identity/acme:worker").Write(t, g.dir, "foreign")
	for name, files := range map[string]client.Files{
		"the coordinator is not believed": {CA: tlstest.Write(t, g.dir, "foreign-ca.crt", foreign.PEM())},
		"the client is not believed":      {CA: g.caFile(), Cert: cert, Key: key},
	} {
		c := g.dial(t, files, client.StaticToken("s3cret"))
		_, err := c.Acquire(soon(t), "ledger/eu")
		if !errors.Is(err, client.ErrUntrusted) {
			t.Errorf("%s: got %v, want ErrUntrusted", name, err)
		}
	}
}

func TestTokenFileIsReadAnew(t *testing.T) {
	path := tlstest.Write(t, t.TempDir(), "token", []byte(" one\n"))
	token := client.TokenFile(path)
	read := func() string {
		text, err := token(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	if got := read(); got != "one" {
		t.Fatalf("got %q", got)
	}
	if err := os.WriteFile(path, []byte("two"), 0o600); err != nil {
		t.Fatal(err)
	}
	ticker := time.NewTicker(50 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(time.Minute); read() != "two"; <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatal("the new token is not used")
		}
	}
}

func TestTokenDoesNotGoInPlainText(t *testing.T) {
	_, err := client.Dial(client.Config{Addrs: []string{"10.0.0.1:7600"}, Token: client.StaticToken("s3cret")})
	if err == nil || !strings.Contains(err.Error(), "plain text") {
		t.Errorf("got %v", err)
	}
	c, err := client.Dial(client.Config{Addrs: []string{"127.0.0.1:7600", "localhost:7600", "[::1]:7600"}, Token: client.StaticToken("s3cret")})
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

func TestFilesThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	cert, _ := tlstest.NewCA(t).Issue(nil).Write(t, dir, "c")
	for name, test := range map[string]struct {
		files client.Files
		said  string
	}{
		"no CA":        {client.Files{CA: filepath.Join(dir, "none")}, "none"},
		"an empty CA":  {client.Files{CA: tlstest.Write(t, dir, "empty", nil)}, "has no certificate in it"},
		"half a pair":  {client.Files{Cert: cert}, "belong together"},
		"another key":  {client.Files{Cert: cert, Key: cert}, "certificate " + cert},
		"missing cert": {client.Files{Cert: filepath.Join(dir, "x"), Key: cert}, "x"},
	} {
		if _, err := test.files.TLS(); err == nil || !strings.Contains(err.Error(), test.said) {
			t.Errorf("%s: got %v, want an error that says %q", name, err, test.said)
		}
	}
	if config, err := (client.Files{}).TLS(); config != nil || err != nil {
		t.Errorf("no files: %v %v", config, err)
	}
}
