package pgstore_test

import (
	"testing"
	"time"

	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/fencestore/pgstore"
	fencesql "github.com/lychgate/lychgate/sql"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// A copy has the floors of its original, and decides nothing until somebody has said that it may.
func TestCopyOfADatabase(t *testing.T) {
	d := newDatabase(t)
	store, err := pgstore.New(pgstore.Config{DSN: d.dsn(fencesql.DefaultProxyRole)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := store.Raise(t.Context(), claim("a", 41)); err != nil {
		t.Fatal(err)
	}
	store.Close() // a template must not be in use
	_ = d.admin.Close(t.Context())
	root := pgtest.Connect(t, server.DSN("postgres", "postgres"))
	name := d.name + "_copy"
	pgtest.Exec(t, root, "create database "+name+" template "+d.name)
	t.Cleanup(func() { pgtest.Exec(t, root, "drop database "+name+" with (force)") })

	copied := &database{server: server, name: name}
	copied.admin = pgtest.Connect(t, copied.dsn("postgres"))
	store = copied.store(t, nil)
	t.Cleanup(store.Close)
	wantReason(t, store.Check(t.Context(), cluster), fencestore.NotReady)
	_, err = store.Raise(t.Context(), claim("a", 42))
	wantReason(t, err, fencestore.NotReady)
	_, err = store.Fold(t.Context(), cluster, 42)
	wantReason(t, err, fencestore.NotReady)
	if _, err := fencesql.Adopt(t.Context(), copied.admin, cluster, 5*time.Second); err != nil {
		t.Fatal(err)
	}
	_, err = store.Raise(t.Context(), claim("a", 40))
	wantReason(t, err, fencestore.StaleToken)
	if _, err := store.Raise(t.Context(), claim("a", 42)); err != nil {
		t.Error(err)
	}
}

// A second or a re-created cluster starts its tokens anew: it is noticed, and moved to on purpose only.
func TestSecondClusterOnOneDatabase(t *testing.T) {
	d := newDatabase(t)
	store := d.store(t, nil)
	if _, err := store.Raise(t.Context(), claim("a", 41)); err != nil {
		t.Fatal(err)
	}
	other := fencestore.Claim{Cluster: "created anew", Resource: "a", Token: 1, LeaseHash: "hash"}
	_, err := store.Raise(t.Context(), other)
	wantReason(t, err, fencestore.NotReady)
	_, err = store.Fold(t.Context(), other.Cluster, 100)
	wantReason(t, err, fencestore.NotReady)
	holder := d.client(t)
	mustBind(t, store, "a", 41, holder)
	if ended, err := fencesql.Adopt(t.Context(), d.admin, other.Cluster, 5*time.Second); err != nil || ended != 1 {
		t.Fatalf("adopt: got %d, %v, want the session of the old cluster ended", ended, err)
	}
	if _, err := store.Raise(t.Context(), other); err != nil {
		t.Error(err)
	}
	_, err = store.Raise(t.Context(), claim("a", 42))
	wantReason(t, err, fencestore.NotReady)
}
