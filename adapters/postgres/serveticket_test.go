package postgres_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lychgate/lychgate/adapters/postgres"
)

func TestServeTicket(t *testing.T) {
	w := newWorld(t)
	config, _ := newCertificate(t)
	const nobody = "127.0.0.1:1" // the first proxy is down
	for name, secure := range map[string]*tls.Config{"plain": nil, "TLS": {InsecureSkipVerify: true}} {
		t.Run(name, func(t *testing.T) {
			p := w.proxy(func(s *settings) { s.server.TLS = config })
			var mu sync.Mutex
			ticket := w.ticket("ledger/"+name, 5)
			addr, stop := serve(t, func(ctx context.Context, l net.Listener) error {
				return postgres.ServeTicket(ctx, l, postgres.TicketConfig{Proxies: []string{nobody, p.addr}, TLS: secure, Ticket: func() string {
					mu.Lock()
					defer mu.Unlock()
					return ticket
				}})
			})
			for _, mode := range []string{"disable", "prefer"} {
				dsn := fmt.Sprintf("postgres://scram:secret@%s/%s?sslmode=%s", addr, w.name, mode)
				psql(t, dsn, "insert into entry values (1, 'x') on conflict do nothing")
			}
			conn, err := pgx.Connect(t.Context(), fmt.Sprintf("postgres://app@%s/%s?sslmode=disable&fence.ticket=%s", addr, w.name, w.ticket("more", 3)))
			if err != nil {
				t.Fatal(err)
			}
			p.awaitBindings("ledger/"+name+":5", "more:3")
			running := dialRaw(t, addr, "app", w.name, nil)
			running.login()
			running.send(&query{String: "select pg_sleep(600)"})
			w.awaitRunning("pg_sleep")
			cancelVia(t, addr, running.key, nil)
			running.expect("Ready", "Columns 1", "Error ERROR 57014 canceling statement due to user request", "Ready I")

			mu.Lock()
			ticket = ""
			mu.Unlock()
			_, err = pgx.Connect(t.Context(), fmt.Sprintf("postgres://app@%s/%s?sslmode=disable", addr, w.name))
			wantCode(t, err, "LG004")
			stop()
			if err := try(conn, "select 1"); err == nil {
				t.Error("a connection outlived its listener")
			}
			p.awaitBindings()
		})
	}
}
