package postgres_test

import (
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"

	"github.com/lychgate/lychgate/adapters/postgres"
	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
	"github.com/lychgate/lychgate/fencestore/pgstore"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// readAll is what comes until the other side closes.
func readAll(conn net.Conn) string {
	b, _ := io.ReadAll(conn) // a reset ends it too
	return string(b)
}

func startup(pairs ...string) wire.Startup {
	s := wire.Startup{Protocol: 3 << 16}
	for i := 0; i < len(pairs); i += 2 {
		s.Params = append(s.Params, wire.Param{Name: pairs[i], Value: pairs[i+1]})
	}
	return s
}

func TestBadStartupPackets(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	bystander := p.connect(with(w.ticket("other", 1)))
	good := startup("user", "app", "database", w.name).Packet()
	length := func(n uint32) []byte {
		packet := append([]byte(nil), good...)
		binary.BigEndian.PutUint32(packet, n)
		return packet
	}
	for name, c := range map[string]struct {
		packet []byte
		want   string // in the answer
	}{
		"length 0":        {length(0), "08P01"},
		"length 3":        {length(3), "08P01"},
		"length 7":        {length(7), "08P01"},
		"length 4 GiB":    {length(1<<32 - 1), "08P01"},
		"length 2 GiB":    {length(1 << 31), "08P01"},
		"over-long":       {startup("user", "app", "x", strings.Repeat("x", 10_001)).Packet(), "08P01"},
		"too short":       {length(uint32(len(good) - 3)), "08P01"},
		"HTTP":            {[]byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), "08P01"},
		"protocol 2":      {wire.Request(2<<16, []byte("x\x00\x00")), "0A000"},
		"no terminator":   {wire.Request(3<<16, []byte("user\x00app\x00")), "08P01"},
		"no value":        {wire.Request(3<<16, []byte("user\x00app\x00x\x00")), "08P01"},
		"goes on":         {wire.Request(3<<16, []byte("\x00user\x00app\x00\x00")), "08P01"},
		"asks for TLS ×2": {append(wire.Request(wire.SSLCode, nil), wire.Request(wire.SSLCode, nil)...), "08P01"},
		"ticket in a odd": {startup("user", "app", "database", w.name, "options", "-e-c fence.ticket=x").Packet(), "LG006"},
	} {
		conn := dial(t, p.addr)
		if _, err := conn.Write(c.packet); err != nil {
			t.Fatal(err)
		}
		if got := readAll(conn); !strings.Contains(got, c.want) {
			t.Errorf("%s: answer %q, want %s in it", name, got, c.want)
		}
	}
	for cut := range good {
		conn := dial(t, p.addr)
		if _, err := conn.Write(good[:cut]); err != nil {
			t.Fatal(err)
		}
		if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if got := readAll(conn); got != "" {
			t.Fatalf("cut at %d: answer %q", cut, got)
		}
	}
	exec(t, bystander, "insert into entry values (1, 'x')")
	if got := w.floor("x"); got != 0 {
		t.Error("a floor moved")
	}
}

func TestUnknownStartupParametersArePassedOn(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	params := with(w.ticket("a", 1))
	params["my.parameter"], params["application_name"] = "mine", "x"
	conn := p.connect(params)
	var got string
	if err := conn.QueryRow(t.Context(), "show my.parameter").Scan(&got); err != nil || got != "mine" {
		t.Errorf("got %q, %v", got, err)
	}
	p.refuse("app", "42704", map[string]string{"nonsense": "x"}) // the server's own answer
}

func TestBadMessages(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	bystander := p.connect(with(w.ticket("other", 1)))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for name, message := range map[string][]byte{
		"length 0":         {'Q', 0, 0, 0, 0},
		"length 3":         {'Q', 0, 0, 0, 3},
		"length 4 GiB":     {'Q', 0xff, 0xff, 0xff, 0xff},
		"length 1 GiB":     {'Q', 0x40, 0, 0, 0},
		"unknown type":     {'?', 0, 0, 0, 4},
		"zero type":        {0, 0, 0, 0, 4},
		"late password":    {'p', 0, 0, 0, 5, 0},
		"parse, no names":  {'P', 0, 0, 0, 5, 'x'},
		"bind, no names":   {'B', 0, 0, 0, 5, 'x'},
		"execute, no name": {'E', 0, 0, 0, 5, 'x'},
		"empty describe":   {'D', 0, 0, 0, 4},
	} {
		r := p.raw(with(w.ticket("a", 1)))
		if _, err := r.conn.Write(message); err != nil {
			t.Fatal(err)
		}
		if got := readAll(r.conn); !strings.Contains(got, "FATAL") || !strings.Contains(got, "08P01") {
			t.Errorf("%s: answer %q", name, got)
		}
	}
	// A huge message that is announced and never sent takes no memory and no more than its own session.
	var idle []*raw
	for range 20 {
		r := p.raw(with(w.ticket("a", 1)))
		if _, err := r.conn.Write([]byte{'Q', 0x3f, 0xff, 0xff, 0xff, 's', 'e'}); err != nil {
			t.Fatal(err)
		}
		idle = append(idle, r)
	}
	exec(t, bystander, "insert into entry values (1, 'x')")
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapInuse) - int64(before.HeapInuse); grown > 64<<20 {
		t.Errorf("the heap grew by %d MiB", grown>>20)
	}
	for _, r := range idle {
		r.conn.Close()
	}
	p.awaitBindings("other:1")
}

func TestDatabaseDownOrWithoutSchema(t *testing.T) {
	w := newWorld(t)
	name := pgtest.NewDatabase(t, server)
	bare, err := pgstore.New(pgstore.Config{DSN: server.DSN("postgres", name)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(bare.Close)
	p := w.proxy(func(s *settings) { s.gate.Store, s.server.Database = bare, name })
	down, err := pgstore.New(pgstore.Config{DSN: "postgres://x@127.0.0.1:1/x"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(down.Close)
	conn := dialRaw(t, p.addr, "app", name, with(w.ticket("a", 1)))
	if got := conn.until("Error"); !strings.Contains(got, "LG007") {
		t.Errorf("without the schema: %s", got)
	}
	p = w.proxy(func(s *settings) { s.gate.Store = down })
	p.refuse("app", "LG007", with(w.ticket("a", 1)))
	p = w.proxy(func(s *settings) { s.server.Upstream = "127.0.0.1:1" })
	p.refuse("app", "57P03", with(w.ticket("a", 1)))
}

func TestConfigIsChecked(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	for name, config := range map[string]postgres.Config{
		"no gate":     {Upstream: "127.0.0.1:5432"},
		"no upstream": {Gate: p.gate},
		"no port":     {Gate: p.gate, Upstream: "/var/run"},
	} {
		if _, err := postgres.New(config); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
