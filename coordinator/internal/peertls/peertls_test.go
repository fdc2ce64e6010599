package peertls

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/coordinator/tlstest"
)

// patient bounds what a test waits for; nothing ever takes it.
const patient = 20 * time.Second

// buffer is a log that a test reads while it is written.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// ends is what a test needs to know of one side.
type ends struct {
	keys    *Keys
	files   Files
	dir     string
	log     *buffer
	refused chan string // PORT REASON
}

func newEnd(t *testing.T, ca *tlstest.CA, self Name, pair tlstest.Pair, change func(*Config)) *ends {
	t.Helper()
	e := &ends{dir: t.TempDir(), log: new(buffer), refused: make(chan string, 100)}
	e.files.Cert, e.files.Key = pair.Write(t, e.dir, "own")
	e.files.CA = tlstest.Write(t, e.dir, "ca.crt", ca.PEM())
	config := Config{
		Files: e.files, Self: self, Every: 5 * time.Millisecond, Handshake: time.Second,
		Logger:  slog.New(slog.NewTextHandler(e.log, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Refused: func(port, reason string) { e.refused <- port + " " + reason },
	}
	if change != nil {
		change(&config)
	}
	var err error
	if e.keys, err = New(config); err != nil {
		t.Fatal(err)
	}
	return e
}

func nodeEnd(t *testing.T, ca *tlstest.CA, id string) *ends {
	t.Helper()
	self := Name{Node, id}
	return newEnd(t, ca, self, ca.Issue(nil, self.String()), nil)
}

func members(ids ...string) func(string) bool {
	return func(id string) bool {
		for _, m := range ids {
			if m == id {
				return true
			}
		}
		return false
	}
}

// serve echoes one byte on each connection, and tells whose it was.
func serve(t *testing.T, l net.Listener) (callers <-chan string) {
	t.Helper()
	told := make(chan string, 10)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			id := ""
			if verified, ok := conn.(interface{ PeerNode() string }); ok {
				id = verified.PeerNode()
			}
			told <- id
			wg.Go(func() {
				defer conn.Close()
				_, _ = io.CopyN(conn, conn, 1)
			})
		}
	})
	t.Cleanup(func() { _ = l.Close(); wg.Wait() })
	return told
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// talk sends a byte and reads it back. In TLS 1.3 a refusal of the client's certificate comes with the first read.
func talk(ctx context.Context, conn net.Conn) error {
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	if _, err := conn.Write([]byte{7}); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 1))
	return err
}

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	t.Cleanup(cancel)
	return ctx
}

func TestNodesKnowOneAnother(t *testing.T) {
	ca := tlstest.NewCA(t)
	n1, n2 := nodeEnd(t, ca, "n1"), nodeEnd(t, ca, "n2")
	l := n1.keys.Listen(listen(t), members("n1", "n2"))
	callers := serve(t, l)
	conn, err := n2.keys.DialPeer(within(t), "n1", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if err := talk(within(t), conn); err != nil {
		t.Fatal(err)
	}
	if id := <-callers; id != "n2" {
		t.Errorf("the listener took the caller for %q, want n2", id)
	}
	if id := conn.(*Conn).PeerNode(); id != "n1" {
		t.Errorf("the dialler took the listener for %q, want n1", id)
	}
	if state := conn.(*Conn).ConnectionState(); state.Version != tls.VersionTLS13 {
		t.Errorf("TLS version %x, want 1.3", state.Version)
	}
}

// A certificate that the CA has signed is not enough: it has to be that of the node that was meant.
func TestDiallerRefusesAnotherNode(t *testing.T) {
	ca := tlstest.NewCA(t)
	n2, n3 := nodeEnd(t, ca, "n2"), nodeEnd(t, ca, "n3")
	l := n3.keys.Listen(listen(t), members("n1", "n2", "n3"))
	serve(t, l)
	_, err := n2.keys.DialPeer(within(t), "n1", l.Addr().String())
	if err == nil || !strings.Contains(err.Error(), "names lychgate://node/n3, and lychgate://node/n1 was meant") {
		t.Fatalf("got %v, want an error that names both", err)
	}
	if got := <-n2.refused; got != "dial certificate" {
		t.Errorf("counted as %q", got)
	}
	if !strings.Contains(n2.log.String(), "a node is not who it should be") {
		t.Errorf("not in the log: %s", n2.log)
	}
}

// By a refused connection a node knows that another's process is gone.
func TestARefusedConnectionIsTold(t *testing.T) {
	n2, l := nodeEnd(t, tlstest.NewCA(t), "n2"), listen(t)
	address := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := n2.keys.DialPeer(within(t), "n1", address); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("got %v", err)
	}
}

func TestPeerPortRefuses(t *testing.T) {
	ca, foreign := tlstest.NewCA(t), tlstest.NewCA(t)
	n1 := nodeEnd(t, ca, "n1")
	l := n1.keys.Listen(listen(t), members("n1", "n2"))
	serve(t, l)
	issue := func(uris ...string) *tlstest.Pair { p := ca.Issue(nil, uris...); return &p }
	of := func(ca *tlstest.CA, change func(*x509.Certificate), uri string) *tlstest.Pair {
		p := ca.Issue(change, uri)
		return &p
	}
	for name, test := range map[string]struct {
		pair        *tlstest.Pair
		logged      string
		wantCounted string
	}{
		"a node that is no member":      {issue("lychgate://node/n9"), "node/n9, which is no member of this cluster", "peer certificate"},
		"a client":                      {issue("lychgate://identity/acme:worker"), "identity/acme:worker, which is no node", "peer certificate"},
		"a gateway":                     {issue("lychgate://gateway/g1"), "gateway/g1, which is no node", "peer certificate"},
		"two names":                     {issue("lychgate://node/n2", "lychgate://identity/x"), "only one may count", "peer certificate"},
		"an unknown kind":               {issue("lychgate://king/n2"), "is not lychgate://node/ID", "peer certificate"},
		"a name with a query":           {issue("lychgate://node/n2?x"), "is not lychgate://node/ID", "peer certificate"},
		"nobody":                        {issue(), "names nobody", "peer certificate"},
		"a member's name, another's CA": {of(foreign, nil, "lychgate://node/n2"), "unknown authority", "peer certificate"},
		"expired": {
			of(ca, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Minute) }, "lychgate://node/n2"),
			"expired", "peer certificate",
		},
		"for servers only": {
			of(ca, func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }, "lychgate://node/n2"),
			"incompatible key usage", "peer certificate",
		},
		"no certificate": {nil, "didn't provide a certificate", "peer handshake"},
	} {
		config := &tls.Config{RootCAs: ca.Pool(), ServerName: "localhost"}
		if test.pair != nil {
			config.Certificates = []tls.Certificate{test.pair.Certificate(t)}
		}
		conn, err := (&tls.Dialer{Config: config}).DialContext(within(t), "tcp", l.Addr().String())
		if err == nil {
			err = talk(within(t), conn)
			_ = conn.Close()
		}
		if err == nil {
			t.Errorf("%s: let in", name)
			continue
		}
		if got := <-n1.refused; got != test.wantCounted {
			t.Errorf("%s: counted as %q, want %q", name, got, test.wantCounted)
		}
		if !strings.Contains(n1.log.String(), test.logged) {
			t.Errorf("%s: the log does not say %q:\n%s", name, test.logged, n1.log)
		}
	}
}

func TestPeerPortRefusesOlderTLSAndNone(t *testing.T) {
	ca := tlstest.NewCA(t)
	n1 := nodeEnd(t, ca, "n1")
	l := n1.keys.Listen(listen(t), members("n1", "n2"))
	serve(t, l)
	old := &tls.Config{
		RootCAs: ca.Pool(), ServerName: "localhost", MaxVersion: tls.VersionTLS12,
		Certificates: []tls.Certificate{ca.Issue(nil, "lychgate://node/n2").Certificate(t)},
	}
	if _, err := (&tls.Dialer{Config: old}).DialContext(within(t), "tcp", l.Addr().String()); err == nil {
		t.Error("TLS 1.2 was let in")
	}
	plain, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := talk(within(t), plain); err == nil {
		t.Error("plain text was answered")
	}
}

// Somebody who connects and says nothing keeps neither the others waiting nor a place for ever.
func TestSilentCallersDoNotHoldThePeerPort(t *testing.T) {
	ca := tlstest.NewCA(t)
	n1, n2 := nodeEnd(t, ca, "n1"), nodeEnd(t, ca, "n2")
	l := n1.keys.Listen(listen(t), members("n1", "n2"))
	serve(t, l)
	var silent []net.Conn
	for range maxOfOneAddress - 1 {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		silent = append(silent, conn)
	}
	conn, err := n2.keys.DialPeer(within(t), "n1", l.Addr().String())
	if err != nil {
		t.Fatalf("beside silent callers: %v", err)
	}
	defer conn.Close()
	if err := talk(within(t), conn); err != nil {
		t.Fatalf("beside silent callers: %v", err)
	}
	for _, s := range silent {
		_ = s.SetReadDeadline(time.Now().Add(patient))
		if _, err := s.Read(make([]byte, 1)); errors.Is(err, context.DeadlineExceeded) || isTimeout(err) {
			t.Fatal("a silent caller was not cut off")
		}
	}
}

func TestTooManyHandshakesAreClosedAtOnce(t *testing.T) {
	ca := tlstest.NewCA(t)
	n1 := nodeEnd(t, ca, "n1")
	l := n1.keys.Listen(listen(t), members("n1"))
	serve(t, l)
	for range maxOfOneAddress + 5 {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	if got := <-n1.refused; got != "peer flood" {
		t.Errorf("counted as %q", got)
	}
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

func TestWho(t *testing.T) {
	ca, clientCA := tlstest.NewCA(t), tlstest.NewCA(t)
	self := Name{Node, "n1"}
	n1 := newEnd(t, ca, self, ca.Issue(nil, self.String()), func(c *Config) {
		c.Files.ClientCA = tlstest.Write(t, t.TempDir(), "clients.crt", clientCA.PEM())
	})
	named := func(cn string) func(*x509.Certificate) {
		return func(c *x509.Certificate) { c.Subject.CommonName = cn }
	}
	for name, test := range map[string]struct {
		pair     tlstest.Pair
		identity lease.Identity
		vouches  bool
		refused  string
	}{
		"a client by its URI":         {pair: clientCA.Issue(named("other"), "lychgate://identity/acme:worker"), identity: "acme:worker"},
		"a client by its common name": {pair: clientCA.Issue(named("acme:cn")), identity: "acme:cn"},
		"another URI beside":          {pair: clientCA.Issue(named("acme:cn"), "spiffe://acme/worker"), identity: "acme:cn"},
		"a node":                      {pair: ca.Issue(nil, "lychgate://node/n2"), identity: "node:n2", vouches: true},
		"a gateway":                   {pair: ca.Issue(nil, "lychgate://gateway/g1"), identity: "gateway:g1", vouches: true},
		"a node of the clients' CA":   {pair: clientCA.Issue(nil, "lychgate://node/n2"), refused: "unknown authority"},
		"a client of the nodes' CA":   {pair: ca.Issue(nil, "lychgate://identity/acme:worker"), refused: "unknown authority"},
		"a common name with spaces":   {pair: clientCA.Issue(named("Jane Doe")), refused: "has the character"},
		"anonymous":                   {pair: clientCA.Issue(named("anonymous")), refused: "which is nobody"},
		"a star":                      {pair: clientCA.Issue(named("acme:*")), refused: "has the character"},
	} {
		leaf := test.pair.Certificate(t).Leaf
		got, ok, err := n1.keys.Who(tls.ConnectionState{PeerCertificates: []*x509.Certificate{leaf}})
		switch {
		case test.refused != "":
			if err == nil || !strings.Contains(err.Error(), test.refused) {
				t.Errorf("%s: got %v %v, want an error that says %q", name, got, err, test.refused)
			}
		case err != nil || !ok:
			t.Errorf("%s: %v", name, err)
		case got.Identity() != test.identity || got.Vouches() != test.vouches:
			t.Errorf("%s: got %v", name, got)
		}
	}
	if _, ok, err := n1.keys.Who(tls.ConnectionState{}); ok || err != nil {
		t.Errorf("no certificate: %v %v", ok, err)
	}
}
