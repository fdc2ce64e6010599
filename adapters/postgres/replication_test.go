package postgres_test

import (
	"context"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/lychgate/lychgate/proxy/gate"
	"github.com/lychgate/lychgate/sql/pgserver"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// replicating is a world with a role that may replicate, and a proxy that serves it.
func replicating(t *testing.T, policy gate.Policy) (*world, *proxy) {
	t.Helper()
	w := newWorld(t)
	pgtest.Exec(t, w.admin, "do $$ begin create role sender login replication; exception when duplicate_object then null; end $$")
	return w, w.proxy(func(s *settings) { s.gate.Policy, s.server.Replication = policy, true })
}

// slot makes one for logical decoding that goes with the test.
func (w *world) slot(plugin string) string {
	w.t.Helper()
	pgtest.Exec(w.t, w.admin, fmt.Sprintf("select pg_create_logical_replication_slot('%s', '%s')", w.name, plugin))
	w.t.Cleanup(func() { // a database with a slot cannot be dropped
		await(w.t, "the slot to be free", func() bool {
			_, err := w.admin.Exec(context.Background(), "select pg_drop_replication_slot($1)", w.name)
			return err == nil
		})
	})
	return w.name
}

func replicate(what string, tickets ...string) map[string]string {
	params := map[string]string{"replication": what}
	if len(tickets) > 0 {
		params["fence.ticket"] = strings.Join(tickets, ",")
	}
	return params
}

func (p *proxy) sender(params map[string]string) *raw {
	p.t.Helper()
	r := dialRaw(p.t, p.addr, "sender", p.world.name, params)
	r.login()
	return r
}

// Nothing replicates where that was not asked for, nothing physical where it would have to be bound, and no refusal moves a floor.
func TestReplicationIsRefused(t *testing.T) {
	w, serves := replicating(t, gate.Require)
	off := w.proxy(nil)
	offAllow := w.proxy(func(s *settings) { s.gate.Policy = gate.Allow })
	servesAllow := w.proxy(func(s *settings) { s.gate.Policy, s.server.Replication = gate.Allow, true })
	for name, c := range map[string]struct {
		p      *proxy
		params map[string]string
		detail string
	}{
		"logical, off":                {off, replicate("database", w.ticket("a", 1)), "serves no replication"},
		"physical, off":               {off, replicate("true"), "serves no replication"},
		"off, and all is allowed":     {offAllow, replicate("database"), "serves no replication"},
		"physical, with a ticket":     {serves, replicate("true", w.ticket("a", 1)), "cannot be bound"},
		"physical, without one":       {serves, replicate("on"), "cannot be bound"},
		"what is no boolean":          {serves, replicate("Databases", w.ticket("a", 1)), "cannot be bound"},
		"physical, allowed, a ticket": {servesAllow, replicate("yes", w.ticket("a", 1)), "cannot be bound"},
	} {
		if e := c.p.refuse("sender", "LG006", c.params); !strings.Contains(e.Detail, c.detail) {
			t.Errorf("%s: got detail %q", name, e.Detail)
		}
	}
	conn := dial(t, serves.addr)
	twice := startup("user", "sender", "database", w.name, "replication", "false", "replication", "true", "fence.ticket", w.ticket("a", 1))
	_, _ = conn.Write(twice.Packet())
	if got := readAll(conn); !strings.Contains(got, "more than once") {
		t.Errorf("the parameter twice: %q", got)
	}
	if got := w.floor("a"); got != 0 {
		t.Errorf("the floor is %d", got)
	}
}

// A stream from the server, both ways, is ended by a takeover, whoever reads it, and so is SQL in such a session.
func TestTakeoverFromLogicalReplication(t *testing.T) {
	w, p := replicating(t, gate.Require)
	slot := w.slot("test_decoding")
	stream := p.sender(replicate("database", w.ticket("a", 1)))
	stream.send(&query{String: "IDENTIFY_SYSTEM"})
	stream.until("Ready I")
	stream.send(&query{String: "START_REPLICATION SLOT " + slot + " LOGICAL 0/0"})
	if got := describe(stream.next()); got != "CopyBothResponse" {
		t.Fatalf("got %s", got)
	}
	pgtest.Exec(t, w.admin, "insert into entry values (1, 'seen')")
	awaitData(t, stream, "seen")
	writer := p.sender(replicate("database", w.ticket("a", 1)))
	writer.send(&query{String: "begin; insert into entry values (2, 'zombie')"})
	writer.until("Ready T")
	p.awaitBindings("a:1", "a:1")

	exec(t, p.connect(with(w.ticket("a", 2))), "insert into entry values (3, 'successor')")
	awaitFatal(t, stream, "LG001")
	awaitFatal(t, writer, "LG001")
	p.awaitBindings("a:2")
	if n := w.count("who = 'zombie'"); n != 0 {
		t.Errorf("%d rows of the old holder", n)
	}
	p.refuse("sender", "LG001", replicate("database", w.ticket("a", 1)))
}

// awaitData reads the stream up to a text, and answers with where it stands.
func awaitData(t *testing.T, r *raw, text string) {
	t.Helper()
	for {
		m, ok := r.next().(*pgproto3.CopyData)
		if !ok {
			t.Fatalf("no data: %#v", m)
		}
		if strings.Contains(string(m.Data), text) {
			r.send(&pgproto3.CopyData{Data: append([]byte{'r'}, make([]byte, 33)...)}) // a status that has nothing to say
			return
		}
	}
}

func awaitFatal(t *testing.T, r *raw, code string) {
	t.Helper()
	for {
		m := r.next()
		if e, ok := m.(*pgproto3.ErrorResponse); ok {
			if e.Severity != "FATAL" || e.Code != code {
				t.Fatalf("got %s %s %s, want %s", e.Severity, e.Code, e.Message, code)
			}
			return
		}
	}
}

// A client ends its stream and goes on with SQL; replies are followed through all of it.
func TestStreamEndsAndTheSessionGoesOn(t *testing.T) {
	w, p := replicating(t, gate.Require)
	slot := w.slot("test_decoding")
	r := p.sender(replicate("database", w.ticket("a", 1)))
	r.send(&query{String: "START_REPLICATION SLOT " + slot + " LOGICAL 0/0"})
	if got := describe(r.next()); got != "CopyBothResponse" {
		t.Fatalf("got %s", got)
	}
	r.send(&pgproto3.CopyDone{})
	r.until("Ready I")
	r.send(&query{String: "set fence.ticket = '" + w.ticket("b", 1) + "'"})
	r.expect("Ready", "Complete SET", "Ready I")
	p.awaitBindings("b:1")
	r.send(&query{String: "select 1"})
	r.expect("Ready", "Columns 1", "Row 1", "Complete SELECT 1", "Ready I")
}

// Without a ticket the policy holds in a replication session as in any other, commands of replication included.
func TestPolicyInLogicalReplication(t *testing.T) {
	w, p := replicating(t, gate.Require)
	slot := w.slot("test_decoding")
	r := p.sender(replicate("database"))
	for _, text := range []string{"IDENTIFY_SYSTEM", "START_REPLICATION SLOT " + slot + " LOGICAL 0/0", "insert into entry values (1, 'x')"} {
		r.send(&query{String: text})
		if got := r.until("Ready I"); !strings.HasPrefix(got, "Error ERROR LG002") {
			t.Errorf("%s: got %s", text, got)
		}
	}
	r.send(&query{String: "set fence.ticket = '" + w.ticket("a", 1) + "'"})
	r.expect("Ready", "Complete SET", "Ready I")
	r.send(&query{String: "IDENTIFY_SYSTEM"})
	if got := r.until("Ready I"); !strings.Contains(got, w.name) {
		t.Errorf("got %s", got)
	}
	w2, p2 := replicating(t, gate.ReadOnly)
	r = p2.sender(replicate("database"))
	r.send(&query{String: "insert into entry values (1, 'x')"})
	if got := r.until("Ready I"); !strings.Contains(got, "25006") || w2.count("true") != 0 {
		t.Errorf("read-only: got %s", got)
	}
}

// A stream has no end of its own: a drain does not wait for one.
func TestDrainEndsAStream(t *testing.T) {
	w, p := replicating(t, gate.Require)
	slot := w.slot("test_decoding")
	r := p.sender(replicate("database", w.ticket("a", 1)))
	r.send(&query{String: "START_REPLICATION SLOT " + slot + " LOGICAL 0/0"})
	if got := describe(r.next()); got != "CopyBothResponse" {
		t.Fatalf("got %s", got)
	}
	began := time.Now()
	p.stop() // it would be cut after as long as the test is patient
	if took := time.Since(began); took > patience/2 {
		t.Errorf("the drain took %v", took)
	}
	awaitFatal(t, r, "57P01")
}

// tool begins one of PostgreSQL's own programs.
func tool(t *testing.T, name, dsn string, args ...string) (done <-chan string) {
	t.Helper()
	bin, err := pgserver.Binaries()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(bin, name)
	if _, err := os.Stat(path); err != nil {
		t.Skipf("the programs of this release have no %s", name) // those that are tested with always do
	}
	ctx, stop := context.WithCancel(context.Background())
	cmd := osexec.CommandContext(ctx, path, append([]string{"-d", dsn}, args...)...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	said := make(chan string, 1)
	var out lockedBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err := cmd.Wait()
		said <- fmt.Sprintf("%s\n%v", out.String(), err)
	}()
	t.Cleanup(func() { stop(); <-ended })
	return said
}

func TestUnmodifiedPgRecvlogical(t *testing.T) {
	w, p := replicating(t, gate.Require)
	slot := w.slot("test_decoding")
	into := filepath.Join(t.TempDir(), "changes")
	dsn := p.dsn("sender", with(w.ticket("a", 1)))
	host, port, _ := strings.Cut(p.addr, ":")
	conninfo := fmt.Sprintf("host=%s port=%s user=sender dbname=%s sslmode=disable options='-c fence.ticket=%s'", host, port, w.name, w.ticket("a", 1))
	said := tool(t, "pg_recvlogical", conninfo, "--slot", slot, "--start", "--no-loop", "-F", "0", "-s", "1", "-f", into)
	p.awaitBindings("a:1")
	psql(t, dsn, "insert into entry values (1, 'streamed')")
	pgtest.Exec(t, w.admin, "insert into entry select n, repeat('x', 500) from generate_series(2, 20000) n")
	await(t, "the changes", func() bool {
		got, _ := os.ReadFile(into)
		return strings.Contains(string(got), "streamed") && strings.Contains(string(got), "20000")
	})
	exec(t, p.connect(with(w.ticket("a", 2))), "select 1")
	wantSaid(t, said, "LG001")
}

// wantSaid waits until a tool has ended, with these words.
func wantSaid(t *testing.T, said <-chan string, want string) {
	t.Helper()
	select {
	case got := <-said:
		if !strings.Contains(got, want) {
			t.Errorf("it said %s", got)
		}
	case <-time.After(patience):
		t.Error("it goes on")
	}
}

// Physical replication passes where nothing has to be bound, and is never taken for bound.
func TestUnmodifiedPgReceivewal(t *testing.T) {
	w, p := replicating(t, gate.Allow)
	host, port, _ := strings.Cut(p.addr, ":")
	into := t.TempDir()
	said := tool(t, "pg_receivewal", fmt.Sprintf("host=%s port=%s user=sender sslmode=disable", host, port), "-D", into, "--no-loop", "-s", "1")
	await(t, "a segment", func() bool {
		files, _ := filepath.Glob(filepath.Join(into, "*.partial"))
		return len(files) == 1
	})
	pgtest.Exec(t, w.admin, "insert into entry select n, repeat('x', 500) from generate_series(1, 30000) n; select pg_switch_wal()")
	await(t, "a whole segment", func() bool {
		files, _ := filepath.Glob(filepath.Join(into, "????????????????????????"))
		return len(files) > 0
	})
	base := filepath.Join(t.TempDir(), "base")
	if got := <-tool(t, "pg_basebackup", fmt.Sprintf("host=%s port=%s user=sender sslmode=disable", host, port), "-D", base, "-c", "fast", "--no-sync"); !strings.HasSuffix(got, "<nil>") {
		t.Errorf("pg_basebackup said %s", got)
	}
	p.awaitBindings()
	r := p.sender(replicate("true"))
	r.send(&query{String: "set fence.ticket = '" + w.ticket("a", 1) + "'"})
	if got := r.until("Ready"); !strings.HasPrefix(got, "Error ERROR LG006") {
		t.Errorf("a ticket by SET: got %s", got)
	}
	p.stop()
	wantSaid(t, said, "shutting down")
}

// A subscription of PostgreSQL's own carries its ticket in its connection string. When the lock has gone to another it gets
// nothing more, however often it comes back.
func TestSubscription(t *testing.T) {
	w, p := replicating(t, gate.Require)
	pgtest.Exec(t, w.admin, "create publication everything for table entry; grant select on entry to sender")
	slot, subscriber := w.slot("pgoutput"), newWorld(t)
	host, port, _ := strings.Cut(p.addr, ":")
	pgtest.Exec(t, subscriber.admin, fmt.Sprintf(`create subscription %s connection
		'host=%s port=%s user=sender dbname=%s sslmode=disable options=''-c fence.ticket=%s''' publication everything
		with (create_slot = false, copy_data = false)`, slot, host, port, w.name, w.ticket("a", 1)))
	t.Cleanup(func() {
		for _, text := range []string{"disable", "set (slot_name = none)"} {
			if err := try(subscriber.admin, "alter subscription "+slot+" "+text); err != nil {
				t.Error(err)
			}
		}
		if err := try(subscriber.admin, "drop subscription "+slot); err != nil {
			t.Error(err)
		}
	})
	p.awaitBindings("a:1")
	pgtest.Exec(t, w.admin, "insert into entry values (1, 'replicated')")
	await(t, "the row", func() bool { return subscriber.count("who = 'replicated'") == 1 })
	exec(t, p.connect(with(w.ticket("a", 2))), "insert into entry values (2, 'successor')")
	await(t, "the subscription to come back in vain", func() bool { return p.seen.of(gate.StaleToken) >= 2 })
	if n := subscriber.count("true"); n != 1 {
		t.Errorf("the subscriber has %d rows", n)
	}
}
