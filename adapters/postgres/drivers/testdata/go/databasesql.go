package main

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// over is a driver below database/sql.
type over struct {
	name  string
	hides bool // a FATAL becomes driver.ErrBadConn, for which database/sql connects and tries again where no transaction is open
}

// wantFenced wants what an open transaction is told when its connection is fenced.
func (o over) wantFenced(err error) {
	if o.hides && errors.Is(err, driver.ErrBadConn) {
		return
	}
	code(err, "LG001")
}

func (o over) open(ticket string, more ...string) *sql.DB {
	dsn := strings.Join(more, " ")
	if ticket != "" {
		dsn += " fence.ticket=" + ticket
	}
	db := got(sql.Open(o.name, dsn))
	opened = append(opened, func() { db.Close() })
	return db
}

// single has one connection, which a case may rely on.
func (o over) single(ticket string, more ...string) *sql.DB {
	db := o.open(ticket, more...)
	db.SetMaxOpenConns(1)
	return db
}

func (o over) fence(ctx context.Context) error {
	db := got(sql.Open(o.name, "fence.ticket="+next()))
	defer db.Close()
	return db.PingContext(ctx)
}

type querier interface {
	ExecContext(context.Context, string, ...any) (sql.Result, error)
	QueryRowContext(context.Context, string, ...any) *sql.Row
}

func one[T any](ctx context.Context, q querier, query string, args ...any) T {
	var v T
	must(q.QueryRowContext(ctx, query, args...).Scan(&v))
	return v
}

func exec(ctx context.Context, q querier, query string, args ...any) error {
	_, err := q.ExecContext(ctx, query, args...)
	return err
}

func write(ctx context.Context, q querier, n int) error {
	return exec(ctx, q, "insert into guarded values ($1, $2)", resource, n)
}

func sleeps(ctx context.Context, watch *sql.DB, pid int) {
	when(ctx, func(ctx context.Context) bool {
		return one[bool](ctx, watch, "select exists (select from pg_stat_activity where pid = $1 and wait_event = 'PgSleep')", pid)
	})
}

const ownPid = "select pg_backend_pid()"

// databaseCases are what database/sql itself makes of a driver.
func databaseCases(o over) {
	databaseTickets(o)
	databaseFences(o)
	databaseFencesInUse(o)
	databaseQueries(o)
	databaseTransactions(o)
	databaseConnections(o)
}

func databaseTickets(o over) {
	test("ticket_in_the_connection_string", func(ctx context.Context) { must(write(ctx, o.open(holder()), 1)) })
	test("ticket_by_options", func(ctx context.Context) {
		must(write(ctx, o.open("", "options='-c fence.ticket="+holder()+"'"), 1))
	})
	test("no_ticket", func(ctx context.Context) {
		db := o.single("")
		must(got(db.Conn(ctx)).Close()) // it connects
		code(exec(ctx, db, "select 1"), "LG002")
		code(exec(ctx, db, "select $1::int", 1), "LG002")
	})
	test("malformed_ticket", func(ctx context.Context) { code(write(ctx, o.open("nonsense"), 1), "LG003") })
	test("set_ticket", func(ctx context.Context) {
		conn := got(o.open("").Conn(ctx))
		defer conn.Close()
		must(exec(ctx, conn, "set fence.ticket = '"+holder()+"'"))
		must(write(ctx, conn, 1))
		must(exec(ctx, conn, "reset fence.ticket"))
		code(write(ctx, conn, 1), "LG002")
	})
	test("set_local_ticket", func(ctx context.Context) {
		db := o.single("")
		for range 3 {
			tx := got(db.BeginTx(ctx, nil))
			must(exec(ctx, tx, "set local fence.ticket = '"+holder()+"'"))
			must(write(ctx, tx, 1))
			must(tx.Commit())
			code(write(ctx, db, 1), "LG002") // the next borrower
		}
	})
	test("reset_of_a_pooled_connection_keeps_the_fence", func(ctx context.Context) {
		db := o.single(holder())
		must(exec(ctx, db, "reset all"))
		must(exec(ctx, db, "discard temp"))
		must(write(ctx, db, 1))
	})
	test("ticket_by_set_config", func(ctx context.Context) {
		code(exec(ctx, o.open(holder()), "select set_config('fence.ticket', '"+holder()+"', false)"), "LG006")
	})
	test("another_resource_is_refused", func(ctx context.Context) {
		code(exec(ctx, o.open(holder()), "insert into guarded values ('another', 1)"), "LG002")
	})
	test("stale_at_connect", func(ctx context.Context) {
		stale := holder()
		must(o.fence(ctx))
		db := o.open(stale)
		for range 3 {
			code(db.PingContext(ctx), "LG001")
		}
	})
}

func databaseFences(o over) {
	test("fenced_while_idle", func(ctx context.Context) {
		db := o.single(holder())
		must(write(ctx, db, 1))
		must(o.fence(ctx))
		for range 3 { // whether it uses the old connection or connects again
			code(write(ctx, db, 1), "LG001")
		}
	})
	test("fenced_in_a_transaction", func(ctx context.Context) {
		tx := got(o.single(holder()).BeginTx(ctx, nil))
		must(write(ctx, tx, 777))
		must(o.fence(ctx))
		o.wantFenced(write(ctx, tx, 777))
		equal(tx.Commit() != nil, true)
		equal(one[int](ctx, o.open(holder()), "select count(*) from guarded where n = 777"), 0)
	})
	test("fenced_before_the_commit", func(ctx context.Context) {
		tx := got(o.single(holder()).BeginTx(ctx, nil))
		must(write(ctx, tx, 778))
		must(o.fence(ctx))
		o.wantFenced(tx.Commit())
		equal(one[int](ctx, o.open(holder()), "select count(*) from guarded where n = 778"), 0)
	})
	test("fenced_while_a_statement_runs", func(ctx context.Context) {
		tx, watch := got(o.single(holder()).BeginTx(ctx, nil)), o.open(holder())
		pid := one[int](ctx, tx, ownPid)
		runs := background(func() error { return exec(ctx, tx, "select pg_sleep(20)") })
		sleeps(ctx, watch, pid)
		must(o.fence(ctx))
		o.wantFenced(runs())
	})
	test("fenced_while_a_statement_of_its_own_runs", func(ctx context.Context) {
		db, watch := o.single(holder()), o.open(holder())
		pid := one[int](ctx, db, ownPid)
		runs := background(func() error { return exec(ctx, db, "select pg_sleep(20)") })
		sleeps(ctx, watch, pid)
		must(o.fence(ctx))
		if o.hides { // it was tried again, and refused
			code(runs(), "LG001")
		} else {
			code(runs(), "LG008")
		}
	})
}

func databaseFencesInUse(o over) {
	test("fenced_while_rows_stream", func(ctx context.Context) {
		tx := got(o.single(holder()).BeginTx(ctx, nil))
		rows := got(tx.QueryContext(ctx, "select generate_series(1, 100000000), repeat('x', 100)"))
		equal(rows.Next(), true)
		fenced := background(func() error { return o.fence(ctx) })
		for rows.Next() {
		}
		must(fenced())
		o.wantFenced(rows.Err())
	})
	test("fenced_with_a_prepared_statement", func(ctx context.Context) {
		db := o.single(holder())
		statement := got(db.PrepareContext(ctx, "insert into guarded values ($1, $2)"))
		must(got1(statement.ExecContext(ctx, resource, 1)))
		must(o.fence(ctx))
		for range 3 { // database/sql prepares it again, on a new connection
			code(got1(statement.ExecContext(ctx, resource, 1)), "LG001")
		}
	})
	test("pool_under_load_is_fenced", func(ctx context.Context) {
		db := o.open(holder())
		db.SetMaxOpenConns(4)
		ends := make(chan error, 8)
		for range 8 {
			go func() {
				for {
					if err := write(ctx, db, 2); err != nil {
						ends <- err
						return
					}
				}
			}()
		}
		must(o.fence(ctx))
		for range 8 {
			code(<-ends, "LG001", "LG008")
		}
	})
}

func databaseQueries(o over) {
	test("prepared_statements", func(ctx context.Context) {
		db := o.single(holder())
		for n := range 50 {
			statement := got(db.PrepareContext(ctx, fmt.Sprintf("select $1::int + %d", n)))
			var v int
			must(statement.QueryRowContext(ctx, 1).Scan(&v))
			equal(v, n+1)
			must(statement.Close())
		}
	})
	test("types", func(ctx context.Context) {
		day := time.Date(2024, 2, 29, 12, 0, 0, 0, time.UTC)
		var n int64
		var raw []byte
		var text, number string
		var empty sql.NullString
		var when time.Time
		must(o.open(holder()).QueryRowContext(ctx, "select $1::int8, $2::bytea, $3::text, $4::numeric, $5::timestamptz, $6::text",
			int64(1)<<62, []byte{0, 1, 255}, "ä€😀", "12345678901234567890.123456789", day, nil).Scan(&n, &raw, &text, &number, &when, &empty))
		equal(n, int64(1)<<62)
		equal(raw, []byte{0, 1, 255})
		equal([]string{text, number}, []string{"ä€😀", "12345678901234567890.123456789"})
		equal(when.Equal(day) && !empty.Valid, true)
	})
	test("rows_of_256_kB", func(ctx context.Context) {
		rows := got(o.open(holder()).QueryContext(ctx, "select $1::text from generate_series(1, 40)", large))
		count := 0
		for ; rows.Next(); count++ {
			var v string
			must(rows.Scan(&v))
			equal(v == large, true)
		}
		must(rows.Err())
		equal(count, 40)
	})
	test("rows_given_up", func(ctx context.Context) {
		db := o.single(holder())
		rows := got(db.QueryContext(ctx, "select generate_series(1, 100000)"))
		equal(rows.Next(), true)
		must(rows.Close())
		equal(one[int](ctx, db, "select 1"), 1)
	})
	test("cursor", func(ctx context.Context) {
		tx := got(o.open(holder()).BeginTx(ctx, nil))
		must(exec(ctx, tx, "declare c cursor for select generate_series(1, 100)"))
		must(exec(ctx, tx, "move 50 in c"))
		equal(one[int](ctx, tx, "fetch next from c"), 51)
		must(tx.Rollback())
	})
}

func databaseTransactions(o over) {
	test("savepoints", func(ctx context.Context) {
		tx := got(o.open(holder()).BeginTx(ctx, nil))
		must(exec(ctx, tx, "savepoint a"))
		code(exec(ctx, tx, "select nothing"), "42703")
		code(exec(ctx, tx, "select $1::int", 1), "25P02")
		must(exec(ctx, tx, "rollback to a"))
		must(write(ctx, tx, 3))
		must(tx.Commit())
	})
	test("isolation_levels", func(ctx context.Context) {
		db := o.single(holder())
		for level, want := range map[sql.IsolationLevel]string{
			sql.LevelSerializable: "serializable", sql.LevelRepeatableRead: "repeatable read", sql.LevelReadCommitted: "read committed",
		} {
			tx := got(db.BeginTx(ctx, &sql.TxOptions{Isolation: level, ReadOnly: true}))
			equal(one[string](ctx, tx, "show transaction_isolation"), want)
			code(exec(ctx, tx, "insert into item values (1, 'a', 1)"), "25006")
			must(tx.Rollback())
		}
	})
	test("large_object", func(ctx context.Context) {
		tx := got(o.open(holder()).BeginTx(ctx, nil))
		oid := one[int](ctx, tx, "select lo_from_bytea(0, $1)", []byte(large))
		equal(string(one[[]byte](ctx, tx, "select lo_get($1)", oid)) == large, true)
		must(exec(ctx, tx, "select lo_unlink($1)", oid))
		must(tx.Commit())
	})
	test("several_statements", func(ctx context.Context) {
		code(exec(ctx, o.open(holder()), "insert into item values (871000, 'a', 1); select 1/0"), "22012")
		equal(one[int](ctx, o.open(holder()), "select count(*) from item where id = 871000"), 0)
	})
}

func databaseConnections(o over) {
	test("cancel_reaches_its_own_backend_only", func(ctx context.Context) {
		db, watch := o.single(holder()), o.open(holder())
		pid := one[int](ctx, db, ownPid)
		other := background(func() error { return exec(ctx, watch, "select pg_sleep(0.5)") })
		short, cancel := context.WithCancel(ctx)
		runs := background(func() error { return exec(short, db, "select pg_sleep(20)") })
		sleeps(ctx, watch, pid)
		cancel()
		equal(runs() != nil, true)
		must(other())
		equal(one[int](ctx, db, "select 1"), 1) // on this connection or on another
	})
	for _, mode := range []string{"require", "verify-ca", "verify-full"} {
		test("tls_"+mode+"_and_scram", func(ctx context.Context) {
			db := o.single(holder(), "user=scram password=secret host=127.0.0.1 sslmode="+mode+" sslrootcert="+root)
			must(write(ctx, db, 1))
			must(o.fence(ctx))
			code(write(ctx, db, 1), "LG001")
		})
	}
	test("wrong_password", func(ctx context.Context) {
		code(o.open(holder(), "user=scram password=wrong").PingContext(ctx), "28P01")
	})
	test("concurrent_connections", func(ctx context.Context) {
		db := o.open(holder())
		db.SetMaxOpenConns(20)
		var all sync.WaitGroup
		errs := make(chan error, 400)
		for range 20 {
			all.Go(func() {
				for range 20 {
					errs <- write(ctx, db, 4)
				}
			})
		}
		all.Wait()
		for range 400 {
			must(<-errs)
		}
	})
	test("connections_that_are_not_kept", func(ctx context.Context) {
		db := o.open(holder())
		db.SetMaxIdleConns(-1)
		for range 10 {
			must(write(ctx, db, 4))
		}
	})
	test("several_hosts", func(ctx context.Context) {
		must(write(ctx, o.open(holder(), fmt.Sprintf("host=%s,%s port=1,%s target_session_attrs=read-write", host, host, port)), 1))
	})
	test("several_hosts_and_a_stale_ticket", func(ctx context.Context) {
		stale := holder()
		must(o.fence(ctx))
		code(o.open(stale, fmt.Sprintf("host=%s,%s port=%s,%s", host, host, port, port)).PingContext(ctx), "LG001")
	})
}
