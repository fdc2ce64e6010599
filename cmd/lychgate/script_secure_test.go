package main

import (
	"os"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lychgate/lychgate/coordinator/tlstest"
	"github.com/lychgate/lychgate/sql/pgserver/freeport"
)

// cmdCerts is "certs NAME...": a CA in ca.crt, and for each name of the form KIND/ID, as node/n1, a certificate that
// bears it in ID.crt and ID.key.
func cmdCerts(t *testing.T) func(ts *testscript.TestScript, neg bool, args []string) {
	return func(ts *testscript.TestScript, _ bool, args []string) {
		dir, ca := ts.MkAbs("."), tlstest.NewCA(t)
		tlstest.Write(t, dir, "ca.crt", ca.PEM())
		for _, name := range args {
			ca.Issue(nil, "lychgate://"+name).Write(t, dir, strings.ReplaceAll(path.Base(name), ":", "-"))
		}
	}
}

// cmdFreePorts is "freeports VARIABLE...": each is set to an address on which nobody listens.
func cmdFreePorts(ts *testscript.TestScript, _ bool, args []string) {
	addresses, err := freeport.Addresses(len(args))
	ts.Check(err)
	for i, name := range args {
		ts.Setenv(name, addresses[i])
	}
}

// cmdUntil is "until COMMAND...": it is run again and again until it ends well.
func cmdUntil(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) == 0 {
		ts.Fatalf("usage: until COMMAND...")
	}
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for deadline := time.Now().Add(storyTimeout); ; <-again.C {
		err := ts.Exec(args[0], args[1:]...)
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("%s: %v", strings.Join(args, " "), err)
		}
	}
}

// cmdEnvSubst is "envsubst FROM TO NAME=VALUE...": a copy of a file with its $NAMEs replaced, by these first.
func cmdEnvSubst(ts *testscript.TestScript, _ bool, args []string) {
	if len(args) < 2 {
		ts.Fatalf("usage: envsubst FROM TO NAME=VALUE...")
	}
	own := map[string]string{}
	for _, setting := range args[2:] {
		name, value, _ := strings.Cut(setting, "=")
		own[name] = value
	}
	text := os.Expand(ts.ReadFile(args[0]), func(name string) string {
		if value, ok := own[name]; ok {
			return value
		}
		return ts.Getenv(name)
	})
	ts.Check(os.WriteFile(ts.MkAbs(args[1]), []byte(text), 0o600))
}
