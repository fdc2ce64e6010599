package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"time"

	"github.com/lib/pq"
)

var overPq = over{name: "postgres", hides: true}

// pqCases are those of lib/pq's own features.
func pqCases() {
	pqCopies()
	pqNotices()
	test("the_whole_error", func(ctx context.Context) {
		stale := holder()
		must(overPq.fence(ctx))
		var e *pq.Error
		equal(errors.As(overPq.open(stale).PingContext(ctx), &e), true)
		equal(e.Severity == "FATAL" && strings.Contains(e.Detail, "floor") && e.Hint != "", true)
	})
	test("binary_parameters", func(ctx context.Context) {
		db := overPq.single(holder(), "binary_parameters=yes")
		for n := range 20 {
			must(write(ctx, db, n))
			code(exec(ctx, db, "select 1/$1::int", 0), "22012")
			equal(one[[]byte](ctx, db, "select $1::bytea", []byte{0, 1, 255}), []byte{0, 1, 255})
		}
		code(exec(ctx, overPq.open("", "binary_parameters=yes"), "select $1::int", 1), "LG002")
		must(overPq.fence(ctx))
		code(write(ctx, db, 1), "LG001")
	})
	test("arrays", func(ctx context.Context) {
		var list pq.Int64Array
		must(overPq.open(holder()).QueryRowContext(ctx, "select $1::int8[]", pq.Array([]int64{1, 2, 3})).Scan(&list))
		equal([]int64(list), []int64{1, 2, 3})
	})
	test("transaction_of_a_failed_statement", func(ctx context.Context) {
		tx := got(overPq.open(holder()).BeginTx(ctx, nil))
		code(exec(ctx, tx, "select 1/0"), "22012")
		equal(tx.Commit() != nil, true)
	})
	test("several_results", func(ctx context.Context) {
		rows := got(overPq.open(holder()).QueryContext(ctx, "select 1; select 2; select 3"))
		defer rows.Close()
		sets := 0
		for rows.Next() || rows.NextResultSet() {
			sets++
		}
		equal(sets, 5) // three rows, and two times another result
	})
	test("connector", func(ctx context.Context) {
		db := sql.OpenDB(got(pq.NewConnector("fence.ticket=" + holder())))
		defer db.Close()
		must(write(ctx, db, 1))
	})
	test("connect_timeout", func(ctx context.Context) {
		must(write(ctx, overPq.open(holder(), "connect_timeout=5 application_name=cases"), 1))
	})
}

func pqCopies() {
	copyIn := func(ctx context.Context, tx *sql.Tx, table string, rows ...[]any) error {
		statement, err := tx.PrepareContext(ctx, pq.CopyIn(table))
		if err != nil {
			return err
		}
		for _, row := range rows {
			if _, err := statement.ExecContext(ctx, row...); err != nil {
				return err
			}
		}
		if _, err := statement.ExecContext(ctx); err != nil {
			return err
		}
		return statement.Close()
	}
	begin := func(ctx context.Context) *sql.Tx { return got(overPq.single(holder()).BeginTx(ctx, nil)) }
	test("copy_in", func(ctx context.Context) {
		var rows [][]any
		for n := range 20000 {
			rows = append(rows, []any{1000 + n, "x", nil})
		}
		tx := begin(ctx)
		must(copyIn(ctx, tx, "item", rows...))
		must(tx.Commit())
		equal(one[int](ctx, overPq.open(holder()), "select count(*) from item where id between 1000 and 20999"), 20000)
	})
	test("copy_in_bad_data", func(ctx context.Context) {
		code(copyIn(ctx, begin(ctx), "item", []any{"a", "b", 1}), "22P02")
	})
	test("copy_into_the_guarded_table", func(ctx context.Context) {
		must(copyIn(ctx, begin(ctx), "guarded", []any{resource, 5}))
		code(copyIn(ctx, begin(ctx), "guarded", []any{"another", 5}), "LG002")
	})
	test("copy_given_up", func(ctx context.Context) {
		db := overPq.single(holder())
		tx := got(db.BeginTx(ctx, nil))
		statement := got(tx.PrepareContext(ctx, pq.CopyIn("item")))
		must(got1(statement.ExecContext(ctx, 880000, "x", 1)))
		equal(errors.Is(tx.Rollback(), driver.ErrBadConn), true) // it gives up the connection
		equal(one[int](ctx, db, "select count(*) from item where id = 880000"), 0)
	})
	test("fenced_in_copy", func(ctx context.Context) {
		tx := begin(ctx)
		statement := got(tx.PrepareContext(ctx, pq.CopyIn("item")))
		must(got1(statement.ExecContext(ctx, 800000, "x", 1)))
		must(overPq.fence(ctx))
		var err error
		for n := 800001; err == nil && n < 2000000; n++ { // it looks for errors while it sends
			_, err = statement.ExecContext(ctx, n, "x", 1)
		}
		overPq.wantFenced(err)
		equal(one[int](ctx, overPq.open(holder()), "select count(*) from item where id >= 800000"), 0)
	})
}

func pqNotices() {
	listen := func(ticket string, events chan<- error) *pq.Listener {
		l := pq.NewListener("fence.ticket="+ticket, 10*time.Millisecond, 50*time.Millisecond, func(e pq.ListenerEventType, err error) {
			if err != nil {
				select {
				case events <- err:
				default:
				}
			}
		})
		opened = append(opened, func() { l.Close() })
		return l
	}
	test("listener", func(ctx context.Context) {
		l := listen(holder(), nil)
		must(l.Listen("news"))
		must(exec(ctx, overPq.open(holder()), "select pg_notify('news', 'payload')"))
		n := <-l.Notify
		equal([]string{n.Channel, n.Extra}, []string{"news", "payload"})
	})
	test("listener_is_fenced_and_refused", func(ctx context.Context) {
		events := make(chan error, 100)
		l := listen(holder(), events)
		must(l.Listen("news"))
		must(overPq.fence(ctx))
		for sqlState(<-events) != "LG001" { // at the latest when it connects again
		}
	})
	test("notices", func(ctx context.Context) {
		var seen []string
		connector := pq.ConnectorWithNoticeHandler(got(pq.NewConnector("fence.ticket="+holder())), func(e *pq.Error) {
			seen = append(seen, e.Severity)
		})
		db := sql.OpenDB(connector)
		defer db.Close()
		must(exec(ctx, db, "do $$ begin raise notice 'a %', repeat('n', 20000); raise warning 'w'; end $$"))
		equal(seen, []string{"NOTICE", "WARNING"})
	})
}
