package proxy

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lychgate/lychgate/coordinator"
	"github.com/lychgate/lychgate/coordinator/client"
	"github.com/lychgate/lychgate/sql/pgserver"
	"github.com/lychgate/lychgate/sql/pgserver/freeport"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// quorum is a real coordinator of one node, which can be stopped and started again.
type quorum struct {
	t      testing.TB
	config coordinator.Config
	stop   func()
	locks  *client.Client
}

func newQuorum(t testing.TB) *quorum {
	t.Helper()
	addrs, err := freeport.Addresses(3)
	if err != nil {
		t.Fatal(err)
	}
	q := &quorum{t: t, config: coordinator.DefaultConfig()}
	q.config.Node, q.config.Dir = "n1", filepath.Join(t.TempDir(), "n1")
	q.config.Members = []coordinator.Member{{ID: "n1", Peer: addrs[0], GRPC: addrs[1], HTTP: addrs[2]}}
	q.start()
	t.Cleanup(func() { q.stop() })
	if q.locks, err = client.Dial(client.Config{Addrs: []string{q.grpc()}, Patience: patience}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { q.locks.Close() })
	return q
}

func (q *quorum) grpc() string { return q.config.Members[0].GRPC }

func (q *quorum) start() {
	q.t.Helper()
	node, err := coordinator.New(q.config, coordinator.Deps{})
	if err != nil {
		q.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() {
		if err := node.Run(ctx); err != nil {
			q.t.Error(err)
		}
	})
	q.stop = sync.OnceFunc(func() { cancel(); running.Wait() })
	select {
	case <-node.Ready():
	case <-time.After(patience):
		q.t.Fatal("the coordinator is not ready")
	}
}

func (q *quorum) acquire(ctx context.Context, resource string) *client.Lease {
	q.t.Helper()
	lease, err := q.locks.TryAcquire(ctx, resource)
	if err != nil {
		q.t.Fatal(err)
	}
	return lease
}

// proxy starts one, with a watch that is connected, or without any.
func (q *quorum) proxy(t testing.TB, pg *pgserver.Server, watches bool, change func(*Config)) *running {
	t.Helper()
	c := DefaultConfig()
	c.Admin, c.DrainTimeout = "127.0.0.1:0", patience
	c.Coordinators = []string{"http://" + q.config.Members[0].HTTP}
	c.Postgres = []Postgres{{
		Listen: "127.0.0.1:0", Upstream: fmt.Sprintf("%s:%d", pg.Host(), pg.Port()),
		Database: "app", Store: pg.DSN("lychgate_proxy", "app"),
	}}
	if watches {
		c.Watch.Addresses = []string{q.grpc()}
	}
	if change != nil {
		change(&c)
	}
	r := start(t, c)
	r.awaitReadyz(t, http.StatusOK, "ok")
	if watches {
		r.awaitMetric(t, "lychgate_watch_connected 1")
	}
	return r
}

func (r *running) awaitMetric(t testing.TB, line string) {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		_, body := r.admin(t, "/metrics")
		if strings.Contains(body, line+"\n") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("no %s\n%s", line, r.log)
		}
	}
}

// busy is a session in an open transaction that has written.
func (r *running) busy(t testing.TB, raw, text string) *pgx.Conn {
	t.Helper()
	conn, err := r.connect(t, raw)
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{"begin", "insert into note values ('" + text + "')"} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	return conn
}

// awaitEnd waits until the proxy has said its last word to the session, and wants it to be code.
func awaitEnd(t testing.TB, what string, conn *pgx.Conn, code string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	_, err := conn.WaitForNotification(ctx) // nothing is sent: what comes, comes by itself
	wantCode(t, what, err, code)
	if !conn.IsClosed() {
		t.Errorf("%s: the stream goes on", what)
	}
}

func wantNotes(t testing.TB, pg *pgserver.Server, want string) {
	t.Helper()
	var got string
	conn := pgtest.Connect(t, pg.DSN("postgres", "app"))
	if err := conn.QueryRow(t.Context(), "select coalesce(string_agg(text, ' ' order by text), '') from note").Scan(&got); err != nil || got != want {
		t.Errorf("written: %q, %v; want %q", got, err, want)
	}
}

// A break fences at once, before anybody else comes: at the proxy that watches and, by the floor, at one that does not.
func TestBreakFencesAtOnce(t *testing.T) {
	q, pg := newQuorum(t), appDatabase(t)
	watching, blind := q.proxy(t, pg, true, nil), q.proxy(t, pg, false, nil)
	raw := q.acquire(t.Context(), "ledger").Ticket()
	one, two := watching.busy(t, raw, "one"), blind.busy(t, raw, "two")
	if _, err := q.locks.Break(t.Context(), "ledger"); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, "where it is watched", one, "LG001")
	awaitEnd(t, "where it is not", two, "LG001")
	for name, r := range map[string]*running{"watching": watching, "blind": blind} {
		_, err := r.connect(t, raw)
		wantCode(t, "comes again, "+name, err, "LG001")
	}
	wantNotes(t, pg, "")
	watching.awaitMetric(t, `lychgate_eager_takeovers_total{adapter="postgres"} 1`)
	blind.awaitMetric(t, `lychgate_eager_takeovers_total{adapter="postgres"} 0`)

	// Without a binding anywhere, the record in the store is enough.
	raw = q.acquire(t.Context(), "ledger").Ticket()
	conn, err := blind.connect(t, raw)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close(t.Context())
	if _, err := q.locks.Break(t.Context(), "ledger"); err != nil {
		t.Fatal(err)
	}
	watching.awaitMetric(t, `lychgate_eager_takeovers_total{adapter="postgres"} 2`)
	_, err = blind.connect(t, raw)
	wantCode(t, "comes again after the second break", err, "LG001")
}

// The holder is paused, its lease runs out or is released, and another is granted it, who does not come: the old session
// is ended all the same. A lost coordinator changes nothing but that.
func TestGrantFencesTheOldHolder(t *testing.T) {
	q, pg := newQuorum(t), appDatabase(t)
	r := q.proxy(t, pg, true, nil)
	first := q.acquire(t.Context(), "ledger")
	old := r.busy(t, first.Ticket(), "old")
	if err := first.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := q.acquire(t.Context(), "ledger")
	awaitEnd(t, "overtaken", old, "LG001")
	current := r.busy(t, second.Ticket(), "current")

	q.stop()
	r.awaitMetric(t, "lychgate_watch_connected 0")
	r.awaitReadyz(t, http.StatusOK, "is not watched")
	if _, err := current.Exec(t.Context(), "commit"); err != nil {
		t.Errorf("without the coordinator: %v", err)
	}
	if _, err := r.connect(t, second.Ticket()); err != nil {
		t.Errorf("without the coordinator: %v", err)
	}
	q.start()
	r.awaitMetric(t, "lychgate_watch_connected 1")
	current = r.busy(t, second.Ticket(), "late")
	if _, err := q.locks.Break(t.Context(), "ledger"); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, "after the coordinator came back", current, "LG001")
	wantNotes(t, pg, "current")
}

func TestOnLeaseEndCut(t *testing.T) {
	q, pg := newQuorum(t), appDatabase(t)
	cut := q.proxy(t, pg, true, func(c *Config) { c.Postgres[0].OnLeaseEnd = "cut" })
	keep := q.proxy(t, pg, true, nil)
	lease := q.acquire(t.Context(), "ledger")
	raw := lease.Ticket() // which it forgets
	one, two := cut.busy(t, raw, "one"), keep.busy(t, raw, "two")
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	awaitEnd(t, "cut", one, "LG004")
	_, err := cut.connect(t, raw)
	wantCode(t, "comes again", err, "LG004")
	cut.awaitMetric(t, `lychgate_lease_end_cuts_total{adapter="postgres"} 1`)
	if _, err := two.Exec(t.Context(), "commit"); err != nil {
		t.Errorf("kept: %v", err)
	}
	wantNotes(t, pg, "two")
}

// A coordinator of another cluster is not listened to: its tokens mean something else.
func TestWatchOfAnotherClusterIsRefused(t *testing.T) {
	q, other, pg := newQuorum(t), newQuorum(t), appDatabase(t)
	r := q.proxy(t, pg, false, func(c *Config) { c.Watch.Addresses = []string{other.grpc()} })
	lease := q.acquire(t.Context(), "ledger")
	conn := r.busy(t, lease.Ticket(), "kept")
	for range 10 { // tokens that are larger than the lease's
		if _, err := other.locks.Break(t.Context(), "ledger"); err != nil {
			t.Fatal(err)
		}
	}
	r.awaitReadyz(t, http.StatusOK, "it is of cluster")
	if _, err := conn.Exec(t.Context(), "commit"); err != nil {
		t.Error(err)
	}
}
