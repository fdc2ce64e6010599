package main

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/tracelog"
)

func pgxPool(ctx context.Context, ticket string, change func(*pgxpool.Config)) *pgxpool.Pool {
	config := got(pgxpool.ParseConfig("pool_max_conns=4"))
	config.ConnConfig = pgxConfig(ticket)
	change(config)
	pool := got(pgxpool.NewWithConfig(ctx, config))
	opened = append(opened, pool.Close)
	return pool
}

func pgxPoolCases() {
	test("pool_with_tickets_by_before_connect", func(ctx context.Context) {
		pool := pgxPool(ctx, "", func(c *pgxpool.Config) {
			c.BeforeConnect = func(_ context.Context, config *pgx.ConnConfig) error {
				config.RuntimeParams["fence.ticket"] = holder()
				return nil
			}
		})
		must(pgxWrite(ctx, pool, 1))
		must(pgxFence(ctx))
		code(pgxWrite(ctx, pool, 1), "LG001") // it was idle
		must(pgxWrite(ctx, pool, 1))          // the next connection has the new ticket
	})
	test("pool_that_pings_connects_again", func(ctx context.Context) {
		pool := pgxPool(ctx, "", func(c *pgxpool.Config) {
			c.BeforeConnect = func(_ context.Context, config *pgx.ConnConfig) error {
				config.RuntimeParams["fence.ticket"] = holder()
				return nil
			}
			c.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return true }
		})
		must(pgxWrite(ctx, pool, 1))
		must(pgxFence(ctx))
		must(pgxWrite(ctx, pool, 1))
	})
	test("pool_of_a_stale_holder", func(ctx context.Context) {
		pool := pgxPool(ctx, holder(), func(*pgxpool.Config) {})
		must(pgxWrite(ctx, pool, 1))
		must(pgxFence(ctx))
		for range 5 {
			code(pgxWrite(ctx, pool, 1), "LG001")
		}
	})
	test("pool_with_tickets_by_before_acquire", func(ctx context.Context) {
		pool := pgxPool(ctx, "", func(c *pgxpool.Config) {
			c.BeforeAcquire = func(ctx context.Context, conn *pgx.Conn) bool {
				return pgxExec(ctx, conn, "set fence.ticket = '"+holder()+"'") == nil
			}
			c.AfterRelease = func(conn *pgx.Conn) bool { return pgxExec(context.Background(), conn, "reset fence.ticket") == nil }
		})
		for range 3 {
			must(pgxWrite(ctx, pool, 1))
			must(pgxFence(ctx))
		}
		must(pgxWrite(ctx, pool, 1))
	})
	test("pool_with_tickets_by_prepare_conn", func(ctx context.Context) {
		var stale atomic.Bool
		first := holder()
		pool := pgxPool(ctx, "", func(c *pgxpool.Config) {
			c.PrepareConn = func(ctx context.Context, conn *pgx.Conn) (bool, error) {
				ticket := holder()
				if stale.Load() {
					ticket = first
				}
				err := pgxExec(ctx, conn, "set fence.ticket = '"+ticket+"'")
				return err == nil, err
			}
		})
		must(pgxWrite(ctx, pool, 1))
		must(pgxFence(ctx))
		stale.Store(true)
		for range 6 { // those that are idle are ended, new ones are refused
			code(pgxWrite(ctx, pool, 1), "LG001")
		}
		stale.Store(false)
		must(pgxWrite(ctx, pool, 1))
	})
}

func pgxPoolUseCases() {
	test("pool_with_a_reset", func(ctx context.Context) {
		pool := pgxPool(ctx, holder(), func(c *pgxpool.Config) {
			c.AfterRelease = func(conn *pgx.Conn) bool {
				_, err := conn.PgConn().Exec(context.Background(), "discard all").ReadAll()
				return err == nil && conn.DeallocateAll(context.Background()) == nil
			}
		})
		for range 5 {
			must(pgxWrite(ctx, pool, 1))
		}
		equal(pool.Stat().TotalConns() >= 1, true)
	})
	test("pool_of_borrowers_with_their_own_tickets", func(ctx context.Context) {
		pool := pgxPool(ctx, "", func(c *pgxpool.Config) { c.MaxConns = 1 })
		must(pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			must(pgxExec(ctx, tx, "set local fence.ticket = '"+holder()+"'"))
			return pgxWrite(ctx, tx, 1)
		}))
		code(pgxWrite(ctx, pool, 1), "LG002") // the next borrower has none
	})
	test("pool_under_load_is_fenced", func(ctx context.Context) {
		pool := pgxPool(ctx, holder(), func(*pgxpool.Config) {})
		ends := make(chan error, 4)
		for range 4 {
			go func() {
				for {
					if err := pgxWrite(ctx, pool, 6000+at); err != nil {
						ends <- err
						return
					}
				}
			}()
		}
		must(pgxFence(ctx))
		for range 4 {
			code(<-ends, "LG001", "LG008")
		}
	})
	test("tracer_sees_the_reason", func(ctx context.Context) {
		var seen atomic.Value
		config := pgxConfig(holder())
		config.Tracer = &tracelog.TraceLog{LogLevel: tracelog.LogLevelError, Logger: tracelog.LoggerFunc(
			func(_ context.Context, _ tracelog.LogLevel, msg string, data map[string]any) {
				err, _ := data["err"].(error)
				seen.Store(fmt.Sprint(msg, " ", sqlState(err)))
			})}
		conn := got(pgx.ConnectConfig(ctx, config))
		must(pgxFence(ctx))
		code(pgxExec(ctx, conn, "select 1"), "LG001")
		equal(seen.Load(), "Query LG001")
	})
}
