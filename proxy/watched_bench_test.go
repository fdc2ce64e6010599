package proxy

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// BenchmarkEagerTakeover measures how soon a holder who sits in an open transaction is cut once its lock was broken, from
// the break's answer to the FATAL at the client. Run it with -benchtime 100x for the percentiles.
func BenchmarkEagerTakeover(b *testing.B) {
	q, pg := newQuorum(b), appDatabase(b)
	r := q.proxy(b, pg, true, nil)
	ctx := context.Background()
	var rounds []time.Duration
	for b.Loop() {
		lease := q.acquire(ctx, "ledger")
		old := r.busy(b, lease.Ticket(), "never")
		ended := make(chan time.Time)
		go func(conn *pgx.Conn) {
			_, err := conn.WaitForNotification(ctx) // nothing is sent: what comes, comes by itself
			wantCode(b, "broken", err, "LG001")
			ended <- time.Now()
		}(old)
		if _, err := q.locks.Break(ctx, "ledger"); err != nil {
			b.Fatal(err)
		}
		begin := time.Now()
		rounds = append(rounds, max(0, (<-ended).Sub(begin)))
	}
	slices.Sort(rounds)
	b.ReportMetric(float64(rounds[(len(rounds)-1)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(rounds[(len(rounds)*99-1)/100].Microseconds())/1000, "p99-ms")
}
