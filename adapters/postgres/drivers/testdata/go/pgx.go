package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// pgxConfig has the ticket as a startup parameter.
func pgxConfig(ticket string, more ...string) *pgx.ConnConfig {
	config := got(pgx.ParseConfig(strings.Join(more, " ")))
	if ticket != "" {
		config.RuntimeParams["fence.ticket"] = ticket
	}
	return config
}

func pgxOpen(ctx context.Context, ticket string, more ...string) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, pgxConfig(ticket, more...))
	if err == nil {
		opened = append(opened, func() { conn.Close(context.Background()) })
	}
	return conn, err
}

func pgxConn(ctx context.Context) *pgx.Conn { return got(pgxOpen(ctx, holder())) }

func pgxBare(ctx context.Context) *pgx.Conn { return got(pgxOpen(ctx, "")) }

func pgxFence(ctx context.Context) error {
	conn, err := pgx.ConnectConfig(ctx, pgxConfig(next()))
	if err == nil {
		err = conn.Close(ctx)
	}
	return err
}

type pgxQuerier interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
	QueryRow(context.Context, string, ...any) pgx.Row
}

func pgxOne[T any](ctx context.Context, q pgxQuerier, sql string, args ...any) T {
	var v T
	must(q.QueryRow(ctx, sql, args...).Scan(&v))
	return v
}

func pgxExec(ctx context.Context, q pgxQuerier, sql string, args ...any) error {
	_, err := q.Exec(ctx, sql, args...)
	return err
}

func pgxWrite(ctx context.Context, q pgxQuerier, n int) error {
	return pgxExec(ctx, q, "insert into guarded values ($1, $2)", resource, n)
}

// pgxSleeps waits until the connection's statement sleeps.
func pgxSleeps(ctx context.Context, watch, conn *pgx.Conn) {
	when(ctx, func(ctx context.Context) bool {
		return pgxOne[bool](ctx, watch, "select exists (select from pg_stat_activity where pid = $1 and wait_event = 'PgSleep')", conn.PgConn().PID())
	})
}

func pgxCases() {
	pgxTicketCases()
	pgxFencedCases()
	pgxFencedDataCases()
	pgxProtocolCases()
	pgxStatementCases()
	pgxTransactionCases()
	pgxCopyCases()
	pgxConnectionCases()
	pgxServerCases()
}

func pgxTicketCases() {
	test("ticket_by_runtime_parameter", func(ctx context.Context) { must(pgxWrite(ctx, pgxConn(ctx), 1)) })
	test("ticket_by_options", func(ctx context.Context) {
		must(pgxWrite(ctx, got(pgxOpen(ctx, "", "options='-c fence.ticket="+holder()+"'")), 1))
	})
	test("ticket_in_the_connection_string", func(ctx context.Context) {
		must(pgxWrite(ctx, got(pgxOpen(ctx, "", "fence.ticket="+holder())), 1))
	})
	test("no_ticket", func(ctx context.Context) {
		conn := pgxBare(ctx)
		code(pgxExec(ctx, conn, "select 1"), "LG002")
		code(pgxExec(ctx, conn, "select $1::int", 1), "LG002")
		equal(conn.IsClosed(), false)
	})
	test("malformed_ticket", func(ctx context.Context) {
		_, err := pgxOpen(ctx, "nonsense")
		code(err, "LG003")
	})
	test("set_ticket", func(ctx context.Context) {
		conn := pgxBare(ctx)
		must(pgxExec(ctx, conn, "set fence.ticket = '"+holder()+"'"))
		must(pgxWrite(ctx, conn, 1))
		equal(strings.Contains(pgxOne[string](ctx, conn, "show fence.ticket"), holder()), false)
		must(pgxExec(ctx, conn, "reset fence.ticket"))
		code(pgxWrite(ctx, conn, 1), "LG002")
	})
	test("set_local_ticket", func(ctx context.Context) {
		conn := pgxBare(ctx)
		must(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
			must(pgxExec(ctx, tx, "set local fence.ticket = '"+holder()+"'"))
			return pgxWrite(ctx, tx, 1)
		}))
		code(pgxWrite(ctx, conn, 1), "LG002")
	})
	test("discard_all_keeps_the_fence", func(ctx context.Context) {
		conn := pgxConn(ctx)
		must(pgxWrite(ctx, conn, 1)) // is prepared, and told to be forgotten
		must(conn.DeallocateAll(ctx))
		must(pgxExec(ctx, conn, "reset all"))
		_, err := conn.PgConn().Exec(ctx, "discard all").ReadAll()
		must(err)
		must(pgxWrite(ctx, conn, 1))
	})
	test("ticket_late_in_a_transaction", func(ctx context.Context) {
		tx := got(pgxBare(ctx).Begin(ctx))
		must(pgxExec(ctx, tx, "set fence.ticket = '"+holder()+"'"))
		must(pgxExec(ctx, tx, "select 1"))
		code(pgxExec(ctx, tx, "set fence.ticket = '"+holder()+"'"), "LG006")
		must(tx.Rollback(ctx))
	})
	test("ticket_by_set_config", func(ctx context.Context) {
		code(pgxExec(ctx, pgxConn(ctx), "select set_config('fence.ticket', '"+holder()+"', false)"), "LG006")
	})
	test("another_resource_is_refused", func(ctx context.Context) {
		code(pgxExec(ctx, pgxConn(ctx), "insert into guarded values ('another', 1)"), "LG002")
	})
	test("stale_at_connect", func(ctx context.Context) {
		stale := holder()
		must(pgxFence(ctx))
		_, err := pgxOpen(ctx, stale)
		code(err, "LG001")
		var e *pgconn.PgError
		equal(errors.As(err, &e) && e.Severity == "FATAL" && strings.Contains(e.Detail, "floor") && e.Hint != "", true)
		equal(pgconn.SafeToRetry(err), false)
	})
}

func pgxFencedCases() {
	test("fenced_while_idle", func(ctx context.Context) {
		conn := pgxConn(ctx)
		must(pgxFence(ctx))
		code(pgxExec(ctx, conn, "select 1"), "LG001")
		equal(conn.IsClosed(), true)
	})
	test("fenced_while_it_waits_for_a_notification", func(ctx context.Context) {
		conn := pgxConn(ctx)
		must(pgxExec(ctx, conn, "listen news"))
		waits := background(func() error { _, err := conn.WaitForNotification(ctx); return err })
		must(pgxFence(ctx))
		code(waits(), "LG001")
	})
	test("fenced_in_a_transaction", func(ctx context.Context) {
		tx := got(pgxConn(ctx).Begin(ctx))
		must(pgxWrite(ctx, tx, 777))
		must(pgxFence(ctx))
		code(tx.Commit(ctx), "LG001")
		equal(pgxOne[int](ctx, pgxConn(ctx), "select count(*) from guarded where n = 777"), 0)
	})
	test("fenced_while_a_statement_runs", func(ctx context.Context) {
		conn := pgxConn(ctx)
		tx := got(conn.Begin(ctx))
		runs := background(func() error { return pgxExec(ctx, tx, "select pg_sleep(20)") })
		pgxSleeps(ctx, pgxConn(ctx), conn)
		must(pgxFence(ctx))
		code(runs(), "LG001")
	})
	test("fenced_while_a_statement_of_its_own_runs", func(ctx context.Context) {
		conn := pgxConn(ctx)
		runs := background(func() error { return pgxExec(ctx, conn, "select pg_sleep(20)") })
		pgxSleeps(ctx, pgxConn(ctx), conn)
		must(pgxFence(ctx))
		code(runs(), "LG008")
	})
}

func pgxFencedDataCases() {
	test("fenced_in_copy", func(ctx context.Context) {
		conn := pgxConn(ctx)
		r, w := io.Pipe()
		runs := background(func() error {
			_, err := conn.PgConn().CopyFrom(ctx, r, "copy item from stdin")
			r.CloseWithError(err)
			return err
		})
		must(got1(fmt.Fprintf(w, "800000\tx\t1\n")))
		must(pgxFence(ctx))
		for n := 800001; ; n++ { // the driver looks for errors while it sends
			if _, err := fmt.Fprintf(w, "%d\tx\t1\n", n); err != nil {
				break
			}
		}
		code(runs(), "LG001", "LG008") // LG008: it sends data before the server has said that it is in a COPY
		equal(pgxOne[int](ctx, pgxConn(ctx), "select count(*) from item where id >= 800000"), 0)
	})
	test("fenced_while_rows_stream", func(ctx context.Context) {
		tx := got(pgxConn(ctx).Begin(ctx))
		rows := got(tx.Query(ctx, "select generate_series(1, 100000000), repeat('x', 100)"))
		equal(rows.Next(), true)
		fenced := background(func() error { return pgxFence(ctx) })
		for rows.Next() {
		}
		must(fenced())
		code(rows.Err(), "LG001")
	})
	test("fenced_in_a_batch", func(ctx context.Context) {
		conn, watch := pgxConn(ctx), pgxConn(ctx)
		batch := &pgx.Batch{}
		batch.Queue("insert into item values (850000, 'x', 1)")
		batch.Queue("select pg_sleep(20)")
		runs := background(func() error { return conn.SendBatch(ctx, batch).Close() })
		pgxSleeps(ctx, watch, conn)
		must(pgxFence(ctx))
		code(runs(), "LG008")
		equal(pgxOne[int](ctx, pgxConn(ctx), "select count(*) from item where id = 850000"), 0)
	})
}

func got1(_ any, err error) error { return err }

func pgxProtocolCases() {
	test("batch", func(ctx context.Context) {
		batch := &pgx.Batch{}
		sum := 0
		for n := range 200 {
			batch.Queue("select $1::int", n).QueryRow(func(row pgx.Row) error {
				var v int
				err := row.Scan(&v)
				sum += v
				return err
			})
		}
		must(pgxConn(ctx).SendBatch(ctx, batch).Close())
		equal(sum, 19900)
	})
	test("batch_with_an_error_rolls_back", func(ctx context.Context) {
		conn := pgxConn(ctx)
		batch := &pgx.Batch{}
		batch.Queue("insert into item values (860000, 'x', 1)")
		batch.Queue("select 1/$1::int", 0)
		batch.Queue("insert into item values (860001, 'x', 1)")
		code(conn.SendBatch(ctx, batch).Close(), "22012")
		equal(pgxOne[int](ctx, conn, "select count(*) from item where id in (860000, 860001)"), 0)
	})
	test("batch_with_a_refused_write", func(ctx context.Context) {
		conn := pgxConn(ctx)
		batch := &pgx.Batch{}
		batch.Queue("insert into guarded values ($1, 861)", resource)
		batch.Queue("insert into guarded values ('another', 861)")
		code(conn.SendBatch(ctx, batch).Close(), "LG002")
		equal(pgxOne[int](ctx, conn, "select count(*) from guarded where n = 861"), 0)
	})
	test("pipeline", func(ctx context.Context) {
		p := pgxConn(ctx).PgConn().StartPipeline(ctx)
		p.SendQueryParams("select 1", nil, nil, nil, nil)
		p.SendQueryParams("select 1/0", nil, nil, nil, nil)
		p.SendQueryParams("select 2", nil, nil, nil, nil)
		must(p.Sync())
		p.SendQueryParams("select 3", nil, nil, nil, nil)
		must(p.Sync())
		seen := ""
		for {
			result, err := p.GetResults()
			switch r := result.(type) {
			case *pgconn.ResultReader:
				seen += string(r.Read().Rows[0][0]) + " "
				continue
			case *pgconn.PipelineSync:
				seen += "sync "
				continue
			}
			if err == nil {
				break
			}
			seen += sqlState(err) + " "
		}
		equal(seen, "1 22012 sync 3 sync ")
		must(p.Close())
	})
}

func pgxStatementCases() {
	test("prepared_statements", func(ctx context.Context) {
		conn := pgxConn(ctx)
		for n := range 100 {
			name := fmt.Sprintf("p%d", n)
			got(conn.Prepare(ctx, name, fmt.Sprintf("select $1::int + %d", n)))
			equal(pgxOne[int](ctx, conn, name, 1), n+1)
		}
		must(conn.Deallocate(ctx, "p1"))
	})
	test("binary_and_text_results", func(ctx context.Context) {
		conn := pgxConn(ctx)
		for _, format := range []int16{0, 1} {
			sql := "select $1::int8, $2::bytea, $3::text, $4::numeric, $5::timestamptz, $6::int[]"
			var n int64
			var raw []byte
			var text, number string
			var when time.Time
			var list []*int
			day := time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)
			must(conn.QueryRow(ctx, sql, pgx.QueryResultFormats{format}, int64(1)<<62, []byte{0, 1, 255}, "ä€😀",
				"12345678901234567890.123456789", day, []*int{nil}).Scan(&n, &raw, &text, &number, &when, &list))
			equal(n, int64(1)<<62)
			equal(raw, []byte{0, 1, 255})
			equal([]string{text, number}, []string{"ä€😀", "12345678901234567890.123456789"})
			equal(when.Equal(day) && len(list) == 1 && list[0] == nil, true)
		}
	})
	test("rows_of_256_kB", func(ctx context.Context) {
		conn := pgxConn(ctx)
		rows := got(conn.Query(ctx, "select $1::text from generate_series(1, 40)", large))
		list := got(pgx.CollectRows(rows, pgx.RowTo[string]))
		equal(len(list), 40)
		equal(list[39] == large, true)
	})
	test("cursor", func(ctx context.Context) {
		tx := got(pgxConn(ctx).Begin(ctx))
		must(pgxExec(ctx, tx, "declare c scroll cursor for select generate_series(1, 1000)"))
		total := 0
		for {
			rows := got(tx.Query(ctx, "fetch 99 from c"))
			list := got(pgx.CollectRows(rows, pgx.RowTo[int]))
			if len(list) == 0 {
				break
			}
			total += len(list)
		}
		equal(total, 1000)
		must(tx.Commit(ctx))
	})
	test("rows_given_up", func(ctx context.Context) {
		conn := pgxConn(ctx)
		rows := got(conn.Query(ctx, "select generate_series(1, 100000)"))
		equal(rows.Next(), true)
		rows.Close()
		equal(pgxOne[int](ctx, conn, "select 1"), 1)
	})
}

func pgxTransactionCases() {
	test("savepoints", func(ctx context.Context) {
		tx := got(pgxConn(ctx).Begin(ctx))
		nested := got(tx.Begin(ctx))
		code(pgxExec(ctx, nested, "select nothing"), "42703")
		must(nested.Rollback(ctx))
		must(pgxWrite(ctx, tx, 2))
		must(tx.Commit(ctx))
	})
	test("commit_of_a_failed_transaction", func(ctx context.Context) {
		tx := got(pgxConn(ctx).Begin(ctx))
		code(pgxExec(ctx, tx, "select 1/0"), "22012")
		code(pgxExec(ctx, tx, "select $1::int", 1), "25P02")
		equal(errors.Is(tx.Commit(ctx), pgx.ErrTxCommitRollback), true)
	})
	test("isolation_levels", func(ctx context.Context) {
		conn := pgxConn(ctx)
		for _, level := range []pgx.TxIsoLevel{pgx.Serializable, pgx.RepeatableRead, pgx.ReadCommitted} {
			tx := got(conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: level, AccessMode: pgx.ReadOnly, DeferrableMode: pgx.Deferrable}))
			equal(pgxOne[string](ctx, tx, "show transaction_isolation"), string(level))
			code(pgxExec(ctx, tx, "insert into item values (1, 'a', 1)"), "25006")
			must(tx.Rollback(ctx))
		}
	})
	test("serialization_failure", func(ctx context.Context) {
		var txs [2]pgx.Tx
		for i := range txs {
			txs[i] = got(pgxConn(ctx).BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.Serializable}))
			pgxOne[int](ctx, txs[i], "select count(*) from item")
		}
		for i, tx := range txs {
			must(pgxExec(ctx, tx, "insert into item values ($1, 'a', 1)", 870000+i))
		}
		must(txs[0].Commit(ctx))
		code(txs[1].Commit(ctx), "40001")
	})
	test("large_object", func(ctx context.Context) {
		tx := got(pgxConn(ctx).Begin(ctx))
		los := tx.LargeObjects()
		oid := got(los.Create(ctx, 0))
		lo := got(los.Open(ctx, oid, pgx.LargeObjectModeRead|pgx.LargeObjectModeWrite))
		got(lo.Write([]byte(large)))
		got(lo.Seek(0, io.SeekStart))
		equal(string(got(io.ReadAll(lo))) == large, true)
		must(los.Unlink(ctx, oid))
		must(tx.Commit(ctx))
	})
	test("listen_notify", func(ctx context.Context) {
		a, b := pgxConn(ctx), pgxConn(ctx)
		must(pgxExec(ctx, a, "listen news"))
		must(pgxExec(ctx, b, "select pg_notify('news', 'payload')"))
		n := got(a.WaitForNotification(ctx))
		equal([]any{n.Channel, n.Payload, n.PID}, []any{"news", "payload", b.PgConn().PID()})
	})
	test("several_statements", func(ctx context.Context) {
		results := got(pgxConn(ctx).PgConn().Exec(ctx, "select 1; select 2; select 3").ReadAll())
		equal(len(results), 3)
		_, err := pgxConn(ctx).PgConn().Exec(ctx, "insert into item values (871000, 'a', 1); select 1/0").ReadAll()
		code(err, "22012")
		equal(pgxOne[int](ctx, pgxConn(ctx), "select count(*) from item where id = 871000"), 0)
	})
}

func pgxCopyCases() {
	rows := func(from, n int) pgx.CopyFromSource {
		return pgx.CopyFromSlice(n, func(i int) ([]any, error) { return []any{int64(from + i), "x", nil}, nil })
	}
	item, columns := pgx.Identifier{"item"}, []string{"id", "name", "price"}
	test("copy_from", func(ctx context.Context) {
		equal(got(pgxConn(ctx).CopyFrom(ctx, item, columns, rows(1000, 20000))), int64(20000))
	})
	test("copy_from_duplicates", func(ctx context.Context) {
		conn := pgxConn(ctx)
		must(pgxExec(ctx, conn, "insert into item values (30000, 'a', 1)"))
		_, err := conn.CopyFrom(ctx, item, columns, rows(30000, 20000))
		code(err, "23505")
		equal(pgxOne[int](ctx, conn, "select 1"), 1)
	})
	test("copy_from_a_broken_source", func(ctx context.Context) {
		conn := pgxConn(ctx)
		broken := errors.New("source is broken")
		_, err := conn.CopyFrom(ctx, item, columns, pgx.CopyFromSlice(10, func(i int) ([]any, error) {
			if i == 5 {
				return nil, broken
			}
			return []any{int64(80000 + i), "x", nil}, nil
		}))
		equal(err != nil && strings.Contains(err.Error(), broken.Error()), true)
		equal(pgxOne[int](ctx, conn, "select count(*) from item where id between 80000 and 80010"), 0)
	})
	test("copy_from_into_the_guarded_table", func(ctx context.Context) {
		conn := pgxConn(ctx)
		for who, want := range map[string]string{resource: "", "another": "LG002"} {
			_, err := conn.CopyFrom(ctx, pgx.Identifier{"guarded"}, []string{"resource", "n"}, pgx.CopyFromRows([][]any{{who, 5}}))
			equal(sqlState(err), want)
		}
	})
	test("copy_to", func(ctx context.Context) {
		var out bytes.Buffer
		got(pgxConn(ctx).PgConn().CopyTo(ctx, &out, "copy (select * from generate_series(1, 50000)) to stdout"))
		equal(bytes.Count(out.Bytes(), []byte("\n")), 50000)
	})
	test("copy_to_fails_in_the_middle", func(ctx context.Context) {
		conn := pgxConn(ctx)
		_, err := conn.PgConn().CopyTo(ctx, io.Discard, "copy (select 1/(5000-n) from generate_series(1, 9000) n) to stdout")
		code(err, "22012")
		equal(pgxOne[int](ctx, conn, "select 1"), 1)
	})
	test("copy_without_a_ticket", func(ctx context.Context) {
		_, err := pgxBare(ctx).PgConn().CopyFrom(ctx, strings.NewReader("1\tx\t1\n"), "copy item from stdin")
		code(err, "LG002")
	})
}

func pgxConnectionCases() {
	test("cancel_reaches_its_own_backend_only", func(ctx context.Context) {
		a, b, watch := pgxConn(ctx), pgxConn(ctx), pgxConn(ctx)
		other := background(func() error { return pgxExec(ctx, b, "select pg_sleep(0.5)") })
		runs := background(func() error { return pgxExec(ctx, a, "select pg_sleep(20)") })
		pgxSleeps(ctx, watch, a)
		must(a.PgConn().CancelRequest(ctx))
		code(runs(), "57014")
		must(other())
		equal(pgxOne[int](ctx, a, "select 1"), 1)
	})
	test("context_that_ends_closes_the_connection", func(ctx context.Context) {
		conn := pgxConn(ctx)
		short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
		defer cancel()
		equal(errors.Is(pgxExec(short, conn, "select pg_sleep(20)"), context.DeadlineExceeded), true)
		equal(conn.IsClosed(), true)
		pid, watch := conn.PgConn().PID(), pgxConn(ctx) // whose backend does not sleep on
		when(ctx, func(ctx context.Context) bool {
			return pgxOne[int](ctx, watch, "select count(*) from pg_stat_activity where pid = $1", pid) == 0
		})
	})
}

func pgxServerCases() {
	test("statement_timeout", func(ctx context.Context) {
		conn := got(pgxOpen(ctx, holder(), "statement_timeout=50"))
		code(pgxExec(ctx, conn, "select pg_sleep(20)"), "57014")
	})
	for _, mode := range []string{"require", "verify-ca", "verify-full"} {
		test("tls_"+mode+"_and_scram", func(ctx context.Context) {
			conn := got(pgxOpen(ctx, holder(), "user=scram password=secret sslmode="+mode+" sslrootcert="+root))
			must(pgxWrite(ctx, conn, 1))
			must(pgxFence(ctx))
			code(pgxExec(ctx, conn, "select 1"), "LG001")
		})
	}
	test("wrong_password", func(ctx context.Context) {
		_, err := pgxOpen(ctx, holder(), "user=scram password=wrong")
		code(err, "28P01")
	})
	test("tls_with_another_authority", func(ctx context.Context) {
		_, err := pgxOpen(ctx, holder(), "host=localhost sslmode=verify-full")
		equal(err != nil && strings.Contains(err.Error(), "tls"), true)
	})
	test("several_hosts", func(ctx context.Context) {
		for _, attrs := range []string{"any", "read-write", "primary", "prefer-standby"} {
			conn := got(pgxOpen(ctx, holder(), fmt.Sprintf("host=%s,%s port=1,%s target_session_attrs=%s", host, host, port, attrs)))
			must(pgxWrite(ctx, conn, 1))
		}
		_, err := pgxOpen(ctx, holder(), fmt.Sprintf("host=%s,%s port=%s,%s target_session_attrs=standby", host, host, port, port))
		equal(err != nil, true)
	})
	test("several_hosts_and_a_stale_ticket", func(ctx context.Context) {
		stale := holder()
		must(pgxFence(ctx))
		_, err := pgxOpen(ctx, stale, fmt.Sprintf("host=%s,%s port=%s,%s", host, host, port, port))
		code(err, "LG001")
	})
	test("concurrent_connections", func(ctx context.Context) {
		var all sync.WaitGroup
		errs := make(chan error, 20)
		for range 20 {
			all.Go(func() {
				conn, err := pgx.ConnectConfig(ctx, pgxConfig(holder()))
				if err != nil {
					errs <- err
					return
				}
				defer conn.Close(ctx)
				for range 20 {
					if err := pgxWrite(ctx, conn, 3); err != nil {
						errs <- err
						return
					}
				}
			})
		}
		all.Wait()
		select {
		case err := <-errs:
			panic(err)
		default:
		}
	})
	test("notices", func(ctx context.Context) {
		config := pgxConfig(holder())
		var seen []string
		config.OnNotice = func(_ *pgconn.PgConn, n *pgconn.Notice) { seen = append(seen, n.Severity) }
		conn := got(pgx.ConnectConfig(ctx, config))
		defer conn.Close(ctx)
		must(pgxExec(ctx, conn, "do $$ begin raise notice 'a %', repeat('n', 20000); raise warning 'w'; end $$"))
		equal(seen, []string{"NOTICE", "WARNING"})
	})
}
