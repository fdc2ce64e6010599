package pgstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/lychgate/lychgate/fencestore"
	fencesql "github.com/lychgate/lychgate/sql"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// A claim that waits for its floor while the database moves to another cluster was found ready before that: let
// in, it would be a session of the old cluster beside the new holder, who ends only those of the new one.
func TestDatabaseThatMovesWhileAClaimWaits(t *testing.T) {
	d := newDatabase(t)
	store := d.store(t, nil)
	if _, err := store.Raise(t.Context(), claim("a", 41)); err != nil {
		t.Fatal(err)
	}
	holder := d.client(t)

	joining := pgtest.Connect(t, d.dsn("postgres"))
	pgtest.Exec(t, joining, "begin; lock table fence.floor in share mode")
	moved := make(chan error, 1)
	go func() {
		_, err := fencesql.Adopt(t.Context(), pgtest.Connect(t, d.dsn("postgres")+"&application_name=adopt"), "another", 5*time.Second)
		moved <- err
	}()
	await(t, func() bool { return d.waiting(t, "adopt", "Lock") })
	bound := make(chan error, 1)
	go func() {
		_, err := store.Bind(t.Context(), claim("a", 42), holder.session)
		bound <- err
	}()
	await(t, func() bool { return d.waiting(t, "lychgate-fence", "Lock") })
	pgtest.Exec(t, joining, "commit")
	if err := <-moved; err != nil {
		t.Fatal(err)
	}
	wantReason(t, <-bound, fencestore.NotReady)
}

// A role can be dropped under its sessions, which then belong to nobody that has a name.
func TestTakeoverFromASessionOfADroppedRole(t *testing.T) {
	d := newDatabase(t)
	store := d.store(t, nil)
	pgtest.Exec(t, d.admin, "create role leaver login")
	old := newClient(t, pgtest.Connect(t, d.dsn("leaver")))
	mustBind(t, store, "a", 41, old)
	pgtest.Exec(t, d.admin, "drop role leaver")
	if accepted := mustBind(t, store, "a", 42, d.client(t)); accepted.Ended != 1 {
		t.Errorf("got %+v, want one session ended", accepted)
	}
	if d.alive(t, old.session) {
		t.Error("the session of the dropped role goes on")
	}
}

// What an older program has installed has no modes: the store says what to run, and decides nothing.
func TestSchemaOfAnOlderVersion(t *testing.T) {
	d := newDatabase(t)
	store := d.store(t, nil)
	pgtest.Exec(t, d.admin, `delete from fence.version where number >= 7;
		drop function fence.bind(text, text, bigint, text, integer, bigint, integer, boolean)`)
	refused := wantReason(t, store.Check(t.Context(), cluster), fencestore.NotReady)
	if !strings.Contains(refused.Detail, "version 6") || !strings.Contains(refused.Hint, "lychgate sql install") {
		t.Errorf("check: got %q, hint %q", refused.Detail, refused.Hint)
	}
	_, err := store.Raise(t.Context(), claim("a", 41))
	if refused = wantReason(t, err, fencestore.NotReady); !strings.Contains(refused.Hint, "lychgate sql install") {
		t.Errorf("raise: got hint %q", refused.Hint)
	}
	wantFloor(t, store, "a", 0)
}
