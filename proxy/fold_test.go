package proxy

import (
	"testing"
	"time"

	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// Two proxies fold what nobody holds any more; who holds a lock does not notice, not even one that has not come yet.
func TestIdleFloorsAreFolded(t *testing.T) {
	q, pg := newQuorum(t), appDatabase(t)
	often := func(c *Config) { c.Watch.FoldEvery = 20 * time.Millisecond }
	gone := q.acquire(t.Context(), "gone")
	held, late := q.acquire(t.Context(), "held"), q.acquire(t.Context(), "late")
	quiet := q.proxy(t, pg, true, func(c *Config) { c.Watch.FoldEvery = 0 })
	stale := gone.Ticket()
	for _, raw := range []string{stale, held.Ticket()} {
		conn, err := quiet.connect(t, raw)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close(t.Context())
	}
	if err := gone.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	one, two := q.proxy(t, pg, true, often), q.proxy(t, pg, true, often)
	admin := pgtest.Connect(t, pg.DSN("postgres", "app"))
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		var goneLeft, heldLeft bool
		var folded int64
		err := admin.QueryRow(t.Context(), `select exists (select from fence.floor where resource = 'gone'),
			exists (select from fence.floor where resource = 'held'), coalesce((select token from fence.folded), 0)`).Scan(&goneLeft, &heldLeft, &folded)
		if err != nil || !heldLeft {
			t.Fatalf("the holder's floor: %t, %v", heldLeft, err)
		}
		if !goneLeft {
			if folded != int64(held.Token()) {
				t.Errorf("folded below %d, want the smallest live token %d", folded, held.Token())
			}
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the floor of what nobody holds is still there\n%s", one.log)
		}
	}
	_, err := one.connect(t, stale)
	wantCode(t, "a folded floor", err, "LG001")
	for _, raw := range []string{held.Ticket(), late.Ticket()} {
		conn, err := two.connect(t, raw)
		if err != nil {
			t.Fatalf("a live holder: %v", err)
		}
		_ = conn.Close(t.Context())
	}
}
