package main

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// pgxModeCases are those of every way to execute a query.
func pgxModeCases() {
	for mode, want := range map[string]string{ // of a batch that brings its ticket along
		"cache_statement": "LG002", "cache_describe": "LG002", "describe_exec": "LG002", // its statements are prepared before the ticket is shown
		"exec":            "",
		"simple_protocol": "LG006", // it is one text of several statements
	} {
		open := func(ctx context.Context, ticket string) *pgx.Conn {
			return got(pgxOpen(ctx, ticket, "default_query_exec_mode="+mode))
		}
		test("queries_in_mode_"+mode, func(ctx context.Context) {
			conn := open(ctx, holder())
			for n := range 50 { // again and again: a mode may keep what it learns
				equal(pgxOne[int](ctx, conn, "select $1::int + 1", n), n+1)
				code(pgxExec(ctx, conn, "select 1/$1::int", 0), "22012")
			}
			must(pgxWrite(ctx, conn, 4))
		})
		test("ticket_by_set_in_mode_"+mode, func(ctx context.Context) {
			conn := open(ctx, "")
			code(pgxWrite(ctx, conn, 1), "LG002")
			for range 3 {
				must(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
					must(pgxExec(ctx, tx, "set local fence.ticket = '"+holder()+"'"))
					return pgxWrite(ctx, tx, 1)
				}))
				code(pgxWrite(ctx, conn, 1), "LG002")
			}
			must(pgxExec(ctx, conn, "set fence.ticket = '"+holder()+"'"))
			must(pgxWrite(ctx, conn, 1))
			must(pgxExec(ctx, conn, "reset fence.ticket"))
			code(pgxWrite(ctx, conn, 1), "LG002")
		})
		test("fenced_in_mode_"+mode, func(ctx context.Context) {
			conn, watch := open(ctx, holder()), pgxConn(ctx)
			tx := got(conn.Begin(ctx))
			must(pgxWrite(ctx, tx, 5000))
			runs := background(func() error { return pgxExec(ctx, tx, "select pg_sleep($1)", 20) })
			pgxSleeps(ctx, watch, conn)
			must(pgxFence(ctx))
			code(runs(), "LG001")
			equal(pgxOne[int](ctx, pgxConn(ctx), "select count(*) from guarded where n = 5000"), 0)
		})
		pgxBatchModeCases(mode, want, open)
		test("changed_result_type_in_mode_"+mode, func(ctx context.Context) {
			conn, other := open(ctx, holder()), pgxConn(ctx)
			must(pgxExec(ctx, other, "create table changing (a int)"))
			defer pgxExec(context.Background(), other, "drop table changing") //nolint:errcheck // the case is over
			ask := func() error { return pgxExec(ctx, conn, "select * from changing") }
			must(ask())
			must(pgxExec(ctx, other, "alter table changing add b int"))
			if err := ask(); err != nil { // a plan may be out of date, once
				code(err, "0A000")
			}
			must(ask())
		})
	}
}

// pgxBatchModeCases are those of batches; want is the state of one that brings its ticket along.
func pgxBatchModeCases(mode, want string, open func(ctx context.Context, ticket string) *pgx.Conn) {
	test("batch_in_mode_"+mode, func(ctx context.Context) {
		conn := open(ctx, holder())
		for range 3 {
			batch := &pgx.Batch{}
			for n := range 20 {
				batch.Queue("insert into guarded values ($1, $2)", resource, n)
			}
			must(conn.SendBatch(ctx, batch).Close())
			batch.Queue("insert into guarded values ($1, $2)", "another", 1)
			code(conn.SendBatch(ctx, batch).Close(), "LG002")
		}
	})
	test("batch_with_a_ticket_in_mode_"+mode, func(ctx context.Context) {
		conn := open(ctx, "")
		batch := &pgx.Batch{}
		batch.Queue("begin")
		batch.Queue("set local fence.ticket = '" + holder() + "'")
		batch.Queue("insert into guarded values ($1, $2)", resource, 1)
		batch.Queue("commit")
		err := conn.SendBatch(ctx, batch).Close()
		equal(sqlState(err), want)
		if err != nil {
			must(pgxExec(ctx, conn, "rollback"))
		}
		code(pgxWrite(ctx, conn, 1), "LG002")
	})
}
