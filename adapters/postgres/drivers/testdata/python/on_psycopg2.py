import io
import os
import select
import threading

import psycopg2
import psycopg2.extras
from psycopg2.extensions import ISOLATION_LEVEL_SERIALIZABLE, QueryCanceledError, TransactionRollbackError
from psycopg2.pool import ThreadedConnectionPool

from cases import big, case, database, equal, holder, host, main, port, resource, tickets, user


def connect(ticket=None, autocommit=True, **more):
    ticket = holder.ticket if ticket is None else ticket
    options = more.pop("options", f"-c fence.ticket={ticket}" if ticket else "")
    conn = psycopg2.connect(host=host, port=port, user=user, dbname=database, sslmode="disable", options=options, **more)
    conn.autocommit = autocommit
    return conn


def one(conn, sql, *args):
    with conn.cursor() as c:
        c.execute(sql, args or None)
        return c.fetchone()[0] if c.description else c.statusmessage


def write(conn, n=1):
    return one(conn, "insert into guarded values (%s, %s)", resource, n)


def code(f, *args, **more):
    """The SQLSTATE and the error of what has to fail."""
    try:
        f(*args, **more)
    except psycopg2.Error as e:
        return e.pgcode, e
    raise AssertionError("no error")


def fenced(f, *args):
    """What ends the session. libpq hands psycopg2 only the last of its errors, that the connection is closed, also where an
    administrator ends the backend without a proxy; that it was a fence is told at the next connect."""
    _, e = code(f, *args)
    stale = tickets[holder.at - 1]
    assert isinstance(e, psycopg2.OperationalError) and "closed the connection" in str(e), e
    try:
        connect(stale)
    except psycopg2.OperationalError as e:
        assert "LG001" in str(e), e
    else:
        raise AssertionError("let in again")


def fence():
    connect(holder.next()).close()


@case
def ticket_by_options():
    equal(write(connect()), "INSERT 0 1")


@case
def ticket_by_pgoptions():
    os.environ["PGOPTIONS"] = f"-c fence.ticket={holder.ticket}"
    try:
        equal(write(psycopg2.connect(host=host, port=port, user=user, dbname=database)), "INSERT 0 1")
    finally:
        del os.environ["PGOPTIONS"]


@case
def other_options_beside_the_ticket():
    conn = connect(options=f"-c work_mem=5MB -c fence.ticket={holder.ticket} -c statement_timeout=9s", application_name="cases")
    equal([one(conn, "show " + n) for n in ("work_mem", "statement_timeout", "application_name")], ["5MB", "9s", "cases"])


@case
def no_ticket():
    conn = connect("")
    equal(code(one, conn, "select 1")[0], "LG002")
    equal(conn.closed, 0)


@case
def malformed_ticket():
    try:
        connect("nonsense")
    except psycopg2.OperationalError as e:
        assert "LG003" in str(e), e
    else:
        raise AssertionError("let in")


@case
def set_ticket():
    conn = connect("")
    one(conn, f"set fence.ticket = '{holder.ticket}'")
    equal(write(conn), "INSERT 0 1")
    assert holder.ticket not in one(conn, "show fence.ticket")


@case
def set_local_ticket():
    conn = connect("", autocommit=False)
    one(conn, f"set local fence.ticket = '{holder.ticket}'")
    equal(write(conn), "INSERT 0 1")
    conn.commit()
    equal(code(write, conn)[0], "LG002")


@case
def reset_ticket():
    conn = connect("")
    one(conn, f"set fence.ticket = '{holder.ticket}'")
    one(conn, "reset fence.ticket")
    equal(code(write, conn)[0], "LG002")


@case
def discard_all_keeps_the_fence():
    conn = connect()
    one(conn, "discard all")
    one(conn, "reset all")
    equal(write(conn), "INSERT 0 1")


@case
def ticket_late_in_a_transaction():
    conn = connect("", autocommit=False)
    one(conn, f"set fence.ticket = '{holder.ticket}'")
    one(conn, "select 1")
    equal(code(one, conn, f"set fence.ticket = '{holder.ticket}'")[0], "LG006")
    conn.rollback()


@case
def ticket_by_set_config():
    equal(code(one, connect(), f"select set_config('fence.ticket', '{holder.ticket}', false)")[0], "LG006")


@case
def stale_at_connect():
    stale = holder.ticket
    fence()
    try:
        connect(stale)
    except psycopg2.OperationalError as e:
        for part in ("LG001", "DETAIL", "HINT", "floor"):
            assert part in str(e), e
    else:
        raise AssertionError("let in")


@case
def fenced_while_idle():
    conn = connect()
    fence()
    fenced(one, conn, "select 1")
    assert conn.closed


@case
def fenced_in_a_transaction():
    conn = connect(autocommit=False)
    write(conn, 777)
    fence()
    fenced(conn.commit)
    equal(one(connect(), "select count(*) from guarded where n = 777"), 0)


@case
def fenced_while_a_statement_runs():
    conn = connect(autocommit=False)
    write(conn, 778)
    t = threading.Timer(0.2, fence)
    t.start()
    fenced(one, conn, "select pg_sleep(20)")
    t.join()


@case
def types():
    conn = connect()
    for expression, want in (
        ("1::int2", 1), ("2147483647", 2147483647), ("9223372036854775807", 9223372036854775807), ("1.5::float8", 1.5),
        ("true", True), ("'{1,2,null}'::int[]", [1, 2, None]), ("'ä€😀'", "ä€😀"), ("'{\"a\": [1]}'::jsonb", {"a": [1]}),
    ):
        equal(one(conn, f"select {expression}"), want)
    equal(bytes(one(conn, "select %s::bytea", psycopg2.Binary(bytes(range(256))))), bytes(range(256)))
    equal(str(one(conn, "select 12345678901234567890.123456789")), "12345678901234567890.123456789")
    equal(one(conn, "select timestamptz '2024-02-29 12:00:00+00'").isoformat()[:10], "2024-02-29")


@case
def nulls():
    conn = connect()
    equal(one(conn, "select %s::text", None), None)
    equal(one(conn, "select ''"), "")


@case
def large_values():
    conn = connect()
    equal(one(conn, "select length(%s)", big), len(big))
    equal(one(conn, "select %s", big), big)


@case
def many_rows():
    with connect().cursor() as c:
        c.execute("select n, repeat('x', 50) from generate_series(1, 100000) n")
        equal(sum(r[0] for r in c.fetchall()), 5000050000)


@case
def error_in_the_middle():
    conn = connect(autocommit=False)
    one(conn, "insert into item values (1, 'a', 1)")
    equal(code(one, conn, "select 1/0")[0], "22012")
    equal(code(one, conn, "select 1")[0], "25P02")
    conn.rollback()
    equal(one(conn, "select count(*) from item where id = 1"), 0)


@case
def savepoints():
    conn = connect(autocommit=False)
    one(conn, "savepoint a")
    equal(code(one, conn, "select nothing")[0], "42703")
    one(conn, "rollback to savepoint a")
    equal(one(conn, "select 1"), 1)
    conn.commit()


@case
def serialization_failure():
    a, b = connect(autocommit=False), connect(autocommit=False)
    for c in (a, b):
        c.set_session(isolation_level=ISOLATION_LEVEL_SERIALIZABLE)
        one(c, "select count(*) from item")
    one(a, "insert into item values (10, 'a', 1)")
    one(b, "insert into item values (11, 'b', 1)")
    a.commit()
    try:
        b.commit()
    except TransactionRollbackError as e:
        equal(e.pgcode, "40001")
    else:
        raise AssertionError("both committed")
    b.rollback()
    one(a, "delete from item where id = 10")
    a.commit()


@case
def prepared_statements():
    conn = connect()
    for n in range(200):
        one(conn, f"prepare p{n} (int) as select $1 + {n}")
    equal([one(conn, f"execute p{n} (1)") for n in range(200)], list(range(1, 201)))
    one(conn, "deallocate all")
    equal(code(one, conn, "execute p1 (1)")[0], "26000")


@case
def server_side_cursor():
    conn = connect(autocommit=False)
    with conn.cursor("named") as c:
        c.itersize = 100
        c.execute("select generate_series(1, 1000)")
        equal(sum(r[0] for r in c), 500500)
    with conn.cursor("scroll", scrollable=True) as c:
        c.execute("select generate_series(1, 10)")
        c.scroll(5)
        equal(c.fetchone()[0], 6)
        c.scroll(-6)
        equal(c.fetchone()[0], 1)


@case
def cursor_with_hold():
    conn = connect(autocommit=False)
    c = conn.cursor("held", withhold=True)
    c.execute("select generate_series(1, 5)")
    conn.commit()
    equal(len(c.fetchall()), 5)
    c.close()


@case
def copy_in():
    conn = connect()
    with conn.cursor() as c:
        c.copy_expert("copy item from stdin", io.StringIO("".join(f"{n}\tx\t1\n" for n in range(1000, 21000))))
        equal(c.rowcount, 20000)


@case
def copy_out():
    conn = connect()
    out = io.StringIO()
    with conn.cursor() as c:
        c.copy_expert("copy (select * from generate_series(1, 50000)) to stdout", out)
    equal(out.getvalue().count("\n"), 50000)


@case
def copy_in_bad_data():
    conn = connect()
    with conn.cursor() as c:
        equal(code(c.copy_expert, "copy item from stdin", io.StringIO("a\tb\n" * 50000))[0], "22P02")
    equal(one(conn, "select 1"), 1)


@case
def copy_in_given_up():
    class Broken:
        def read(self, _):
            raise RuntimeError("source is broken")

    conn = connect()
    with conn.cursor() as c:
        equal(code(c.copy_expert, "copy item from stdin", Broken())[0], "57014")
    equal(one(conn, "select 1"), 1)


@case
def copy_out_reader_breaks():
    class Broken:
        def write(self, _):
            raise RuntimeError("sink is broken")

    conn = connect()
    with conn.cursor() as c:
        try:
            c.copy_expert("copy (select * from generate_series(1, 100000)) to stdout", Broken())
        except RuntimeError:
            pass
    if not conn.closed:
        equal(one(conn, "select 1"), 1)


@case
def copy_into_the_guarded_table():
    conn = connect()
    with conn.cursor() as c:
        c.copy_expert("copy guarded from stdin", io.StringIO(f"{resource}\t5\n"))
        equal(c.rowcount, 1)
        equal(code(c.copy_expert, "copy guarded from stdin", io.StringIO("another\t5\n"))[0][:2], "LG")


@case
def listen_notify():
    a, b = connect(), connect()
    one(a, "listen news")
    one(b, "select pg_notify('news', 'payload')")
    assert select.select([a], [], [], 20)[0]
    a.poll()
    equal([(n.channel, n.payload) for n in a.notifies], [("news", "payload")])
    equal(a.notifies[0].pid, b.info.backend_pid)


@case
def backend_pid():
    conn = connect()
    equal(conn.info.backend_pid, one(conn, "select pg_backend_pid()"))


@case
def cancel():
    a, b = connect(), connect()
    t = threading.Timer(0.2, a.cancel)
    t.start()
    try:
        one(a, "select pg_sleep(20)")
    except QueryCanceledError as e:
        equal(e.pgcode, "57014")
    else:
        raise AssertionError("not cancelled")
    t.join()
    equal(one(a, "select 1"), 1)
    equal(one(b, "select 1"), 1)


@case
def statement_timeout():
    conn = connect()
    one(conn, "set statement_timeout = 50")
    equal(code(one, conn, "select pg_sleep(20)")[0], "57014")
    equal(one(conn, "reset statement_timeout"), "RESET")


@case
def lock_timeout():
    a, b = connect(autocommit=False), connect()
    one(a, "lock table item")
    one(b, "set lock_timeout = 50")
    equal(code(one, b, "select count(*) from item")[0], "55P03")
    a.rollback()


@case
def notices():
    conn = connect()
    one(conn, "do $$ begin raise notice 'a % b', repeat('n', 20000); raise warning 'w'; end $$")
    equal([n.split(":")[0] for n in conn.notices], ["NOTICE", "WARNING"])


@case
def several_statements():
    conn = connect()
    equal(one(conn, "select 1; select 2; select 3"), 3)
    equal(code(one, conn, "insert into item values (50, 'a', 1); select 1/0")[0], "22012")
    equal(one(conn, "select count(*) from item where id = 50"), 0)


@case
def empty_query():
    equal(code(one, connect(), "")[0], None)


@case
def executemany_and_pages():
    conn = connect()
    with conn.cursor() as c:
        psycopg2.extras.execute_batch(c, "insert into item values (%s, %s, 2)", [(n, "b") for n in range(100, 300)])
        psycopg2.extras.execute_values(c, "insert into item values %s", [(n, "v", 3) for n in range(300, 400)])
    equal(one(conn, "select count(*) from item where id between 100 and 399"), 300)


@case
def large_object():
    conn = connect(autocommit=False)
    lob = conn.lobject(0, "w")
    lob.write(b"x" * 300000)
    lob.seek(10)
    lob.truncate(20)
    lob.close()
    equal(conn.lobject(lob.oid, "rb").read(), b"x" * 20)
    conn.commit()


@case
def pool_with_a_reset():
    pool = ThreadedConnectionPool(1, 2, host=host, port=port, user=user, dbname=database, options=f"-c fence.ticket={holder.ticket}")
    conn = pool.getconn()
    write(conn, 900)
    conn.reset()  # rolls back, and resets what can be set
    pool.putconn(conn)
    conn = pool.getconn()
    equal(one(conn, "select count(*) from guarded where n = 900"), 0)
    write(conn, 901)
    conn.commit()
    pool.closeall()


@case
def pooled_connection_is_fenced():
    pool = ThreadedConnectionPool(1, 1, host=host, port=port, user=user, dbname=database, options=f"-c fence.ticket={holder.ticket}")
    conn = pool.getconn()
    fence()
    fenced(one, conn, "select 1")
    pool.putconn(conn, close=True)
    try:
        pool.getconn()
    except psycopg2.OperationalError as e:
        assert "LG001" in str(e), e
    else:
        raise AssertionError("the pool has connected with the stale ticket")


@case
def asynchronous():
    conn = psycopg2.connect(host=host, port=port, user=user, dbname=database, options=f"-c fence.ticket={holder.ticket}", async_=1)
    psycopg2.extras.wait_select(conn)
    c = conn.cursor()
    c.execute("select 5")
    psycopg2.extras.wait_select(conn)
    equal(c.fetchone()[0], 5)


@case
def another_resource_is_refused():
    equal(code(one, connect(), "insert into guarded values ('another', 1)")[0][:2], "LG")


@case
def two_phase_commit_is_refused():
    conn = connect(autocommit=False)
    conn.tpc_begin(conn.xid(1, "gtrid", "branch"))
    write(conn, 950)
    equal(code(conn.tpc_prepare)[0], "LG006")


main()
