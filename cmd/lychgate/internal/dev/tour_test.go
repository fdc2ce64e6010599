package dev

import (
	"strings"
	"testing"
)

// The exports are for a shell, whatever stands in a value; the superuser of somebody's own server is not among them.
func TestTourExports(t *testing.T) {
	e := Endpoints{Proxy: "127.0.0.1:7632", GRPC: []string{"127.0.0.1:7600"}, Superuser: "postgres:///app?host=a&port=1"}
	var b strings.Builder
	if err := WriteTour(&b, e, "lychgate"); err != nil {
		t.Fatal(err)
	}
	if want := "  export SUPERUSER_DSN='postgres:///app?host=a&port=1'\n"; !strings.Contains(b.String(), want) {
		t.Errorf("no %q in\n%s", want, &b)
	}
	e.Superuser = ""
	b.Reset()
	if err := WriteTour(&b, e, "lychgate"); err != nil || strings.Contains(b.String(), "SUPERUSER") {
		t.Errorf("%v, or a superuser in\n%s", err, &b)
	}
}
