package main

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

var overPgx = over{name: "pgx"}

// stdlibCases are those of pgx's own additions to database/sql.
func stdlibCases() {
	test("ticket_by_before_connect", func(ctx context.Context) {
		db := stdlib.OpenDB(*pgxConfig(""), stdlib.OptionBeforeConnect(func(_ context.Context, c *pgx.ConnConfig) error {
			c.RuntimeParams["fence.ticket"] = holder()
			return nil
		}))
		defer db.Close()
		must(write(ctx, db, 1))
		must(pgxFence(ctx))
		must(write(ctx, db, 1)) // by a new connection, with the new ticket
	})
	test("ticket_by_reset_session", func(ctx context.Context) {
		db := stdlib.OpenDB(*pgxConfig(""),
			stdlib.OptionAfterConnect(func(ctx context.Context, c *pgx.Conn) error {
				return pgxExec(ctx, c, "set fence.ticket = '"+holder()+"'")
			}),
			stdlib.OptionResetSession(func(ctx context.Context, c *pgx.Conn) error {
				if pgxExec(ctx, c, "set fence.ticket = '"+holder()+"'") != nil {
					return sql.ErrConnDone
				}
				return nil
			}))
		defer db.Close()
		db.SetMaxOpenConns(1)
		for range 3 {
			must(write(ctx, db, 1))
		}
	})
	for _, mode := range []string{"cache_describe", "describe_exec", "exec", "simple_protocol"} {
		test("queries_in_mode_"+mode, func(ctx context.Context) {
			db := overPgx.single(holder(), "default_query_exec_mode="+mode)
			for n := range 20 {
				must(write(ctx, db, n))
				code(exec(ctx, db, "select 1/$1::int", 0), "22012")
			}
			must(overPgx.fence(ctx))
			code(write(ctx, db, 1), "LG001")
		})
	}
	test("the_connection_below", func(ctx context.Context) {
		conn := got(overPgx.open(holder()).Conn(ctx))
		defer conn.Close()
		must(conn.Raw(func(raw any) error {
			_, err := raw.(*stdlib.Conn).Conn().CopyFrom(ctx, pgx.Identifier{"guarded"}, []string{"resource", "n"},
				pgx.CopyFromRows([][]any{{resource, 5}}))
			return err
		}))
	})
}
