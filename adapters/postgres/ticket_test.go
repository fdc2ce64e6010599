package postgres_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/proxy/gate"
)

func TestTicketByStartupParameter(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	for name, params := range map[string]map[string]string{
		"direct":        with(w.ticket("ledger/a", 7)),
		"options -c":    {"options": "-c fence.ticket=" + w.ticket("ledger/a", 7)},
		"options --":    {"options": "-c statement_timeout=5s --fence.ticket=" + w.ticket("ledger/a", 7)},
		"options short": {"options": "-cFENCE.ticket=" + w.ticket("ledger/a", 7) + " -c work_mem=5MB"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := p.connect(params)
			p.awaitBindings("ledger/a:7")
			exec(t, conn, "insert into entry values (1, 'x') on conflict do nothing")
			if got := w.rows(); got != 1 {
				t.Errorf("%d rows in the database's own table of bindings, want 1", got)
			}
			var mem string
			if err := conn.QueryRow(t.Context(), "show work_mem").Scan(&mem); err != nil || name == "options short" && mem != "5MB" {
				t.Errorf("work_mem is %q, %v", mem, err)
			}
			if err := conn.Close(t.Context()); err != nil {
				t.Error(err)
			}
			p.awaitBindings()
			await(t, "the database's row to go", func() bool { return w.rows() == 0 })
		})
	}
	if got := w.floor("ledger/a"); got != 7 {
		t.Errorf("floor %d, want 7", got)
	}
	if text := serverLog.String() + p.log.String(); strings.Contains(text, w.ticket("ledger/a", 7)[:40]) {
		t.Error("a ticket is in a log")
	}
}

func TestSeveralTickets(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	conn := p.connect(with(w.ticket("b", 5), w.ticket("a", 3), w.ticket("b", 4)))
	p.awaitBindings("a:3", "b:5")
	exec(t, conn, "insert into entry values (1, 'x')")
	p.connect(with(w.ticket("b", 6)))
	if err := wantFatal(t, conn); !strings.Contains(err.Detail, "floor 6") {
		t.Errorf("detail %q", err.Detail)
	}
}

func TestPolicyRequire(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	conn := p.connect(nil)
	wantCode(t, try(conn, "select 1"), "LG002")
	wantCode(t, try(conn, "insert into entry values (1, 'x')"), "LG002")
	_, err := conn.Exec(t.Context(), "insert into entry values ($1, 'x')", 1) // extended
	wantCode(t, err, "LG002")
	exec(t, conn, ";")
	exec(t, conn, "begin")
	wantCode(t, try(conn, "insert into entry values (1, 'x')"), "LG002")
	if got := conn.PgConn().TxStatus(); got != 'E' {
		t.Errorf("transaction status %c after a refusal in a transaction, want E", got)
	}
	exec(t, conn, "rollback")
	wantCode(t, try(conn, "commit prepared 'x'"), "LG002")
	_, err = conn.Exec(t.Context(), "select pg_catalog.pg_notify('a', $1)", "x")
	wantCode(t, err, "LG002")

	exec(t, conn, "set fence.ticket = '"+w.ticket("a", 1)+"'")
	_, err = conn.Exec(t.Context(), "insert into entry values ($1, 'x')", 1)
	if err != nil {
		t.Error(err)
	}
	exec(t, conn, "reset fence.ticket")
	p.awaitBindings()
	wantCode(t, try(conn, "insert into entry values (2, 'x')"), "LG002")
	if got := w.count("true"); got != 1 {
		t.Errorf("%d rows, want 1", got)
	}
	if got := p.seen.of(gate.TicketRequired); got != 7 {
		t.Errorf("%d refusals counted, want 7", got)
	}
}

func TestPolicyReadOnly(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(func(s *settings) { s.gate.Policy = gate.ReadOnly })
	conn := p.connect(map[string]string{"options": "-c default_transaction_read_only=off", "default_transaction_read_only": "off"})
	exec(t, conn, "select 1")
	wantCode(t, try(conn, "insert into entry values (1, 'x')"), "25006")
	exec(t, p.connect(with(w.ticket("a", 1))), "insert into entry values (1, 'x')")
}

func TestPolicyAllow(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(func(s *settings) { s.gate.Policy = gate.Allow })
	conn := p.connect(nil)
	exec(t, conn, "insert into entry values (1, 'x')")
	p.awaitBindings()
	exec(t, conn, "set fence.ticket to '"+w.ticket("a", 1)+"'")
	p.awaitBindings("a:1")
}

func TestBadTicketsAreRefusedAndMoveNoFloor(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	bystander := p.connect(with(w.ticket("other", 1)))
	good := w.ticket("a", 5)
	otherSigner, _ := newKeys(t, cluster)
	flip := []byte(good)
	if at := len(flip) - 10; flip[at] == 'A' { // one bit of the signature; the text stays base64
		flip[at] = 'B'
	} else {
		flip[at] = 'A'
	}
	details := map[string]bool{}
	for name, raw := range map[string]string{
		"a token":       "5",
		"rubbish":       "a.b.c",
		"too long":      strings.Repeat("x", 1000),
		"flipped bit":   string(flip),
		"other cluster": sign(t, w.signer, "c2", "a", 5),
		"unknown key":   sign(t, otherSigner, cluster, "a", 5),
		"good and bad":  good + ",5",
		"too many":      strings.TrimSuffix(strings.Repeat(good+",", 9), ","),
	} {
		err := p.refuse("app", "LG003", with(raw))
		details[err.Detail] = true
		if strings.Contains(err.Error()+err.Detail+err.Hint, good) {
			t.Errorf("%s: the ticket is in the error", name)
		}
	}
	if len(details) != 6 {
		t.Errorf("the reasons cannot be told apart: %v", details)
	}
	p.refuse("app", "LG003", map[string]string{"fence.resource": "a", "fence.token": "5"})
	if got := w.floor("a"); got != 0 {
		t.Errorf("floor %d, want none", got)
	}
	exec(t, bystander, "insert into entry values (1, 'x')")
}

func TestUnsigned(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(func(s *settings) {
		s.gate.AllowUnsigned, s.gate.Cluster = true, func() string { return cluster }
	})
	for _, token := range []string{"0", "-1", "9223372036854775807", "9007199254740992", "x", ""} {
		p.refuse("app", "LG003", map[string]string{"fence.resource": "a", "fence.token": token})
	}
	p.refuse("app", "LG003", map[string]string{"fence.resource": "a//b", "fence.token": "1"})
	p.refuse("app", "LG003", map[string]string{"fence.token": "1"})
	if got := w.floor("a"); got != 0 {
		t.Errorf("floor %d, want none", got)
	}
	p.connect(map[string]string{"options": "-c fence.resource=a -c fence.token=9007199254740991"})
	p.awaitBindings("a:9007199254740991")
}

func TestSetTicket(t *testing.T) {
	ctx := context.Background()
	count := 0
	for name, run := range map[string]func(conn *pgx.Conn, sql string) error{
		"simple":   try,
		"extended": func(conn *pgx.Conn, sql string) error { return extended(conn, sql) },
		"prepared": func(conn *pgx.Conn, sql string) error {
			count++
			name := fmt.Sprintf("mine_%d", count)
			_, err := conn.PgConn().Prepare(ctx, name, sql, nil)
			if err == nil {
				err = conn.PgConn().ExecPrepared(ctx, name, nil, nil, nil).Read().Err
			}
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.proxy(nil)
			conn := p.connect(nil)
			must := func(sql string) {
				t.Helper()
				if err := run(conn, sql); err != nil {
					t.Fatalf("%s: %v", sql, err)
				}
			}
			set := func(resource string, local string) string {
				return "SET " + local + " fence.ticket = '" + w.ticket(resource, 4) + "'"
			}
			must(set("a", ""))
			p.awaitBindings("a:4")
			var shown string
			if err := conn.QueryRow(ctx, "show fence.ticket").Scan(&shown); err != nil || shown != "(redacted)" {
				t.Errorf("SHOW says %q, %v", shown, err)
			}
			must(set("b", "")) // replaces
			p.awaitBindings("b:4")
			must("begin")
			must(set("c", "LOCAL")) // adds, until the end
			must(set("d", "LOCAL"))
			p.awaitBindings("b:4", "c:4", "d:4")
			must("insert into entry values (1, 'x')")
			wantCode(t, run(conn, set("e", "LOCAL")), "LG006")
			must("rollback")
			p.awaitBindings("b:4")
			must("begin")
			must(set("e", ""))
			p.awaitBindings("b:4", "e:4")
			must("rollback")
			p.awaitBindings("b:4")
			must("begin isolation level serializable")
			must(set("f", "SESSION"))
			must("insert into entry values (2, 'x')")
			must("commit")
			p.awaitBindings("f:4")
			must("discard all")
			must("select 1")
			p.awaitBindings("f:4")
			wantCode(t, run(conn, "prepare transaction 'x'"), "LG006")
			must("RESET fence.ticket")
			p.awaitBindings()
			wantCode(t, run(conn, "select 1"), "LG002")
			await(t, "the database's rows to go", func() bool { return w.rows() == 0 })
		})
	}
}

// extended runs a statement in the extended protocol, unnamed, all in one batch.
func extended(conn *pgx.Conn, sql string) error {
	return conn.PgConn().ExecParams(context.Background(), sql, nil, nil, nil, nil).Read().Err
}

func TestOtherMentionsNeverReachTheServer(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(func(s *settings) { s.gate.Policy = gate.Allow })
	conn := p.connect(nil)
	secret := w.ticket("secret", 9)
	for _, sql := range []string{
		"set fence.ticket = '" + secret + "'; select 1",
		"select set_config('fence.ticket', '" + secret + "', false)",
		`set "fence"."ticket" = '` + secret + "'",
		"set fence . ticket = '" + secret + "'",
		"set fence/**/.ticket = '" + secret + "'",
		"set fence.ticket = e'" + secret + "'",
		"do $$ begin perform set_config('FENCE.TICKET', '" + secret + "', false); end $$",
	} {
		wantCode(t, try(conn, sql), "LG006")
		wantCode(t, extended(conn, sql), "LG006")
	}
	p.awaitBindings()
	exec(t, conn, "select 1")
	large := "select '" + strings.Repeat("x", 100_000) + "', set_config('fence.ticket', '" + secret + "', false)"
	wantCode(t, try(conn, large), "LG006") // ends the session: a part of it is at the server already
	if !conn.IsClosed() {
		t.Error("the session goes on after a text that was cut")
	}
	large = "select '" + strings.Repeat("x", 100_000) + "'"
	conn = p.connect(nil)
	exec(t, conn, large)
	if err := extended(conn, large); err != nil {
		t.Error(err)
	}
	if strings.Contains(serverLog.String(), secret) {
		t.Error("a ticket is in the server's log")
	}
}

func TestSetTicketRefusedLeavesTheSession(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	exec(t, p.connect(with(w.ticket("a", 9))), "select 1")
	conn := p.connect(with(w.ticket("b", 1)))
	for _, run := range []func(*pgx.Conn, string) error{try, extended} {
		wantCode(t, run(conn, "set fence.ticket = '"+w.ticket("a", 8)+"'"), "LG001")
		wantCode(t, run(conn, "set fence.ticket = 'x'"), "LG003")
		if err := run(conn, "insert into entry values (1, 'x') on conflict do nothing"); err != nil {
			t.Error(err)
		}
	}
	p.awaitBindings("a:9", "b:1")
}

func TestSuperuserCannotBeFenced(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	p.refuse("root", "LG006", with(w.ticket("a", 1)))
}

func TestOtherDatabaseIsRefused(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	ctx := t.Context()
	_, err := pgx.Connect(ctx, strings.Replace(p.dsn("app", nil), "/"+w.name, "/postgres", 1))
	wantCode(t, err, "3D000")
}

// slowStore holds back every Unbind of a living session until it is let go.
type slowStore struct {
	fencestore.Store
	begun chan struct{}
	let   chan struct{}
}

func (s slowStore) Unbind(ctx context.Context, c fencestore.Claim, session fencestore.Session, idle bool) (bool, error) {
	if idle {
		s.begun <- struct{}{}
		<-s.let
	}
	return s.Store.Unbind(ctx, c, session, idle)
}

func TestTicketThatIsShownAgainWhileItIsBeingLeft(t *testing.T) {
	w := newWorld(t)
	slow := slowStore{begun: make(chan struct{}, 8), let: make(chan struct{})}
	p := w.proxy(func(s *settings) {
		slow.Store = s.gate.Store
		s.gate.Store = slow
	})
	let := sync.OnceFunc(func() { close(slow.let) })
	t.Cleanup(let)
	conn := p.connect(nil)
	set := "set local fence.ticket = '" + w.ticket("a", 1) + "'"
	for _, sql := range []string{"begin", set, "commit", "begin"} {
		exec(t, conn, sql)
	}
	<-slow.begun
	again := make(chan error, 1)
	go func() { again <- try(conn, set) }()
	select {
	case err := <-again:
		t.Fatalf("shown again before it was left: %v", err)
	case <-time.After(50 * time.Millisecond):
	}
	let()
	if err := <-again; err != nil {
		t.Fatal(err)
	}
	exec(t, conn, "insert into entry values (1, 'x')")
	if got := w.rows(); got != 1 {
		t.Errorf("%d bindings in the database, want 1", got)
	}
}
