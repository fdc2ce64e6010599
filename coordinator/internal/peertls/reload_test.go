package peertls

import (
	"context"
	"crypto/x509"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lychgate/lychgate/coordinator/tlstest"
)

func (e *ends) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = e.keys.Run(ctx) })
	t.Cleanup(func() { cancel(); wg.Wait() })
}

func until(t *testing.T, what string, done func() bool) {
	t.Helper()
	deadline := time.Now().Add(patient)
	looks := time.NewTicker(2 * time.Millisecond)
	defer looks.Stop()
	for !done() {
		if time.Now().After(deadline) {
			t.Fatalf("not after %v: %s", patient, what)
		}
		<-looks.C
	}
}

// The CA is replaced while the cluster runs, in the usual order: both CAs are trusted, then certificates of the new one
// are handed out, then the old one goes.
func TestRotationWithoutARestart(t *testing.T) {
	old, renewed := tlstest.NewCA(t), tlstest.NewCA(t)
	n1, n2 := nodeEnd(t, old, "n1"), nodeEnd(t, old, "n2")
	l := n1.keys.Listen(listen(t), members("n1", "n2"))
	serve(t, l)
	n1.run(t)
	n2.run(t)
	meet := func() error {
		conn, err := n2.keys.DialPeer(within(t), "n1", l.Addr().String())
		if err != nil {
			return err
		}
		defer conn.Close()
		return talk(within(t), conn)
	}
	taken := func(e *ends, times int) {
		until(t, "the files are read anew", func() bool { return strings.Count(e.log.String(), "read anew") >= times })
	}
	if err := meet(); err != nil {
		t.Fatalf("before: %v", err)
	}
	both := append(old.PEM(), renewed.PEM()...)
	for _, e := range []*ends{n1, n2} {
		tlstest.Write(t, e.dir, "ca.crt", both)
		taken(e, 1)
	}
	// Between the two writes the pair does not fit together: that is no fault that anybody has to see.
	renewed.Issue(nil, "lychgate://node/n2").Write(t, n2.dir, "own")
	taken(n2, 2)
	if err := meet(); err != nil {
		t.Fatalf("one node has its new certificate: %v", err)
	}
	renewed.Issue(nil, "lychgate://node/n1").Write(t, n1.dir, "own")
	taken(n1, 2)
	for _, e := range []*ends{n1, n2} {
		tlstest.Write(t, e.dir, "ca.crt", renewed.PEM())
		taken(e, 3)
	}
	if err := meet(); err != nil {
		t.Fatalf("after: %v", err)
	}
	stale := nodeEnd(t, old, "n2")
	conn, err := stale.keys.DialPeer(within(t), "n1", l.Addr().String())
	if err == nil {
		err = talk(within(t), conn)
		_ = conn.Close()
	}
	if err == nil {
		t.Error("a certificate of the old CA was let in after it went")
	}
}

func TestUnusableFilesLeaveTheOldOnes(t *testing.T) {
	ca := tlstest.NewCA(t)
	for name, test := range map[string]struct {
		spoil  func(t *testing.T, e *ends)
		logged string
	}{
		"a cut certificate": {func(t *testing.T, e *ends) { tlstest.Write(t, e.dir, "own.crt", []byte("-----BEGIN CERT")) }, "certificate"},
		"another node's": {func(t *testing.T, e *ends) {
			p := ca.Issue(nil, "lychgate://node/n2")
			tlstest.Write(t, e.dir, "own.key", p.Key)
			tlstest.Write(t, e.dir, "own.crt", p.Cert)
		}, "names lychgate://node/n2, and this is lychgate://node/n1"},
		"an empty CA": {func(t *testing.T, e *ends) { tlstest.Write(t, e.dir, "ca.crt", nil) }, "has no certificate in it"},
		"another CA":  {func(t *testing.T, e *ends) { tlstest.Write(t, e.dir, "ca.crt", tlstest.NewCA(t).PEM()) }, "would not be believed"},
	} {
		t.Run(name, func(t *testing.T) {
			n1, n2 := nodeEnd(t, ca, "n1"), nodeEnd(t, ca, "n2")
			l := n1.keys.Listen(listen(t), members("n2"))
			serve(t, l)
			n1.run(t)
			test.spoil(t, n1)
			until(t, "it is in the log", func() bool { return strings.Contains(n1.log.String(), test.logged) })
			conn, err := n2.keys.DialPeer(within(t), "n1", l.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if err := talk(within(t), conn); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestUnusableFilesAtTheStart(t *testing.T) {
	ca := tlstest.NewCA(t)
	for name, test := range map[string]struct {
		pair tlstest.Pair
		said string
	}{
		"another node's":           {ca.Issue(nil, "lychgate://node/n2"), "names lychgate://node/n2, and this is lychgate://node/n1"},
		"another CA's":             {tlstest.NewCA(t).Issue(nil, "lychgate://node/n1"), "would not be believed"},
		"not for the client side":  {ca.Issue(func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[:1] }, "lychgate://node/n1"), "would not be believed"},
		"not for the server side":  {ca.Issue(func(c *x509.Certificate) { c.ExtKeyUsage = c.ExtKeyUsage[1:] }, "lychgate://node/n1"), "would not be believed"},
		"expired":                  {ca.Issue(func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Second) }, "lychgate://node/n1"), "has expired"},
		"key of another":           {tlstest.Pair{Cert: ca.Issue(nil, "lychgate://node/n1").Cert, Key: ca.Issue(nil).Key}, "does not match"},
		"no name of ours":          {ca.Issue(nil), "names nobody"},
		"a client's by its own CA": {ca.Issue(nil, "lychgate://identity/acme:n1"), "and this is lychgate://node/n1"},
	} {
		dir := t.TempDir()
		var files Files
		files.Cert, files.Key = test.pair.Write(t, dir, "own")
		files.CA = tlstest.Write(t, dir, "ca.crt", ca.PEM())
		if _, err := New(Config{Files: files, Self: Name{Node, "n1"}}); err == nil || !strings.Contains(err.Error(), test.said) {
			t.Errorf("%s: got %v, want an error that says %q", name, err, test.said)
		}
	}
}

func TestExpiryIsSaidInTime(t *testing.T) {
	ca := tlstest.NewCA(t)
	soon := newEnd(t, ca, Name{Node, "n1"}, ca.Issue(nil, "lychgate://node/n1"), func(c *Config) { c.Warn = 13 * time.Hour })
	soon.run(t)
	until(t, "it is in the log", func() bool {
		return strings.Contains(soon.log.String(), "expires soon") && strings.Contains(soon.log.String(), "which=certificate")
	})
	if strings.Contains(soon.log.String(), "which=CA") {
		t.Error("the CA was said to expire too, which is a day away")
	}
	own, ofCA := soon.keys.Expires()
	if left := time.Until(own); left > 12*time.Hour || left < 11*time.Hour {
		t.Errorf("the certificate expires in %v, want 12 h", left)
	}
	if left := time.Until(ofCA); left < 23*time.Hour {
		t.Errorf("the CA expires in %v, want a day", left)
	}
	later := newEnd(t, ca, Name{Node, "n1"}, ca.Issue(nil, "lychgate://node/n1"), func(c *Config) { c.Warn = time.Hour })
	if later.keys.expiring(time.Time{}) {
		t.Error("warned of a certificate that has time left")
	}
}
