package proxy

import (
	"context"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// The client of a load balancer is called by its own address wherever an operator looks.
func TestClientOfALoadBalancerIsNamed(t *testing.T) {
	i, r := startWithConsole(t, func(c *Config) { c.Postgres[0].ProxyProtocol.From = []string{"127.0.0.0/8", "::1"} })
	listener := r.PostgresAddrs()[0].String()
	connect := func(dsn, header string) (*pgx.Conn, error) {
		config, err := pgx.ParseConfig("postgres://" + dsn + "&sslmode=disable")
		if err != nil {
			t.Fatal(err)
		}
		config.DialFunc = func(context.Context, string, string) (net.Conn, error) {
			conn, err := net.Dial("tcp", listener)
			if err == nil {
				_, err = io.WriteString(conn, header)
			}
			return conn, err
		}
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err == nil {
			t.Cleanup(func() { _ = conn.Close(context.Background()) }) // the proxy may have ended it
		}
		return conn, err
	}
	if _, err := connect("app@127.0.0.1/app?fence.ticket="+i.ticket(t, "r", 1), "PROXY TCP6 2001:db8::7 2001:db8::1 12345 7632\r\n"); err != nil {
		t.Fatal(err)
	}
	ops, err := connect("ops:right@127.0.0.1/lychgate?default_query_exec_mode=simple_protocol", "PROXY TCP4 192.0.2.9 192.0.2.1 12345 7632\r\n")
	if err != nil {
		t.Fatal(err)
	}
	shown, err := ops.PgConn().Exec(t.Context(), "SHOW BINDINGS").ReadAll()
	if err != nil || !strings.Contains(string(joinRows(shown[0].Rows)), "[2001:db8::7]:12345") {
		t.Errorf("SHOW BINDINGS: %q, %v", joinRows(shown[0].Rows), err)
	}
	if _, body := r.admin(t, "/bindings"); !strings.Contains(body, "[2001:db8::7]:12345") {
		t.Errorf("/bindings: %s", body)
	}
	if !strings.Contains(r.log.String(), "client=192.0.2.9:12345") {
		t.Errorf("the console's log does not name the client: %s", r.log)
	}
	bare, err := net.Dial("tcp", listener)
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	_, _ = io.WriteString(bare, "\x00\x00\x00\x08\x04\xd2\x16\x2f") // a request for TLS
	if got, _ := io.ReadAll(bare); len(got) > 0 {
		t.Errorf("a connection without a header was answered: %q", got)
	}
	_, body := r.admin(t, "/metrics")
	for _, want := range []string{`fault="missing",listener="127.0.0.1:0"} 1`, `fault="unexpected",listener="127.0.0.1:0"} 0`} {
		if !strings.Contains(body, "lychgate_proxy_protocol_refused_total{"+want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
}

func joinRows(rows [][][]byte) []byte {
	var all []byte
	for _, row := range rows {
		for _, value := range row {
			all = append(append(all, value...), '|')
		}
	}
	return all
}
