package postgres_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
)

func TestCancelReachesItsOwnBackendOnly(t *testing.T) {
	w := newWorld(t)
	config, _ := newCertificate(t)
	p1 := w.proxy(func(s *settings) { s.server.TLS = config })
	p2 := w.proxy(nil) // a cancel may come through another proxy
	for name, send := range map[string]func(key *pgproto3.BackendKeyData){
		"plain":         func(key *pgproto3.BackendKeyData) { cancelVia(t, p1.addr, key, nil) },
		"inside TLS":    func(key *pgproto3.BackendKeyData) { cancelVia(t, p1.addr, key, &tls.Config{InsecureSkipVerify: true}) },
		"another proxy": func(key *pgproto3.BackendKeyData) { cancelVia(t, p2.addr, key, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			a, b := p1.raw(with(w.ticket("a", 1))), p1.raw(with(w.ticket("a", 1)))
			for _, r := range []*raw{a, b} {
				r.send(&query{String: "select pg_sleep(600)"})
			}
			await(t, "both to run", func() bool {
				var n int
				err := w.admin.QueryRow(context.Background(), "select count(*) from pg_stat_activity where query like 'select pg_sleep%' and state = 'active' and datname = $1", w.name).Scan(&n)
				return err == nil && n == 2
			})
			wrong := &pgproto3.BackendKeyData{ProcessID: a.key.ProcessID, SecretKey: bytes.Clone(b.key.SecretKey)}
			send(wrong)
			send(a.key)
			a.expect("Ready", "Columns 1", "Error ERROR 57014 canceling statement due to user request", "Ready I")
			a.send(&query{String: "select 1"})
			a.expect("Ready", "Columns 1", "Row 1", "Complete SELECT 1", "Ready I")
			_ = b.conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
			if m, err := b.Receive(); err == nil && strings.HasPrefix(describe(m), "Error") {
				t.Errorf("the other session got %s", describe(m))
			}
			b.conn.Close()
			_ = try(w.admin, "select pg_cancel_backend(pid) from pg_stat_activity where query like 'select pg_sleep%' and state = 'active'")
		})
	}
}

// cancelVia sends a cancel request and waits until it has been dealt with.
func cancelVia(t testing.TB, addr string, key *pgproto3.BackendKeyData, secure *tls.Config) {
	t.Helper()
	conn := dial(t, addr)
	if secure != nil {
		if _, err := conn.Write(wire.Request(wire.SSLCode, nil)); err != nil {
			t.Fatal(err)
		}
		if _, err := conn.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		conn = tls.Client(conn, secure)
	}
	body := append(binary.BigEndian.AppendUint32(nil, key.ProcessID), key.SecretKey...)
	if _, err := conn.Write(wire.Request(wire.CancelCode, body)); err != nil {
		t.Fatal(err)
	}
	if got := readAll(conn); got != "" {
		t.Errorf("a cancel request was answered: %q", got)
	}
}
