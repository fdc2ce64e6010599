package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/lychgate/lychgate/sql/pgserver"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// verifierOf has PostgreSQL make the verifier of a password.
func verifierOf(t *testing.T, pg *pgserver.Server, password string) (verifier string) {
	t.Helper()
	root := pgtest.Connect(t, pg.DSN("postgres", "postgres"))
	pgtest.Exec(t, root, "set password_encryption = 'scram-sha-256'; drop role if exists kept; create role kept password '"+password+"'")
	if err := root.QueryRow(t.Context(), "select rolpassword from pg_authid where rolname = 'kept'").Scan(&verifier); err != nil {
		t.Fatal(err)
	}
	return verifier
}

func startWithConsole(t *testing.T, change func(*Config)) (*issuer, *running) {
	t.Helper()
	i, pg := newIssuer(t), appDatabase(t)
	c := configFor(i, pg)
	c.Console.Users = []ConsoleUser{
		{Name: "ops", Verifier: verifierOf(t, pg, "right")},
		{Name: "eye", Verifier: verifierOf(t, pg, "right"), ReadOnly: true},
	}
	if change != nil {
		change(&c)
	}
	return i, start(t, c)
}

// psql runs a statement at the console as an operator does, and returns all that is printed.
func (r *running) psql(t *testing.T, user, password, statement string) (string, error) {
	t.Helper()
	host, port, err := net.SplitHostPort(r.PostgresAddrs()[0].String())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, "psql", "-X", "-v", "VERBOSITY=verbose", "-A", "-h", host, "-p", port, "-U", user, "-d", "lychgate", "-c", statement)
	cmd.Env = append(os.Environ(), "PGPASSWORD="+password)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func (r *running) mustPsql(t *testing.T, statement string) string {
	t.Helper()
	out, err := r.psql(t, "ops", "right", statement)
	if err != nil {
		t.Fatalf("%s: %v\n%s", statement, err, out)
	}
	return out
}

func TestConsoleShowsAndCuts(t *testing.T) {
	i, r := startWithConsole(t, nil)
	raw := i.ticket(t, "ledger", 41)
	conn, err := r.connect(t, raw)
	if err != nil {
		t.Fatal(err)
	}
	_, err = r.connect(t, "rubbish")
	wantCode(t, "a bad ticket", err, "LG003")
	for statement, want := range map[string]string{
		"show bindings":   "|c1|ledger|41|exclusive|",
		"SHOW FLOORS;":    "|c1|ledger|41|",
		"show rejections": "postgres|ticket_invalid|1\n",
		"show stats":      "lychgate_bindings|adapter=postgres|1\n",
		"show listeners":  "postgres[0]|postgres|" + r.PostgresAddrs()[0].String() + "|open|strict|require|false|",
		"show help":       "CUT <binding>|",
		"show problems":   "problem\n",
	} {
		out := r.mustPsql(t, statement)
		if !strings.Contains(out, want) || strings.Contains(out, raw) {
			t.Errorf("%s: no %q in\n%s", statement, want, out)
		}
	}
	id := fmt.Sprint(r.Bindings()[0].ID)
	if out := r.mustPsql(t, "cut "+id); out != "CUT\n" {
		t.Errorf("cut: %q", out)
	}
	_, err = conn.Exec(t.Context(), "select 1")
	wantCode(t, "after the cut", err, "LG004")
	for statement, code := range map[string]string{
		"cut " + id: "42704", "cut": "42601", "cut x": "42601", "select 1": "42601", "show": "42601", "show bindings all": "42601",
		"reload": "55000", // there is no file here
	} {
		if out, err := r.psql(t, "ops", "right", statement); err == nil || !strings.Contains(out, "ERROR:  "+code) {
			t.Errorf("%s: %v, %s; want %s", statement, err, out, code)
		}
	}
}

func TestConsoleLetsInItsUsersOnly(t *testing.T) {
	_, r := startWithConsole(t, nil)
	for name, c := range map[string]struct{ user, password, statement, want string }{
		"wrong password":       {"ops", "wrong", "show help", "password authentication failed"},
		"a user of the server": {"app", "right", "show help", "password authentication failed"},
		"may only look":        {"eye", "right", "drain", "ERROR:  42501"},
	} {
		if out, err := r.psql(t, c.user, c.password, c.statement); err == nil || !strings.Contains(out, c.want) {
			t.Errorf("%s: %v, %s; want %q", name, err, out, c.want)
		}
	}
	if out, err := r.psql(t, "eye", "right", "show bindings"); err != nil {
		t.Errorf("a look: %v %s", err, out)
	}
	if strings.Contains(r.log.String(), "right") {
		t.Error("the password is in the log")
	}
}

func TestConsoleIsOffWhereItHasNoUsers(t *testing.T) {
	_, r := startWithConsole(t, func(c *Config) { c.Console.Users = nil })
	if out, err := r.psql(t, "ops", "right", "show help"); err == nil || !strings.Contains(out, `serves database "app" only`) {
		t.Errorf("%v %s", err, out)
	}
}

// Drivers prepare their statements.
func TestConsoleSpeaksTheExtendedProtocol(t *testing.T) {
	_, r := startWithConsole(t, nil)
	for _, mode := range []pgx.QueryExecMode{
		pgx.QueryExecModeCacheStatement, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec, pgx.QueryExecModeSimpleProtocol,
	} {
		config, err := pgx.ParseConfig(fmt.Sprintf("postgres://ops:right@%s/lychgate?sslmode=disable", r.PostgresAddrs()[0]))
		if err != nil {
			t.Fatal(err)
		}
		config.DefaultQueryExecMode = mode
		conn, err := pgx.ConnectConfig(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			var listener, adapter string
			rows, err := conn.Query(t.Context(), "show listeners")
			if err != nil {
				t.Fatal(err)
			}
			count := 0
			for rows.Next() {
				values := rows.RawValues()
				listener, adapter, count = string(values[0]), string(values[1]), count+1
			}
			if rows.Err() != nil || count != 1 || listener != "postgres[0]" || adapter != "postgres" {
				t.Errorf("%v: %d rows, %s %s, %v", mode, count, listener, adapter, rows.Err())
			}
			_, err = conn.Exec(t.Context(), "select 1")
			wantCode(t, mode.String(), err, "42601")
		}
		if err := conn.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

func TestConsoleDrains(t *testing.T) {
	i, r := startWithConsole(t, nil)
	conn, err := r.connect(t, i.ticket(t, "ledger", 1))
	if err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if out := r.mustPsql(t, "drain"); !strings.Contains(out, "DRAIN\n") { // the farewell may stand before it
		t.Errorf("drain: %q", out)
	}
	r.awaitReadyz(t, http.StatusServiceUnavailable, "draining")
	if _, err := tx.Exec(t.Context(), "insert into note values ('kept')"); err != nil {
		t.Error(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-r.err; err != nil { // without being stopped
		t.Error(err)
	}
	close(r.err)
}

func TestReloadTakesAllOrNothing(t *testing.T) {
	c := offline()
	one := ConsoleUser{Name: "one", Certificate: "x"}
	two := ConsoleUser{Name: "two", Verifier: "SCRAM-SHA-256$4096:c2FsdA==$" + strings.Repeat("A", 43) + "=:" + strings.Repeat("A", 43) + "="}
	c.Console.Users = []ConsoleUser{two}
	c = c.WithDefaults()
	next := c
	var broken error
	server, err := New(c, Deps{Load: func() (Config, error) { return next, broken }})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	three := two
	three.Name = "three"
	for field, change := range map[string]func(*Config){
		"admin":                        func(c *Config) { c.Admin = "127.0.0.1:1" },
		"postgres[0].store_conns":      func(c *Config) { c.Postgres[0].StoreConns = 3 },
		"postgres":                     func(c *Config) { c.Postgres = append(c.Postgres, c.Postgres[0]) },
		"console":                      func(c *Config) { c.Console.Users = nil },
		"console.users[1].certificate": func(c *Config) { c.Console.Users = append(c.Console.Users, one) },
	} {
		next = c
		next.Postgres = append([]Postgres(nil), c.Postgres...)
		next.Console.Users = []ConsoleUser{three}
		change(&next)
		err := server.Reload()
		if err == nil || !strings.Contains(err.Error(), field+": ") {
			t.Errorf("%s: got %v", field, err)
		}
	}
	next, broken = c, errors.New("no such file")
	if err := server.Reload(); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if got := server.applied.Console.Users[0].Name; got != "two" {
		t.Errorf("an invalid configuration was taken: %s", got)
	}
	broken, next.Console.Users = nil, []ConsoleUser{three}
	if err := server.Reload(); err != nil {
		t.Error(err)
	}
	if got := server.applied.Console.Users[0].Name; got != "three" {
		t.Errorf("the new configuration was not taken: %s", got)
	}
}
