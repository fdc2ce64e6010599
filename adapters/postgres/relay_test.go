package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
)

type (
	query    = pgproto3.Query
	parse    = pgproto3.Parse
	bind     = pgproto3.Bind
	descr    = pgproto3.Describe
	execute  = pgproto3.Execute
	sync_    = pgproto3.Sync
	flush    = pgproto3.Flush
	close_   = pgproto3.Close
	copyData = pgproto3.CopyData
	copyDone = pgproto3.CopyDone
	copyFail = pgproto3.CopyFail
	call     = pgproto3.FunctionCall
	message  = pgproto3.FrontendMessage
)

// run is the statement in one extended batch without its end.
func run(sql string) []message {
	return []message{&parse{Query: sql}, &bind{}, &descr{ObjectType: 'P'}, &execute{}}
}

func all(parts ...any) (messages []message) {
	for _, p := range parts {
		switch p := p.(type) {
		case []message:
			messages = append(messages, p...)
		case message:
			messages = append(messages, p)
		}
	}
	return messages
}

func copyRows(n int) (messages []message) {
	for i := range n {
		messages = append(messages, &copyData{Data: fmt.Appendf(nil, "%d\tcopied\n", 1000+i)})
	}
	return messages
}

// A refused statement has to leave the protocol where a failed one would.
func TestRefusalsLookLikeTheServersOwnErrors(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	bad := "select set_config('fence.ticket', 'x', false)"
	r := p.raw(with(w.ticket("a", 1)))
	r.send(all(run("insert into entry values (1, 'a')"), run(bad), run("insert into entry values (2, 'a')"), &sync_{})...)
	r.expect("Ready", "ParseComplete", "BindComplete", "NoData", "Complete INSERT 0 1",
		"Error ERROR LG006 not allowed in a fenced session (LG006)", "Ready I")
	r.send(&query{String: "begin"}, &query{String: bad}, &query{String: "select 1"}, &query{String: "rollback"}, &query{String: "select count(*) from entry"})
	r.expect("Row", "Complete BEGIN", "Ready T", "Error ERROR LG006 not allowed in a fenced session (LG006)", "Ready E",
		"Error ERROR 25P02 current transaction is aborted, commands ignored until end of transaction block", "Ready E",
		"Complete ROLLBACK", "Ready I", "Columns 1", "Row 0")
	r.expect("Ready", "Complete SELECT 1", "Ready I")

	barred := p.raw(nil)
	barred.send(all(run("select 1"), run("select 2"), &sync_{}, &call{Function: 1598}, &query{String: "select 3"})...)
	barred.expect("Ready", "Error ERROR LG002 a ticket is required (LG002)", "Ready I")
	barred.expect("Ready", "Error ERROR LG002 a ticket is required (LG002)", "Ready I")
	barred.expect("Ready", "Error ERROR LG002 a ticket is required (LG002)", "Ready I")
	barred.send(all(&bind{PreparedStatement: "x"}, &execute{Portal: "y"}, &descr{ObjectType: 'S', Name: "x"}, &sync_{}, &execute{Portal: "y"}, &sync_{})...)
	barred.expect("Ready", "Error ERROR LG002 a ticket is required (LG002)", "Ready I")
	barred.expect("Ready", "Error ERROR LG002 a ticket is required (LG002)", "Ready I")
	barred.send(&query{String: "select '" + strings.Repeat("x", 100_000) + "'"}, &parse{Query: "select '" + strings.Repeat("x", 100_000) + "'"}, &sync_{})
	barred.expect("Ready", "Error ERROR LG002 a ticket is required (LG002)", "Ready I")
	barred.expect("Ready", "Error ERROR LG002 a ticket is required (LG002)", "Ready I")
}

// expect reads up to a message and compares.
func (r *raw) expect(last string, want ...string) {
	r.t.Helper()
	if got := r.until(last); got != strings.Join(want, "\n") {
		r.t.Fatalf("got:\n%s\n\nwant:\n%s", got, strings.Join(want, "\n"))
	}
}

func TestSetTicketInPipelines(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	r := p.raw(nil)
	set := func(resource string) string { return "set local fence.ticket = '" + w.ticket(resource, 3) + "'" }

	// As pgjdbc sends it: BEGIN and the first statement under one Sync.
	r.send(all(&parse{Query: "BEGIN"}, &bind{}, &execute{}, run(set("a")), run("insert into entry values (1, 'x')"), &sync_{})...)
	r.expect("Ready", "ParseComplete", "BindComplete", "Complete BEGIN", "ParseComplete", "BindComplete", "NoData", "Complete SET",
		"ParseComplete", "BindComplete", "NoData", "Complete INSERT 0 1", "Ready T")
	p.awaitBindings("a:3")
	r.send(&query{String: "commit"})
	r.expect("Ready", "Complete COMMIT", "Ready I")
	p.awaitBindings()

	// All at once in the simple protocol.
	r.send(&query{String: "begin"}, &query{String: set("b")}, &query{String: "insert into entry values (2, 'x')"}, &query{String: "commit"}, &query{String: "begin"}, &query{String: "rollback"})
	r.expect("Complete ROLLBACK", "Complete BEGIN", "Ready T", "Complete SET", "Ready T", "Complete INSERT 0 1", "Ready T", "Complete COMMIT", "Ready I",
		"Complete BEGIN", "Ready T", "Complete ROLLBACK")
	r.expect("Ready", "Ready I")
	p.awaitBindings()

	// Behind a statement of the same implicit transaction it comes too late, and takes that with it.
	bound := p.raw(with(w.ticket("c", 3)))
	bound.send(all(run("insert into entry values (3, 'x')"), run(set("d")), &sync_{})...)
	bound.expect("Ready", "ParseComplete", "BindComplete", "NoData", "Complete INSERT 0 1", "ParseComplete", "BindComplete", "NoData",
		"Error ERROR LG006 not allowed in a fenced session (LG006)", "Ready I")
	// Behind a statement that failed it is not looked at.
	bound.send(all(run("select 1/0"), run(set("d")), &sync_{})...)
	bound.expect("Ready", "ParseComplete", "Error ERROR 22012 division by zero", "Ready I")
	p.awaitBindings("c:3")
	if got := w.count("true"); got != 2 {
		t.Errorf("%d rows, want 2", got)
	}
}

func TestJoinInsideAnOpenTransactionIsRefused(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	conn := p.connect(with(w.ticket("a", 1)))
	exec(t, conn, "begin isolation level repeatable read")
	exec(t, conn, "select * from entry") // takes the snapshot
	exec(t, p.connect(with(w.ticket("b", 7))), "insert into entry values (1, 'new holder')")
	wantCode(t, try(conn, "set local fence.ticket = '"+w.ticket("b", 7)+"'"), "LG006")
	exec(t, conn, "rollback")
	exec(t, conn, "set fence.ticket = '"+w.ticket("b", 7)+"'")
}
