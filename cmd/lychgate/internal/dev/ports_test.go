package dev

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/lychgate/lychgate/sql/pgserver/freeport"
)

func all(a addresses) []string {
	out := []string{a.admin, a.proxy}
	for _, n := range a.nodes {
		out = append(out, n.grpc, n.http, n.peer)
	}
	return out
}

func TestPortsAfterABase(t *testing.T) {
	// Any free range will do; the default one may be in use on this machine.
	for base := 21000; base < 31000; base += 100 {
		a, err := Ports{Base: base}.resolve()
		if err != nil {
			continue
		}
		want := addresses{admin: at(base + 10), proxy: at(base + 32), nodes: [nodeCount]nodeAddresses{
			{at(base), at(base + 1), at(base + 2)}, {at(base + 3), at(base + 4), at(base + 5)}, {at(base + 7), at(base + 8), at(base + 9)},
		}}
		if a != want {
			t.Errorf("got %+v, want %+v", a, want)
		}
		return
	}
	t.Fatal("no free range")
}

func at(port int) string { return net.JoinHostPort(host, strconv.Itoa(port)) }

func TestFreePortsDiffer(t *testing.T) {
	a, err := Ports{}.resolve()
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, address := range all(a) {
		if seen[address] || address == "" {
			t.Errorf("%q twice or empty in %+v", address, a)
		}
		seen[address] = true
		l, err := net.Listen("tcp", address)
		if err != nil {
			t.Errorf("%s is not free afterwards: %v", address, err)
			continue
		}
		_ = l.Close()
	}
}

func TestTakenPortNamesItsFlag(t *testing.T) {
	l, err := freeport.Listen()
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	taken := l.Addr().(*net.TCPAddr).Port
	for flag, ports := range map[string]Ports{
		"--grpc-port": {GRPC: taken}, "--http-port": {HTTP: taken}, "--admin-port": {Admin: taken}, "--proxy-port": {Proxy: taken},
	} {
		_, err := ports.resolve()
		if err == nil || !strings.Contains(err.Error(), flag+":") || !strings.Contains(err.Error(), strconv.Itoa(taken)) {
			t.Errorf("got %v, want the port and %s", err, flag)
		}
	}
	if _, err := (Ports{GRPC: 70000}).resolve(); err == nil {
		t.Error("port 70000 was taken for one")
	}
}
