package proxybench

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/figures"
)

// connecting is how many clients connect at a time.
const connecting = 8

// statement is what every connection is used for: PgBouncer gives a client a connection of the server's only then.
const statement = "SELECT 1;"

// connect measures what a connection costs on which there is one small statement.
func (r *run) connect(ctx context.Context) error {
	r.remark("connect: PgBouncer gives out again the server's connections that it has; else the server starts a process for each")
	if err := r.connectRate(ctx); err != nil {
		return err
	}
	return r.connectTime(ctx)
}

// connectRate has clients connect, ask and disconnect as fast as they can.
func (r *run) connectRate(ctx context.Context) error {
	script := r.path("connect.sql")
	if err := os.WriteFile(script, []byte(statement+"\n"), 0o644); err != nil {
		return err
	}
	j := job{clients: connecting, time: r.size.time, args: []string{"-C", "-f", script}}
	var got [targetCount]series
	for round := range r.size.rounds {
		for _, i := range turns(round) {
			o, err := r.pgbench(ctx, r.targets[i], j)
			if err != nil {
				return err
			}
			got[i].add(o)
		}
		r.progress("  connect and disconnect, round %d of %d: %s", round+1, r.size.rounds, lastOf(got))
	}
	r.compare("connects_per_s", "1/s", got, perSecond)
	r.compare("proxy_cpu_us_per_connect", "us", got, cpuMicros)
	return nil
}

// connectTime times connections one by one, in turn: direct, PgBouncer, ours with a ticket and without.
func (r *run) connectTime(ctx context.Context) error {
	ticket := r.lease.Ticket()
	without := targetCount // ours, in the list
	var took [targetCount + 1][]time.Duration
	for range r.size.binds {
		for i := range took {
			t, shown := r.lax, ""
			if i != without {
				t = r.targets[i]
			}
			if i == ours {
				shown = ticket
			}
			d, err := connectOnce(ctx, t, shown)
			if err != nil {
				return fmt.Errorf("%s: %w", t.name, err)
			}
			took[i] = append(took[i], d)
		}
	}
	p50 := func(i int) float64 { return figures.MS(figures.Quantile(took[i], 0.5)) }
	r.progress("  %d connections one by one: p50 %.2f ms with a ticket and %.2f ms without, PgBouncer %.2f ms, direct %.2f ms",
		r.size.binds, p50(ours), p50(without), p50(pgBouncer), p50(direct))
	r.report.AddResult(figures.Result{Name: "connect_p50_ms", Unit: "ms", Value: p50(ours), Peer: new(p50(pgBouncer)), Direct: new(p50(direct))})
	r.report.Add("bind_ms", "ms", p50(ours)-p50(without), nil, figures.AtMost(2))
	return nil
}

// connectOnce is the time from the dialling to the first statement's answer.
func connectOnce(ctx context.Context, t target, ticket string) (time.Duration, error) {
	config, err := pgconn.ParseConfig(t.dsn(ticket))
	if err != nil {
		return 0, err
	}
	begin := time.Now()
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return 0, err
	}
	if _, err := conn.Exec(ctx, statement).ReadAll(); err != nil {
		return 0, err
	}
	return time.Since(begin), conn.Close(ctx)
}
