package proxybench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/figures"
	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/stage"
)

// idle measures what an idle connection, with the server's behind it, takes of a process's memory: what a fresh one of ours
// and of the peer's has with many, less what it had before, after some that came and went.
func (r *run) idle(ctx context.Context) error {
	fenced, _, err := r.startProxy(ctx)
	if err != nil {
		return err
	}
	mine, err := r.idleOf(ctx, fenced, r.lease.Ticket(), r.size.rest)
	if err != nil {
		return fmt.Errorf("%s: %w", fenced.name, err)
	}
	peer, err := r.startPgBouncer(ctx)
	if err != nil {
		return err
	}
	theirs, err := r.idleOf(ctx, peer, "", 0)
	if err != nil {
		return fmt.Errorf("%s: %w", peer.name, err)
	}
	r.report.Add("idle_connection_kb", "kB", mine, new(theirs), figures.AtMost(40))
	return nil
}

// idleOf is what a connection costs a target's process, in kB. It ends the process.
func (r *run) idleOf(ctx context.Context, t target, ticket string, rest time.Duration) (float64, error) {
	defer t.process.Kill()
	some, err := connectMany(ctx, t, ticket, connecting)
	if err != nil {
		return 0, err
	}
	closeAll(ctx, some)
	before, err := r.settle(ctx, t, rest)
	if err != nil {
		return 0, err
	}
	many, err := connectMany(ctx, t, ticket, r.size.idle)
	if err != nil {
		return 0, err
	}
	after, err := r.settle(ctx, t, rest)
	if err != nil {
		return 0, err
	}
	// Each has a session of the server behind it.
	if n, err := r.count(ctx, "pg_stat_activity WHERE backend_type = 'client backend' AND usename = '"+role+"'"); err != nil || n < r.size.idle {
		return 0, errors.Join(err, fmt.Errorf("%d connections have %d sessions of the server", r.size.idle, n))
	}
	r.progress("  %s: %.1f MB, empty %.1f MB", t.name, after/1e6, before/1e6)
	t.process.Kill()
	closeAll(ctx, many)
	return (after - before) / float64(r.size.idle) / 1000, r.awaitQuiet(ctx)
}

// connectMany opens connections and uses them once, some at a time.
func connectMany(ctx context.Context, t target, ticket string, n int) ([]*pgx.Conn, error) {
	conns := make([]*pgx.Conn, n)
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(connecting)
	for i := range conns {
		group.Go(func() (err error) {
			if conns[i], err = pgx.Connect(ctx, t.dsn(ticket)); err == nil {
				_, err = conns[i].Exec(ctx, statement)
			}
			return err
		})
	}
	return conns, group.Wait()
}

func closeAll(ctx context.Context, conns []*pgx.Conn) {
	for _, c := range conns {
		_ = c.Close(ctx) // nothing was written on it
	}
}

// settle waits until a process's memory has stopped to change, and tells it. The Go runtime collects the garbage of an idle
// program every two minutes; at the full size that is waited for, unless it is not a program in Go.
func (r *run) settle(ctx context.Context, t target, rest time.Duration) (float64, error) {
	const most = 60
	if err := stage.Pause(ctx, rest); err != nil {
		return 0, err
	}
	var past float64
	for still, n := 0, 0; still < r.size.calm && n < most; n++ {
		if err := stage.Pause(ctx, r.size.step); err != nil {
			return 0, err
		}
		now, err := stage.ResidentOf(t.process.PID())
		if err != nil {
			return 0, err
		}
		if still++; now.All > past*1.005 || now.All < past*0.995 {
			still, past = 0, now.All
		}
	}
	return past, nil
}

// awaitQuiet waits until the server has ended the sessions of a process that is gone.
func (r *run) awaitQuiet(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return stage.Await(ctx, "end of the sessions", func() (bool, error, error) {
		n, err := r.count(ctx, "pg_stat_activity WHERE backend_type = 'client backend'")
		return err == nil && n < spareConnections/2, fmt.Errorf("%d are left", n), err
	})
}
