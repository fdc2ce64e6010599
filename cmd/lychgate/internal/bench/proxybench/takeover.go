package proxybench

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/figures"
	"github.com/lychgate/lychgate/coordinator/client"
)

// takeoverResource is what is taken over again and again.
const takeoverResource = "takeover"

// holder is who holds it, with a session that has written in an open transaction.
type holder struct {
	lease *client.Lease
	conn  *pgx.Conn
}

// takeover measures from a successor's connect, with a ticket in its hand, to its first accepted write, while the holder
// before it sits in an open transaction that has written.
func (r *run) takeover(ctx context.Context) error {
	var took []time.Duration
	before, _, err := r.succeed(ctx)
	if err != nil {
		return err
	}
	for range r.size.takeovers {
		if err := before.writeMore(ctx); err != nil {
			return err
		}
		if err := before.lease.Release(ctx); err != nil { // it goes on all the same: a zombie
			return err
		}
		next, d, err := r.succeed(ctx)
		if err != nil {
			return err
		}
		took = append(took, d)
		if err := before.resume(ctx); err != nil {
			return err
		}
		before = next
	}
	_ = before.conn.Close(ctx) // it has written what it had to
	if err := r.judgeEntries(ctx); err != nil {
		return err
	}
	p50, p99 := figures.MS(figures.Quantile(took, 0.5)), figures.MS(figures.Quantile(took, 0.99))
	r.progress("  %d takeovers: p50 %.2f ms, p99 %.2f ms", len(took), p50, p99)
	r.report.Add("takeover_p50_ms", "ms", p50, nil)
	r.report.Add("takeover_p99_ms", "ms", p99, nil, figures.AtMost(20))
	return before.lease.Release(ctx)
}

// succeed takes the lease, connects and writes; only the last two are timed.
func (r *run) succeed(ctx context.Context) (holder, time.Duration, error) {
	lease, err := r.locks.TryAcquire(ctx, takeoverResource)
	if err != nil {
		return holder{}, 0, fmt.Errorf("take the lease: %w", err)
	}
	config, err := pgx.ParseConfig(r.targets[ours].dsn(lease.Ticket()))
	if err != nil {
		return holder{}, 0, err
	}
	begin := time.Now()
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return holder{}, 0, fmt.Errorf("connect with token %d: %w", lease.Token(), err)
	}
	if _, err := conn.Exec(ctx, insertEntry(int64(lease.Token()))); err != nil {
		return holder{}, 0, fmt.Errorf("write with token %d: %w", lease.Token(), err)
	}
	return holder{lease: lease, conn: conn}, time.Since(begin), nil
}

// insertEntry is a statement without parameters, so that one trip to the server is enough.
func insertEntry(n int64) string { return fmt.Sprintf("INSERT INTO entry VALUES (%d)", n) }

// writeMore writes in a transaction that stays open. What it writes is negative, and must never be seen.
func (h holder) writeMore(ctx context.Context) error {
	for _, sql := range []string{"BEGIN", insertEntry(-int64(h.lease.Token()))} {
		if _, err := h.conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("a holder's open transaction: %w", err)
		}
	}
	return nil
}

// resume is the zombie that wakes up: its commit must not be accepted.
func (h holder) resume(ctx context.Context) error {
	_, err := h.conn.Exec(ctx, "COMMIT")
	_ = h.conn.Close(ctx) // it was ended
	if err == nil {
		return fmt.Errorf("%w: the holder of token %d has committed after its successor's first write", ErrViolated, h.lease.Token())
	}
	return nil
}

// judgeEntries looks at what all holders have left: an entry for each, and nothing of their last transactions.
func (r *run) judgeEntries(ctx context.Context) error {
	var stale, written int
	err := r.admin.QueryRow(ctx, "SELECT count(*) FILTER (WHERE n < 0), count(*) FILTER (WHERE n > 0) FROM entry").Scan(&stale, &written)
	if err != nil {
		return err
	}
	if want := r.size.takeovers + 1; stale > 0 || written != want {
		return fmt.Errorf("%w: %d writes of stale holders, and %d of the %d acknowledged ones", ErrViolated, stale, written, want)
	}
	return nil
}
