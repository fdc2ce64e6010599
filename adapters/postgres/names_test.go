package postgres_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lychgate/lychgate/proxy/gate"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// Clients that close what they have prepared may prepare as many tickets as they like.
func TestClosedStatementsDoNotCount(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(nil)
	r := p.raw(nil)
	for i := range 40 {
		name := fmt.Sprintf("s%d", i)
		messages := all(&parse{Name: name, Query: "set fence.ticket = '" + w.ticket("a", 1) + "'"}, &bind{PreparedStatement: name}, &execute{})
		if i%2 == 0 { // in one batch with its use, and in one of its own
			messages = append(messages, &sync_{})
			r.send(messages...)
			messages = nil
			r.until("Ready I")
		}
		r.send(all(messages, &close_{ObjectType: 'S', Name: name}, &sync_{})...)
		if got := r.until("Ready I"); strings.Contains(got, "Error") || !strings.Contains(got, "CloseComplete") {
			t.Fatalf("statement %d: %s", i, got)
		}
	}
	p.awaitBindings("a:1")
}

// A Close in a batch that has failed is not carried out: the statement still shows its ticket.
func TestCloseInAFailedBatchIsNotBelieved(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(func(s *settings) { s.gate.Policy = gate.Allow })
	r := p.raw(nil)
	r.send(&parse{Name: "s", Query: "set fence.ticket = '" + w.ticket("a", 1) + "'"}, &sync_{})
	r.until("Ready I")
	r.send(&parse{Query: "select nonsense"}, &close_{ObjectType: 'S', Name: "s"}, &sync_{})
	r.until("Ready I")
	r.send(&bind{PreparedStatement: "s"}, &execute{}, &sync_{})
	r.until("Ready I")
	p.awaitBindings("a:1")
}

// The server does not replace a prepared statement: what it refuses to be made of a COMMIT is still one.
func TestNameOfACommitThatIsPreparedAgain(t *testing.T) {
	w := newWorld(t)
	pgtest.Exec(t, w.admin, `create function wait() returns trigger language plpgsql as 'begin perform pg_sleep(600); return null; end';
		create constraint trigger wait after insert on entry deferrable initially deferred for each row execute function wait()`)
	p := w.proxy(nil)
	r := p.raw(with(w.ticket("ledger", 41)))
	r.send(&parse{Name: "c", Query: "commit"}, &sync_{})
	r.until("Ready I")
	r.send(&parse{Name: "c", Query: "select 1"}, &sync_{})
	if got := r.until("Ready I"); !strings.Contains(got, "42P05") {
		t.Fatalf("got %s, want the server's refusal", got)
	}
	r.send(&query{String: "begin"}, &query{String: "insert into entry values (1, 'old')"})
	r.until("Complete INSERT")
	r.until("Ready T")
	r.send(&bind{PreparedStatement: "c"}, &execute{}, &sync_{})
	w.awaitRunning("commit")
	p.connect(with(w.ticket("ledger", 42)))
	if got := r.until("Error FATAL"); !strings.Contains(got, "LG008") {
		t.Errorf("got %s, want LG008", got)
	}
}

// Nothing that the proxy itself refuses has a code that drivers retry.
func TestTicketInTheMiddleOfACopy(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(func(s *settings) { s.gate.Policy = gate.Allow })
	r := p.raw(nil)
	r.send(&query{String: "copy entry from stdin"})
	r.until("CopyInResponse")
	r.send(&query{String: "set fence.ticket = '" + w.ticket("a", 1) + "'"})
	if got := r.until("Error"); !strings.HasPrefix(got, "Error FATAL LG006") {
		t.Errorf("got %s", got)
	}
	if got := p.seen.of(gate.NotAllowed); got != 1 {
		t.Errorf("%d refusals counted, want 1", got)
	}
	p.awaitBindings()
}
