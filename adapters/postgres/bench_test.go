package postgres_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// BenchmarkTakeover measures the time from a successor's connect to its first accepted write, while the holder
// before it sits in an open transaction that has written. Run it with -benchtime 100x for the percentiles.
func BenchmarkTakeover(b *testing.B) {
	w := newWorld(b)
	p := w.proxy(nil)
	ctx := context.Background()
	token := lease.Token(1)
	connect := func() *pgx.Conn {
		conn, err := pgx.Connect(ctx, p.dsn("app", with(w.ticket("ledger", token))))
		if err != nil {
			b.Fatal(err)
		}
		return conn
	}
	holder := connect()
	var rounds []time.Duration
	for b.Loop() {
		exec(b, holder, "begin")
		exec(b, holder, fmt.Sprintf("insert into entry values (%d, 'never')", -int64(token)))
		token++
		begin := time.Now()
		successor := connect()
		exec(b, successor, fmt.Sprintf("insert into entry values (%d, 'new')", token))
		rounds = append(rounds, time.Since(begin))
		_ = holder.Close(ctx) // it was ended
		holder = successor
	}
	_ = holder.Close(ctx)
	slices.Sort(rounds)
	b.ReportMetric(float64(rounds[(len(rounds)-1)/2].Microseconds())/1000, "p50-ms")
	b.ReportMetric(float64(rounds[(len(rounds)*99-1)/100].Microseconds())/1000, "p99-ms")
	if got := w.count("n < 0"); got != 0 {
		b.Errorf("%d rows of stale holders", got)
	}
}

// BenchmarkPgbench compares pgbench through the proxy with pgbench at the server itself. With -short each run of pgbench
// takes a second, which shows that it works and measures nothing.
func BenchmarkPgbench(b *testing.B) {
	seconds := "5"
	if testing.Short() {
		seconds = "1"
	}
	w := newWorld(b)
	w.benchTables()
	p := w.proxy(nil)
	host, port := hostPort(b, p.addr)
	for _, mode := range []string{"simple", "extended", "prepared"} {
		for _, clients := range []string{"1", "8"} {
			args := []string{"-M", mode, "-c", clients, "-T", seconds, "-S"}
			b.Run(mode+"/"+clients, func(b *testing.B) {
				for b.Loop() {
					b.ReportMetric(pgbench(b, "127.0.0.1", server.Port(), w.name, "", args...), "direct-tps")
					b.ReportMetric(pgbench(b, host, port, w.name, "-c fence.ticket="+w.ticket("bench", 1), args...), "proxy-tps")
				}
			})
		}
	}
}
