package proxybench

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/lychgate/lychgate/adapters/postgres"
)

// judge is what the run remembers to be judged by.
type judge struct {
	floors  map[string]uint64 // by resource, the largest seen
	history int               // rows that were acknowledged in pgbench_history
}

// judgeFloors holds the floors against those seen before: none may be lower or gone.
func (r *run) judgeFloors(ctx context.Context) error {
	rows, err := r.admin.Query(ctx, "SELECT resource, token FROM fence.floor")
	if err != nil {
		return err
	}
	now := map[string]uint64{}
	var resource string
	var token uint64
	_, err = pgx.ForEachRow(rows, []any{&resource, &token}, func() error {
		now[resource] = token
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the floors: %w", err)
	}
	return r.judge.see(now)
}

// see remembers the floors of a moment, unless one of those before was larger.
func (j *judge) see(now map[string]uint64) error {
	for resource, floor := range j.floors {
		if now[resource] < floor {
			return fmt.Errorf("%w: the floor of %s went from %d down to %d", ErrViolated, resource, floor, now[resource])
		}
	}
	j.floors = now
	return nil
}

// judgeEnd takes the resource over from the load's holder, whose ticket must not write any more then, and counts what the
// load was told to be written.
func (r *run) judgeEnd(ctx context.Context) error {
	stale := r.lease.Ticket()
	if err := r.lease.Release(ctx); err != nil {
		return fmt.Errorf("release the lease: %w", err)
	}
	successor, err := r.locks.TryAcquire(ctx, benchResource)
	if err != nil {
		return fmt.Errorf("take the lease again: %w", err)
	}
	if err := r.write(ctx, successor.Ticket(), "UPDATE pgbench_branches SET bbalance = 1"); err != nil {
		return fmt.Errorf("the next holder's write: %w", err)
	}
	if err := r.judgeStale(r.write(ctx, stale, "UPDATE pgbench_branches SET bbalance = 2")); err != nil {
		return err
	}
	n, err := r.count(ctx, "pgbench_history")
	if err == nil && n != r.judge.history {
		err = fmt.Errorf("%w: pgbench was told of %d transactions that wrote, and the database has %d", ErrViolated, r.judge.history, n)
	}
	return errors.Join(err, r.judgeFloors(ctx))
}

// judgeStale wants a stale holder's write to have been refused as such.
func (r *run) judgeStale(err error) error {
	refusal, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil:
		return fmt.Errorf("%w: a stale holder has written", ErrViolated)
	case !ok || refusal.Code != postgres.CodeStaleToken:
		return fmt.Errorf("a stale holder's write: got %w, want %s", err, postgres.CodeStaleToken)
	}
	return nil
}

// write connects through the proxy with a ticket and writes.
func (r *run) write(ctx context.Context, ticket, statement string) error {
	conn, err := pgx.Connect(ctx, r.targets[ours].dsn(ticket))
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, statement)
	return errors.Join(err, conn.Close(ctx))
}
