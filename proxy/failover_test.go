package proxy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lychgate/lychgate/coordinator/lease"
	fencesql "github.com/lychgate/lychgate/sql"
	"github.com/lychgate/lychgate/sql/pgserver"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// standbyOf makes a streaming hot standby of a server by pg_basebackup.
func standbyOf(t testing.TB, primary *pgserver.Server) *pgserver.Server {
	t.Helper()
	bin, err := pgserver.Binaries()
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "lychgate-standby-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	data := filepath.Join(dir, "data")
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(data, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := primary.Own(data); err != nil {
		t.Fatal(err)
	}
	backup := exec.Command(filepath.Join(bin, "pg_basebackup"), "-D", data, "-h", primary.Host(), "-p", fmt.Sprint(primary.Port()),
		"-U", "postgres", "-R", "-X", "stream", "-c", "fast", "--no-sync")
	backup.Dir, backup.SysProcAttr = dir, &syscall.SysProcAttr{Credential: primary.Credential()}
	if out, err := backup.CombinedOutput(); err != nil {
		t.Fatalf("pg_basebackup: %v: %s", err, out)
	}
	return pgtest.Start(t, pgserver.Config{Dir: dir})
}

// awaitReplay waits until the standby has replayed what the primary has written.
func awaitReplay(t testing.TB, primary, standby *pgx.Conn) {
	t.Helper()
	var lsn string
	if err := primary.QueryRow(t.Context(), "select pg_current_wal_insert_lsn()::text").Scan(&lsn); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, primary, "create table if not exists tick (); drop table tick") // flushes what came before
	awaitTrue(t, standby, "select pg_last_wal_replay_lsn() >= '"+lsn+"'::pg_lsn")
}

func awaitTrue(t testing.TB, conn *pgx.Conn, query string) {
	t.Helper()
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(patience); ; <-poll.C {
		var is bool
		if err := conn.QueryRow(context.Background(), query).Scan(&is); err == nil && is {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("waited too long: %s", query)
		}
	}
}

// pair is a primary, its standby, and a proxy that knows both.
type pair struct {
	issuer        *issuer
	first, second *pgserver.Server
	onFirst       *pgx.Conn
	onSecond      *pgx.Conn
	proxy         *running
	firstAddress  string
	secondAddress string
}

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{issuer: newIssuer(t), first: appDatabase(t)}
	p.second = standbyOf(t, p.first)
	p.onFirst, p.onSecond = pgtest.Connect(t, p.first.DSN("postgres", "app")), pgtest.Connect(t, p.second.DSN("postgres", "app"))
	p.firstAddress, p.secondAddress = fmt.Sprintf("%s:%d", p.first.Host(), p.first.Port()), fmt.Sprintf("%s:%d", p.second.Host(), p.second.Port())
	c := configFor(p.issuer, p.first)
	c.Postgres[0].Upstream = p.secondAddress + "," + p.firstAddress // the standby is named first
	c.Postgres[0].StoreConns, c.DrainTimeout = 2, time.Second       // a store that is gone confirms no end of a session
	p.proxy = start(t, c)
	p.proxy.awaitReadyz(t, 200, "ok")
	return p
}

func (p *pair) hold(t *testing.T, resource string, token int) *pgx.Conn {
	t.Helper()
	conn, err := p.proxy.connect(t, p.issuer.ticket(t, resource, lease.Token(token)))
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

func (p *pair) adopt(t *testing.T) {
	t.Helper()
	if _, err := fencesql.Adopt(t.Context(), p.onSecond, "c1", 5*time.Second); err != nil {
		t.Fatal(err)
	}
	p.proxy.awaitReadyz(t, 200, "ok")
}

// The primary is lost and the standby promoted: the proxy follows, nothing is bound there until somebody has looked, no floor is
// lower than what was replicated, and the holder goes on with its ticket.
func TestFailover(t *testing.T) {
	p := newPair(t)
	holder := p.hold(t, "r", 42)
	if _, err := holder.Exec(t.Context(), "insert into note values ('before')"); err != nil {
		t.Fatal(err)
	}
	awaitReplay(t, p.onFirst, p.onSecond)
	if err := p.first.Crash(); err != nil {
		t.Fatal(err)
	}
	if _, err := holder.Exec(t.Context(), "select 1"); err == nil {
		t.Error("the session outlives its server")
	}
	p.proxy.awaitReadyz(t, 503, p.secondAddress+": is a standby")
	pgtest.Exec(t, p.onSecond, "select pg_promote()")
	p.proxy.awaitReadyz(t, 503, "restored, copied or promoted")
	_, err := p.proxy.connect(t, p.issuer.ticket(t, "r", 42))
	wantCode(t, "before somebody has looked", err, "LG007")
	p.adopt(t)
	_, err = p.proxy.connect(t, p.issuer.ticket(t, "r", 41))
	wantCode(t, "a token below the replicated floor", err, "LG001")
	if _, err := p.hold(t, "r", 42).Exec(t.Context(), "insert into note values ('after')"); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, p.onSecond, "select count(*) = 2 from note")
}

// The standby is promoted while the old primary lives and cannot know: sessions there end, with no word of a pooler, and the old
// primary is not gone back to, not even when the new one is lost.
func TestSplitBrain(t *testing.T) {
	p := newPair(t)
	idle, open := p.hold(t, "a", 1), p.hold(t, "b", 1)
	if _, err := open.Exec(t.Context(), "begin"); err != nil {
		t.Fatal(err)
	}
	if _, err := open.Exec(t.Context(), "insert into note values ('on the old one')"); err != nil {
		t.Fatal(err)
	}
	awaitReplay(t, p.onFirst, p.onSecond)
	pgtest.Exec(t, p.onSecond, "select pg_promote()")
	awaitTrue(t, p.onFirst, "select count(*) = 0 from pg_stat_activity where usename = 'app' or application_name = 'lychgate-fence'")
	for what, conn := range map[string]*pgx.Conn{"idle": idle, "in a transaction": open} {
		_, err := conn.Exec(t.Context(), "commit")
		wantCode(t, what, err, "LG007")
		if detail := detailOf(err); !strings.Contains(detail, p.secondAddress) {
			t.Errorf("%s: %q does not name the server", what, detail)
		}
	}
	awaitTrue(t, p.onFirst, "select count(*) = 0 from note")
	p.adopt(t)
	if _, err := p.hold(t, "a", 1).Exec(t.Context(), "insert into note values ('on the new one')"); err != nil {
		t.Fatal(err)
	}
	if err := p.second.Crash(); err != nil {
		t.Fatal(err)
	}
	p.proxy.awaitReadyz(t, 503, p.firstAddress+": was left behind by a failover")
	if _, err := p.proxy.connect(t, p.issuer.ticket(t, "a", 2)); err == nil {
		t.Error("a session stands on the old primary")
	}
	awaitTrue(t, p.onFirst, "select max(token) = 1 from fence.floor where resource = 'a'")
}

// On a hot standby nothing can be bound.
func TestNothingIsBoundOnAStandby(t *testing.T) {
	i, first := newIssuer(t), appDatabase(t)
	second := standbyOf(t, first)
	for policy, code := range map[string]string{"allow": "", "read-only": "", "require": "LG002"} {
		c := configFor(i, second)
		c.Postgres[0].Policy = policy
		r := start(t, c)
		r.awaitReadyz(t, 503, "in recovery")
		_, err := r.connect(t, i.ticket(t, "r", 1))
		wantCode(t, policy+" with a ticket", err, "LG007")
		conn, err := pgx.Connect(t.Context(), fmt.Sprintf("postgres://app@%s/app?sslmode=disable", r.PostgresAddrs()[0]))
		if err != nil {
			t.Fatal(err)
		}
		_, err = conn.Exec(t.Context(), "select count(*) from note")
		if code == "" && err != nil {
			t.Errorf("%s: a read on a standby: %v", policy, err)
		} else if code != "" {
			wantCode(t, policy+" without a ticket", err, code)
		}
		_ = conn.Close(t.Context())
		r.end(t)
	}
}

// A session that was opened on a standby would survive its promotion and write unregistered.
func TestPromotionUnderAnOpenSession(t *testing.T) {
	i, first := newIssuer(t), appDatabase(t)
	second := standbyOf(t, first)
	c := configFor(i, second)
	c.Postgres[0].Policy = "read-only"
	r := start(t, c)
	conn, err := pgx.Connect(t.Context(), fmt.Sprintf("postgres://app@%s/app?sslmode=disable", r.PostgresAddrs()[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "select 1"); err != nil {
		t.Fatal(err)
	}
	pgtest.Exec(t, pgtest.Connect(t, second.DSN("postgres", "app")), "select pg_promote()")
	poll := time.NewTicker(10 * time.Millisecond)
	defer poll.Stop()
	for deadline := time.Now().Add(patience); err == nil && time.Now().Before(deadline); <-poll.C {
		_, err = conn.Exec(t.Context(), "select 1") // the server tells with its next answer
	}
	wantCode(t, "after the promotion", err, "LG006")
}

// A restart of the server between the bind and the first statement: the session has ended, and says so.
func TestServerRestartsBetweenBindAndFirstStatement(t *testing.T) {
	i, pg := newIssuer(t), appDatabase(t)
	r := start(t, configFor(i, pg))
	r.awaitReadyz(t, 200, "ok")
	conn, err := r.connect(t, i.ticket(t, "r", 1))
	if err != nil {
		t.Fatal(err)
	}
	if err := pg.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err = conn.Exec(t.Context(), "insert into note values ('lost')")
	wantCode(t, "the first statement", err, "57P01")
	r.awaitReadyz(t, 200, "ok")
	if conn, err = r.connect(t, i.ticket(t, "r", 1)); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "insert into note values ('kept')"); err != nil {
		t.Fatal(err)
	}
	awaitTrue(t, pgtest.Connect(t, pg.DSN("postgres", "app")), "select array_agg(text) = '{kept}' from note")
}
