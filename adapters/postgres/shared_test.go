package postgres_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lychgate/lychgate/coordinator/lease"
	"github.com/lychgate/lychgate/proxy/gate"
	fencesql "github.com/lychgate/lychgate/sql"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

const (
	insert   = "insert into entry values (1, 'x') on conflict do nothing"
	noWrites = "25006" // read_only_sql_transaction
)

// guard protects a table "guarded" whose rows belong to the resource in their column.
func (w *world) guard() {
	w.t.Helper()
	pgtest.Exec(w.t, w.admin, "create table guarded (resource text); grant all on guarded to public")
	if _, err := fencesql.Protect(w.t.Context(), w.admin, "guarded", "resource"); err != nil {
		w.t.Fatal(err)
	}
}

func TestSharedTicketIsForReading(t *testing.T) {
	w := newWorld(t)
	w.guard()
	p := w.proxy(nil)
	conn := p.connect(with(w.shared("a", 5, 1)))
	exec(t, conn, "select * from entry")
	exec(t, conn, "select * from guarded")
	wantCode(t, try(conn, insert), noWrites)
	wantCode(t, extended(conn, insert), noWrites)
	exec(t, conn, "set default_transaction_read_only = off") // it is a courtesy
	exec(t, conn, insert)
	for _, run := range []func(*pgx.Conn, string) error{try, extended} {
		refused := wantCode(t, run(conn, "insert into guarded values ('a')"), "LG006")
		if !strings.Contains(refused.Message, "held shared") || !strings.Contains(refused.Hint, "take it exclusive to write") {
			t.Errorf("got %q, hint %q", refused.Message, refused.Hint)
		}
	}
	if got := p.gate.Bindings(); len(got) != 1 || got[0].Mode != "shared" {
		t.Errorf("bindings: got %+v, want one that is shared", got)
	}
}

// Holders of one shared token stand side by side; the next exclusive holder ends all of them.
func TestSharedHoldersAndTheirSuccessor(t *testing.T) {
	w := newWorld(t)
	w.guard()
	p, other := w.proxy(nil), w.proxy(nil)
	before := p.connect(with(w.ticket("a", 4)))
	exec(t, before, "insert into guarded values ('a')")
	one, two := p.connect(with(w.shared("a", 5, 1))), other.connect(with(w.shared("a", 5, 2)))
	wantFatal(t, before)
	third := p.connect(with(w.shared("a", 5, 3)))
	for _, conn := range []*pgx.Conn{one, two, third} {
		exec(t, conn, "begin; select * from guarded")
	}
	if got := p.gate.EndLease(lease.NewID(1, [14]byte{5, 3}).Hash().String()); got != 1 {
		t.Errorf("%d bindings ended by their lease, want 1", got)
	}
	await(t, "the third holder's end", func() bool { return try(third, "select 1") != nil })
	exec(t, one, "select * from guarded")

	successor := other.connect(with(w.ticket("a", 6)))
	for _, conn := range []*pgx.Conn{one, two} {
		if refused := wantFatal(t, conn); refused.Code != "LG001" {
			t.Errorf("a shared holder was told %v, want LG001", refused)
		}
	}
	exec(t, successor, "insert into guarded values ('a')")
	p.refuse("app", "LG001", with(w.shared("a", 5, 1)))
}

// With one exclusive ticket the session is not asked to be read-only, and the guard decides by resource.
func TestTicketsOfBothModes(t *testing.T) {
	w := newWorld(t)
	w.guard()
	p := w.proxy(nil)
	conn := p.connect(with(w.shared("a", 5, 1), w.ticket("b", 5)))
	exec(t, conn, insert)
	exec(t, conn, "insert into guarded values ('b')")
	wantCode(t, try(conn, "insert into guarded values ('a')"), "LG006")
	wantCode(t, try(conn, "insert into guarded values ('b'), ('a')"), "LG006")
	wantCode(t, try(conn, "insert into guarded values ('c')"), "LG002")
}

// The courtesy follows the tickets that are set, with the transaction that sets them.
func TestCourtesyFollowsSetTicket(t *testing.T) {
	for name, run := range map[string]func(*pgx.Conn, string) error{"simple": try, "extended": extended} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			p := w.proxy(func(s *settings) { s.gate.Policy = gate.Allow })
			shared, exclusive := " fence.ticket = '"+w.shared("a", 5, 1)+"'", " fence.ticket = '"+w.ticket("b", 5)+"'"
			for _, c := range []struct {
				params map[string]string
				steps  []string
				writes bool
			}{
				{nil, []string{"SET" + shared}, false},
				{nil, []string{"SET" + shared, "RESET fence.ticket"}, true},
				{nil, []string{"SET" + shared, "SET" + exclusive}, true},
				{nil, []string{"SET" + exclusive, "SET" + shared}, false},
				{nil, []string{"BEGIN", "SET" + shared, "COMMIT"}, false},
				{nil, []string{"BEGIN", "SET" + shared, "ROLLBACK"}, true},
				{nil, []string{"BEGIN", "SET" + shared}, false},
				{nil, []string{"BEGIN", "SET LOCAL" + shared}, false},
				{nil, []string{"BEGIN", "SET LOCAL" + shared, "COMMIT"}, true},
				{nil, []string{"BEGIN", "SET LOCAL" + shared, "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE"}, false}, // no snapshot was taken
				{nil, []string{"BEGIN", "SET LOCAL" + shared, "SET LOCAL" + exclusive}, true},
				{nil, []string{"BEGIN READ ONLY", "SET LOCAL" + exclusive}, false}, // the client's own
				{nil, []string{"SET default_transaction_read_only = on", "SET" + exclusive}, false},
				{nil, []string{"BEGIN ISOLATION LEVEL SERIALIZABLE", "SET LOCAL" + shared, "SELECT 1", "COMMIT"}, true},
				{with(w.shared("a", 5, 2)), nil, false},
				{with(w.shared("a", 5, 2)), []string{"SET" + exclusive}, true},
				{with(w.shared("a", 5, 2)), []string{"BEGIN", "SET LOCAL" + exclusive}, true},
				{with(w.shared("a", 5, 2)), []string{"BEGIN", "SET LOCAL" + exclusive, "COMMIT"}, false},
				{with(w.shared("a", 5, 2)), []string{"BEGIN", "SET" + exclusive, "ROLLBACK"}, false},
				{with(w.shared("a", 5, 2)), []string{"DISCARD ALL"}, false},
			} {
				conn := p.connect(c.params)
				for _, step := range c.steps {
					if err := run(conn, step); err != nil {
						t.Fatalf("%v: %s: %v", c.steps, step, err)
					}
				}
				err := run(conn, insert)
				if c.writes && err != nil {
					t.Errorf("%v: got %v, want it to write", brief(c.steps), err)
				} else if !c.writes {
					if err == nil {
						t.Errorf("%v: wrote", brief(c.steps))
					} else {
						wantCode(t, err, noWrites)
					}
				}
				_ = conn.Close(t.Context())
			}
		})
	}
}

func brief(steps []string) (list []string) {
	for _, s := range steps {
		list = append(list, strings.SplitN(s, " = ", 2)[0])
	}
	return list
}

// The replies to what the proxy sends itself do not reach the client, in a pipeline neither.
func TestCourtesyIsNotSeen(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(func(s *settings) { s.gate.Policy = gate.Allow })
	conn := p.connect(nil)
	pipe := conn.PgConn().StartPipeline(t.Context())
	for _, text := range []string{"SET fence.ticket = '" + w.shared("a", 5, 1) + "'", "SELECT 1", insert} {
		pipe.SendQueryParams(text, nil, nil, nil, nil)
	}
	if err := pipe.Sync(); err != nil {
		t.Fatal(err)
	}
	var tags []string
	for {
		result, err := pipe.GetResults()
		if reader, ok := result.(*pgconn.ResultReader); ok && err == nil {
			var tag pgconn.CommandTag
			if tag, err = reader.Close(); err == nil {
				tags = append(tags, tag.String())
				continue
			}
		}
		wantCode(t, err, noWrites)
		break
	}
	if want := []string{"SET", "SELECT 1"}; !slices.Equal(tags, want) {
		t.Errorf("the client saw %q, want %q", tags, want)
	}
	_ = pipe.Close() // the error again
	results, err := conn.PgConn().Exec(t.Context(), "SET fence.ticket = '"+w.ticket("b", 5)+"'").ReadAll()
	if err != nil || len(results) != 1 || results[0].CommandTag.String() != "SET" {
		t.Errorf("got %+v, %v, want one SET", results, err)
	}
	exec(t, conn, insert)
}

func TestPolicyReadOnlyFollowsTheTicket(t *testing.T) {
	w := newWorld(t)
	p := w.proxy(func(s *settings) { s.gate.Policy = gate.ReadOnly })
	conn := p.connect(nil)
	wantCode(t, try(conn, insert), noWrites)
	exec(t, conn, "SET fence.ticket = '"+w.ticket("a", 1)+"'")
	exec(t, conn, insert)
	exec(t, conn, "RESET fence.ticket")
	wantCode(t, try(conn, insert), noWrites)
}
