package proxy

import (
	"strings"
	"testing"
)

func TestWarnsWhereTheStoreIsElsewhere(t *testing.T) {
	for _, tt := range []struct {
		upstream, store string
		warns           bool
	}{
		{"10.0.0.1:5432", "postgres://p@10.0.0.1:5432/app", false},
		{"10.0.0.1:5432", "postgres://p@10.0.0.2:5432/app", true},
		{"10.0.0.1:5432", "postgres://p@10.0.0.1:5433/app", true},
		{"10.0.0.1:5432", "postgres://p@10.0.0.2:5432,10.0.0.1:5432/app", false},
		{"localhost:5432", "postgres://p@127.0.0.1:5432/app", false},
		{"/run/postgresql:5432", "host=/run/postgresql port=5432 user=p dbname=app", false},
		{"/run/postgresql:5432", "postgres://p@db:5432/app", true},
	} {
		found := Config{Postgres: []Postgres{{Upstream: tt.upstream, Store: tt.store}}}.Warnings()
		if (len(found) > 0) != tt.warns || tt.warns && !strings.HasPrefix(found[0], "postgres[0].store: ") {
			t.Errorf("%s and %s: got %q", tt.upstream, tt.store, found)
		}
	}
}

func TestWarnsWhereEverybodysHeaderIsBelieved(t *testing.T) {
	for from, warns := range map[string]bool{"10.0.0.0/8": false, "10.0.0.1": false, "0.0.0.0/0": true, "::/0": true} {
		found := Config{Postgres: []Postgres{{ProxyProtocol: ProxyProtocol{From: []string{from}}}}}.Warnings()
		if (len(found) > 0) != warns || warns && !strings.HasPrefix(found[0], "postgres[0].proxy_protocol.from: ") {
			t.Errorf("%s: got %q", from, found)
		}
	}
}
