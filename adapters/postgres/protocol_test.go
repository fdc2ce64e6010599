package postgres_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
)

// What is agreed on at log-in is what the server would agree on: the protocol's minor version, options that it does not
// know, and the size of the key of cancel requests.
func TestSameNegotiation(t *testing.T) {
	c := newComparison(t)
	for _, minor := range []uint32{0, 1, 2, 3, 77} {
		for _, options := range [][]string{nil, {"_pq_.future", "1"}, {"_pq_.a", "", "_pq_.b", "x"}} {
			name := fmt.Sprintf("3.%d %s", minor, strings.Join(options, " "))
			ask := func(l leg, more ...string) leg {
				packet := startup(append(append([]string{"user", "app", "database", c.world.name}, more...), options...)...)
				packet.Protocol |= minor
				l.startup = packet.Packet()
				return l
			}
			asked := conversation{name: name, turns: []turn{{send: []byte("Q\x00\x00\x00\x0dselect 1\x00"), until: 'Z', count: 1}}}
			want := c.play(t, ask(c.direct), asked.turns)
			for i, l := range c.proxied {
				if i < 2 {
					l = ask(l)
				} else {
					l = ask(l, "fence.ticket", c.world.ticket("a", 1))
				}
				if difference := c.compare(t, want, l, asked); difference != "" {
					t.Errorf("%s: %s", name, difference)
				}
			}
		}
	}
	if c.conversations != 60 {
		t.Errorf("%d conversations were compared", c.conversations)
	}
}

// A server of release 18 gives a client of protocol 3.2 a longer key; with an older server the key is the short one.
func TestCancelInTheNewestProtocol(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	conn := dial(t, p.addr)
	r := &raw{t: t, conn: conn, Frontend: pgproto3.NewFrontend(conn, conn)}
	r.send(&pgproto3.StartupMessage{ProtocolVersion: 3<<16 | 2, Parameters: map[string]string{"user": "app", "database": w.name, "fence.ticket": w.ticket("a", 1)}})
	r.login()
	var version int
	if err := w.admin.QueryRow(t.Context(), "select current_setting('server_version_num')::int / 10000").Scan(&version); err != nil {
		t.Fatal(err)
	}
	if got, long := len(r.key.SecretKey), version >= 18; (got > 4) != long {
		t.Errorf("release %d gave a key of %d bytes", version, got)
	}
	r.send(&query{String: "select pg_sleep(600)"})
	await(t, "the statement to run", func() bool {
		var n int
		err := w.admin.QueryRow(context.Background(), "select count(*) from pg_stat_activity where query like 'select pg_sleep%' and state = 'active' and datname = $1", w.name).Scan(&n)
		return err == nil && n == 1
	})
	cancelVia(t, p.addr, r.key, nil)
	r.expect("Ready", "Columns 1", "Error ERROR 57014 canceling statement due to user request", "Ready I")
}

// maxStartup is the size of the largest body of a start-up message that a server takes (MAX_STARTUP_PACKET_LENGTH).
const maxStartup = 10_000

func TestLargestStartupPacket(t *testing.T) {
	c := newComparison(t)
	sized := func(size int, params ...string) []byte {
		bare := startup(append([]string{"user", "app", "database", c.world.name, "my.own", ""}, params...)...)
		for i := range bare.Params {
			if bare.Params[i].Name == "my.own" {
				bare.Params[i].Value = strings.Repeat("x", size+4-len(bare.Packet()))
			}
		}
		return bare.Packet()
	}
	login := func(l leg, packet []byte) string {
		d := newDialogue(t, l)
		d.send(packet, nil)
		d.read('Z', 1)
		return strings.Join(d.finish(), "\n")
	}
	for _, l := range append([]leg{c.direct}, c.proxied...) {
		var params []string
		if strings.HasPrefix(l.name, "with a") {
			params = []string{"fence.ticket", c.world.ticket("a", 1)}
		}
		if got := login(l, sized(maxStartup, params...)); !strings.Contains(got, `Z "I"`) {
			t.Errorf("%s: the largest packet: %s", l.name, got)
		}
		if got := login(l, sized(maxStartup+1, params...)); strings.Contains(got, "server_version") || l.name != c.direct.name && !strings.Contains(got, "08P01") {
			t.Errorf("%s: one byte more: %s", l.name, got)
		}
	}
	huge := startup("user", "app", "database", c.world.name, "fence.ticket", strings.Repeat("x", 9_000)).Packet()
	if got := login(c.proxied[2], huge); !strings.Contains(got, "LG003") || strings.Contains(got, "xxxx") {
		t.Errorf("a ticket of 9 kB: %s", got)
	}
}

// A client whose request for GSSAPI was refused asks for TLS on the same connection.
func TestTLSAfterGSSAPIWasRefused(t *testing.T) {
	w := newWorld(t)
	config, _ := newCertificate(t)
	p := w.proxy(func(s *settings) { s.server.TLS = config })
	conn := dial(t, p.addr)
	for _, c := range []struct {
		code uint32
		want byte
	}{{wire.GSSCode, 'N'}, {wire.SSLCode, 'S'}} {
		if _, err := conn.Write(wire.Request(c.code, nil)); err != nil {
			t.Fatal(err)
		}
		answer := make([]byte, 1)
		if _, err := io.ReadFull(conn, answer); err != nil || answer[0] != c.want {
			t.Fatalf("answer %q, %v, want %c", answer, err, c.want)
		}
	}
	secure := tls.Client(conn, &tls.Config{InsecureSkipVerify: true})
	r := &raw{t: t, conn: secure}
	r.begin("app", w.name, with(w.ticket("a", 1)))
	r.login()
	r.send(&query{String: "select 1"})
	r.expect("Ready", "Columns 1", "Row 1", "Complete SELECT 1", "Ready I")
}
