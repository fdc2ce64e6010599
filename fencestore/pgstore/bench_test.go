package pgstore_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/lychgate/lychgate/fencestore"
	"github.com/lychgate/lychgate/sql/pgserver"
	"github.com/lychgate/lychgate/sql/pgserver/pgtest"
)

// The benchmarks run on a server that waits for its disk, as a real one does.
func benchmark(b *testing.B) *database {
	b.Helper()
	return newDatabaseOn(b, pgtest.Start(b, pgserver.Config{Settings: map[string]string{"fsync": "on"}}))
}

// BenchmarkBind is the first contact of a session with a resource: the floor goes up, nobody is ended.
func BenchmarkBind(b *testing.B) {
	d := benchmark(b)
	store, c := d.store(b, nil), d.client(b)
	token := fencestore.Token(0)
	for b.Loop() {
		token++
		mustBind(b, store, "a", token, c)
	}
}

// BenchmarkJoin is a session more under the floor.
func BenchmarkJoin(b *testing.B) {
	d := benchmark(b)
	store, c := d.store(b, nil), d.client(b)
	mustBind(b, store, "a", 42, c)
	for b.Loop() {
		mustBind(b, store, "a", 42, c)
	}
}

// BenchmarkJoinParallel is many sessions under floors of their own.
func BenchmarkJoinParallel(b *testing.B) {
	d := benchmark(b)
	store, c := d.store(b, nil), d.client(b)
	for i := range 64 {
		mustBind(b, store, fmt.Sprintf("a/%d", i), 42, c)
	}
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for i := 0; pb.Next(); i++ {
			if _, err := store.Bind(b.Context(), claim(fmt.Sprintf("a/%d", i%64), 42), c.session); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkTakeover is a raise against a holder in an open transaction, the join of the successor, and its
// first write. It reports percentiles beside the mean.
func BenchmarkTakeover(b *testing.B) {
	d := benchmark(b)
	store, successor := d.store(b, nil), d.client(b)
	var took []time.Duration
	token := fencestore.Token(0)
	for b.Loop() {
		b.StopTimer()
		old := d.client(b)
		token++
		mustBind(b, store, "a", token, old)
		pgtest.Exec(b, old.conn, "begin; insert into entry values ('a', 1)")
		token++
		b.StartTimer()
		begun := time.Now()
		if got, err := store.Raise(b.Context(), claim("a", token)); err != nil || got.Ended != 1 {
			b.Fatalf("raise: got %+v, %v, want one ended", got, err)
		}
		mustBind(b, store, "a", token, successor)
		pgtest.Exec(b, successor.conn, "insert into entry values ('a', 2)")
		took = append(took, time.Since(begun))
		b.StopTimer()
		if _, err := store.Unbind(b.Context(), claim("a", token), successor.session, true); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
	slices.Sort(took)
	for _, p := range []int{50, 99} {
		b.ReportMetric(float64(took[len(took)*p/100].Microseconds())/1000, fmt.Sprintf("p%d-ms", p))
	}
}
