"""psycopg 3: its sessions, and what only it has, pipelines above all. Its asyncio half is in on_psycopg_async.py."""
import os
import threading
from contextlib import closing

import psycopg
from psycopg import sql
from psycopg_pool import ConnectionPool, PoolTimeout

from cases import case, database, equal, holder, host, main, port, resource, tickets, user
from sessions import Driver, concurrently, large, sessions


def at(ticket=None, **more):
    """What to connect with."""
    ticket = holder.ticket if ticket is None else ticket
    return {"host": host, "port": port, "user": user, "dbname": database, "sslmode": "disable",
            "options": f"-c fence.ticket={ticket}" if ticket else ""} | more


class Psycopg(Driver):
    error = psycopg.Error

    def __init__(self, **more):
        self.more = more

    def connect(self, ticket=None, autocommit=True, **more):
        return psycopg.connect(**at(ticket, autocommit=autocommit, **self.more, **more))

    def one(self, conn, query, *args):
        c = conn.execute(query, args or None)
        return c.fetchone()[0] if c.description else None

    def commit(self, conn):
        conn.commit()

    def rollback(self, conn):
        conn.rollback()

    def state(self, error):
        return error.sqlstate

    def cut(self, error):
        assert isinstance(error, psycopg.OperationalError) and closed(error) or error.sqlstate == "LG001", error


def closed(error):
    """psycopg tells the last of libpq's results, the end of the stream, where that came right behind the FATAL."""
    return any(text in str(error) for text in ("(LG001)", "closed the connection", "connection is lost", "connection is closed"))


d = Psycopg()
connect, one, write, code, fence, fenced = d.connect, d.one, d.write, d.code, d.fence, d.fenced
sessions(d)
sessions(Psycopg(cursor_factory=psycopg.ClientCursor), "simple_protocol_")


@case
def the_fatal_is_told():
    """A transaction that is idle: the FATAL has come before the next statement is sent."""
    conn = connect(autocommit=False)
    write(conn)
    fence()
    e = d.fails(write, conn)
    assert e.sqlstate == "LG001" or closed(e), e
    assert conn.broken and conn.closed


@case
def ticket_by_conninfo():
    for text in (
        f"host={host} port={port} user={user} dbname={database} options='-c fence.ticket={holder.ticket} -c work_mem=5MB'",
        f"postgresql://{user}@{host}:{port}/{database}?options=-c%20fence.ticket%3D{holder.ticket}%20-c%20work_mem%3D5MB&application_name=a",
    ):
        with closing(psycopg.connect(text, autocommit=True)) as conn:
            write(conn)
            equal(one(conn, "show work_mem"), "5MB")


@case
def several_hosts():
    """libpq goes on to the next host where one does not answer, but not after a refusal."""
    with closing(connect(host=f"127.0.0.1,{host}", port=f"1,{port}", target_session_attrs="read-write")) as conn:
        write(conn)
    stale = holder.ticket
    fence()
    e = d.fails(connect, stale, True)
    equal(str(e).count("LG001"), 1)


@case
def scram_and_tls():
    for mode in ("require", "verify-ca", "verify-full"):
        conn = connect(user="scram", password="secret", sslmode=mode, sslrootcert=os.environ["ROOTCERT"])
        write(conn)
        assert conn.pgconn.ssl_in_use
        fence()
        fenced(one, conn, "select 1")


@case
def wrong_password():
    assert "password" in str(d.fails(lambda: connect(user="scram", password="wrong")))


@case
def prepared_statements_by_threshold():
    conn = connect(prepare_threshold=2)
    conn.prepared_max = 10
    for n in range(60):
        equal(one(conn, f"select %s::int + {n % 20}", 1), 1 + n % 20)
    for n in range(10):
        one(conn, "select %s::int", n)
        if n == 5:
            one(conn, "discard all")
            assert code(one, conn, "select %s::int", n) == "26000"  # as without a proxy
            break


@case
def prepared_statements_with_a_ticket_each():
    conn = connect("", autocommit=False, prepare_threshold=0)
    for n in range(10):
        one(conn, f"set local fence.ticket = '{holder.ticket}'")
        one(conn, "insert into guarded values (%s, %s)", resource, n)
        conn.commit()
        equal(code(one, conn, "insert into guarded values (%s, %s)", resource, n), "LG002")
        conn.rollback()


@case
def binary_values():
    conn = connect()
    for typ, v in (("bytea", bytes(range(256))), ("int8", 2**62), ("text", "ä€😀"), ("float8", 1.5), ("int[]", [1, None, 3]), ("text", None)):
        for binary in (True, False):
            with conn.cursor(binary=binary) as c:
                equal(c.execute(f"select %b::{typ}" if binary else f"select %t::{typ}", (v,)).fetchone()[0], v)


@case
def values_of_256_kb():
    conn = connect()
    for _ in range(10):
        equal(one(conn, "select %s::text", large) == large, True)


@case
def server_cursors():
    conn = connect(autocommit=False)
    with conn.cursor("named") as c:
        c.itersize = 7
        c.execute("select generate_series(1, 1000)")
        equal(sum(r[0] for r in c), 500500)
    with conn.cursor("scroll", scrollable=True) as c:
        c.execute("select generate_series(1, 10)")
        c.scroll(5)
        equal(c.fetchone()[0], 6)
    held = conn.cursor("held", withhold=True)
    held.execute("select generate_series(1, 5)")
    conn.commit()
    equal(len(held.fetchall()), 5)


@case
def fenced_between_fetches():
    conn = connect(autocommit=False)
    c = conn.cursor("named")
    c.execute("select generate_series(1, 1000)")
    c.fetchmany(10)
    fence()
    fenced(c.fetchmany, 10)


@case
def rows_one_by_one():
    conn = connect()
    with conn.cursor() as c:
        equal(sum(r[0] for r in c.stream("select generate_series(1, 20000)")), 200010000)
        for r in c.stream("select generate_series(1, 100000)"):
            break  # the rest is read and thrown away
        equal(c.execute("select 1").fetchone()[0], 1)


@case
def fenced_while_rows_stream():
    conn = connect(autocommit=False)
    write(conn, 40)
    rows = conn.cursor().stream("select repeat('x', 1000) from generate_series(1, 200000)")
    next(rows)
    fence()
    fenced(lambda: sum(1 for _ in rows))
    equal(d.count(40), 0)


@case
def executemany_is_a_pipeline():
    conn = connect(autocommit=False)
    with conn.cursor() as c:
        c.executemany("insert into item values (%s, 'm', 1)", [(n,) for n in range(2000)])
        equal(c.rowcount, 2000)
        c.executemany("select %s::int", [(n,) for n in range(100)], returning=True)
        got = [c.fetchone()[0]]
        while c.nextset():
            got.append(c.fetchone()[0])
        equal(got, list(range(100)))
        equal(code(c.executemany, "insert into item values (%s, 'm', 1)", [(9001,), (9001,)]), "23505")
    conn.rollback()


@case
def pipeline():
    conn = connect()
    with conn.pipeline() as p:
        cursors = [conn.execute("select %s::int", (n,)) for n in range(200)]
        equal(cursors[5].fetchone()[0], 5)
        p.sync()
        more = conn.execute("select 7")
    equal([c.fetchone()[0] for c in cursors if c is not cursors[5]], [n for n in range(200) if n != 5])
    equal(more.fetchone()[0], 7)


@case
def pipeline_fails_as_a_whole():
    conn = connect()

    def run():
        with conn.pipeline():
            write(conn, 41)
            conn.execute("select 1/0")
            write(conn, 41)

    equal(code(run), "22012")
    equal((d.count(41), one(conn, "select 1")), (0, 1))


@case
def pipeline_goes_on_behind_its_sync():
    conn = connect()
    with conn.pipeline() as p:
        conn.execute("select 1/0")
        equal(code(p.sync), "22012")
        c = conn.execute("select 2")
        equal(c.fetchone()[0], 2)


def write_silently(conn, n):
    conn.execute("insert into guarded values (%s, %s)", (resource, n))


@case
def pipeline_of_a_transaction():
    conn = connect(autocommit=False)
    with conn.pipeline():
        for _ in range(10):
            write_silently(conn, 42)
        conn.commit()
        write_silently(conn, 43)
        conn.rollback()
    equal((d.count(42), d.count(43)), (10, 0))


@case
def pipeline_with_transaction_blocks():
    conn = connect()
    with conn.pipeline():
        with conn.transaction():
            write_silently(conn, 44)
            try:
                with conn.transaction():
                    write_silently(conn, 45)
                    conn.execute("select 1/0").fetchone()
            except psycopg.errors.DivisionByZero:
                pass
            write_silently(conn, 44)
    equal((d.count(44), d.count(45)), (2, 0))


@case
def pipeline_brings_its_ticket():
    conn = connect("")
    with conn.pipeline():
        with conn.transaction():
            conn.execute(f"set local fence.ticket = '{holder.ticket}'")
            write_silently(conn, 46)
    equal(d.count(46), 1)
    equal(code(write, conn), "LG002")


@case
def pipeline_sets_the_ticket():
    conn = connect("")
    with conn.pipeline() as p:
        conn.execute(f"set fence.ticket = '{holder.ticket}'")
        p.sync()
        for _ in range(5):
            write_silently(conn, 47)
    equal(d.count(47), 5)


@case
def pipeline_without_a_ticket():
    conn = connect("")

    def run():
        with conn.pipeline():
            write_silently(conn, 48)
            write_silently(conn, 48)

    equal(code(run), "LG002")
    equal((d.count(48), conn.closed), (0, False))


@case
def pipeline_is_fenced():
    conn = connect()

    def run():
        with conn.pipeline() as p:
            with conn.transaction():
                write_silently(conn, 49)
                p.sync()
                fence()
                for _ in range(20):
                    write_silently(conn, 49)

    fenced(run)
    equal(d.count(49), 0)


@case
def pipeline_of_large_values():
    """Both sides write more than the sockets hold."""
    conn = connect()
    with conn.pipeline():
        cursors = [conn.execute("select %s::text", (large,)) for _ in range(60)]
    equal(all(c.fetchone()[0] == large for c in cursors), True)


@case
def copy_in():
    conn = connect()
    with conn.cursor() as c:
        with c.copy("copy item from stdin") as copy:
            for n in range(10000, 20000):
                copy.write_row((n, "x", 1))
        equal(c.rowcount, 10000)
        with c.copy("copy item from stdin (format binary)") as copy:
            copy.set_types(["int8", "text", "numeric"])
            for n in range(20000, 21000):
                copy.write_row((n, "x", None))
        equal(c.rowcount, 1000)


@case
def copy_out():
    conn = connect()
    with conn.cursor() as c:
        with c.copy("copy (select repeat('x', 99) from generate_series(1, 20000)) to stdout") as copy:
            equal(sum(len(data) for data in copy), 20000 * 100)
        with c.copy("copy (select n::int8 from generate_series(1, 1000) n) to stdout (format binary)") as copy:
            copy.set_types(["int8"])
            equal(sum(r[0] for r in copy.rows()), 500500)


@case
def copy_in_of_bad_data():
    conn = connect()

    def run():
        with conn.cursor() as c, c.copy("copy item from stdin") as copy:
            for _ in range(20000):
                copy.write(b"a\tb\n")

    equal(code(run), "22P02")
    equal(one(conn, "select 1"), 1)


@case
def copy_in_given_up():
    conn = connect()
    try:
        with conn.cursor() as c, c.copy("copy item from stdin") as copy:
            copy.write(b"60000\tx\t1\n")
            raise RuntimeError("source is broken")
    except (RuntimeError, psycopg.errors.QueryCanceled):
        pass
    equal(one(conn, "select count(*) from item where id = 60000"), 0)


@case
def copy_out_cancelled():
    conn = connect()

    def run():
        with conn.cursor() as c, c.copy("copy (select repeat('x', 1000) from generate_series(1, 500000)) to stdout") as copy:
            copy.read()
            conn.cancel()
            for _ in copy:
                pass

    equal(code(run), "57014")
    equal(one(conn, "select 1"), 1)


@case
def fenced_in_copy_in():
    conn = connect(autocommit=False)

    def run():
        with conn.cursor() as c, c.copy("copy guarded from stdin") as copy:
            copy.write(f"{resource}\t50\n")
            fence()
            for _ in range(100000):
                copy.write(f"{resource}\t50\n" * 100)

    fenced(run)
    equal(d.count(50), 0)


@case
def fenced_before_the_end_of_copy_in():
    conn = connect(autocommit=False)

    def run():
        with conn.cursor() as c, c.copy("copy guarded from stdin") as copy:
            copy.write(f"{resource}\t51\n")
            fence()

    fenced(run)
    equal(d.count(51), 0)


@case
def fenced_in_copy_out():
    conn = connect(autocommit=False)
    write(conn, 52)

    def run():
        with conn.cursor() as c, c.copy("copy (select repeat('x', 1000) from generate_series(1, 500000)) to stdout") as copy:
            copy.read()
            fence()
            for _ in copy:
                pass

    fenced(run)
    equal(d.count(52), 0)


@case
def large_objects():
    conn = connect(autocommit=False)
    oid = one(conn, "select lo_from_bytea(0, %b)", b"x" * 300000)
    fd = one(conn, "select lo_open(%s, 393216)", oid)
    equal(len(one(conn, "select loread(%s, 1000000)", fd)), 300000)
    equal(one(conn, "select lo_unlink(%s)", oid), 1)
    conn.commit()


@case
def notifications():
    a, b = connect(), connect()
    one(a, "listen news")
    one(b, "select pg_notify('news', %s)", "y" * 7000)
    n = next(a.notifies())
    equal((n.channel, len(n.payload), n.pid), ("news", 7000, b.info.backend_pid))


@case
def a_listener_is_fenced():
    a = connect()
    one(a, "listen news")
    t = threading.Timer(0.05, fence)
    t.start()
    fenced(lambda: next(a.notifies()))
    t.join()


@case
def cancel_reaches_its_own_backend_only():
    a, b = connect(), connect()
    got = []
    other = threading.Thread(target=lambda: got.append(one(b, "select 5 from pg_sleep(0.3)")))
    other.start()
    t = d.when_asleep(a, a.cancel)
    equal(code(one, a, "select pg_sleep(20)"), "57014")
    t.join()
    other.join()
    equal((got, one(a, "select 1")), ([5], 1))


@case
def notices():
    conn, got = connect(), []
    conn.add_notice_handler(lambda n: got.append(n.severity))
    one(conn, "do $$ begin raise notice '%', repeat('n', 20000); raise warning 'w'; end $$")
    equal(got, ["NOTICE", "WARNING"])


@case
def several_statements():
    conn = connect()
    c = conn.execute("select 1; select 2; select 3")
    got = [c.fetchone()[0]]
    while c.nextset():
        got.append(c.fetchone()[0])
    equal(got, [1, 2, 3])
    equal(code(one, conn, "insert into item values (50, 'a', 1); select 1/0"), "22012")
    equal(one(conn, "select count(*) from item where id = 50"), 0)


@case
def characteristics_of_transactions():
    conn = connect(autocommit=False)
    conn.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    conn.read_only = True
    conn.deferrable = True
    equal(one(conn, "show transaction_isolation"), "serializable")
    equal(code(write, conn), "25006")
    conn.rollback()


@case
def serialization_failure():
    a, b = connect(autocommit=False), connect(autocommit=False)
    for c in (a, b):
        c.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        one(c, "select count(*) from guarded")
    write(a, 53)
    write(b, 54)
    a.commit()
    equal(code(b.commit), "40001")


@case
def nested_blocks():
    conn = connect()
    with conn.transaction():
        write(conn, 55)
        try:
            with conn.transaction("inner"):
                write(conn, 56)
                raise psycopg.Rollback("inner")
        except psycopg.Rollback:
            pass
        with conn.transaction(force_rollback=True):
            write(conn, 56)
    equal((d.count(55), d.count(56)), (1, 0))


@case
def fenced_in_a_block():
    conn = connect()

    def run():
        with conn.transaction(), conn.transaction():
            write(conn, 57)
            fence()

    fenced(run)
    equal(d.count(57), 0)


@case
def two_phase_commit_is_refused():
    conn = connect(autocommit=False)
    conn.tpc_begin("x")
    write(conn, 58)
    equal(code(conn.tpc_prepare), "LG006")


@case
def composed_set_of_the_ticket():
    conn = connect("")
    conn.execute(sql.SQL("set fence.ticket = {}").format(sql.Literal(holder.ticket)))
    write(conn)
    conn = connect("", cursor_factory=psycopg.ClientCursor)
    conn.execute("set fence.ticket = %s", (holder.ticket,))
    write(conn)


def pool(**more):
    kwargs = {"autocommit": True} | at(more.pop("ticket", None))
    return ConnectionPool("", kwargs=kwargs, **{"min_size": 2, "max_size": 4, "timeout": 20} | more)


@case
def pool_of_one_ticket():
    with pool() as p:
        p.wait()

        def work():
            for _ in range(10):
                with p.connection() as conn:
                    write(conn)

        concurrently(8, work)


@case
def pool_with_a_ticket_for_each_borrower():
    def clean(conn):
        conn.execute("reset fence.ticket")

    with pool(ticket="", reset=clean, max_size=2) as p:
        for _ in range(10):
            with p.connection() as conn:
                equal(code(write, conn), "LG002")
                one(conn, f"set fence.ticket = '{holder.ticket}'")
                write(conn)


@case
def pool_with_a_reset_keeps_its_ticket():
    def clean(conn):
        conn.execute("discard all")

    with pool(reset=clean, min_size=1, max_size=1) as p:
        for _ in range(5):
            with p.connection() as conn:
                write(conn)


@case
def pool_is_fenced():
    """What is open ends at its next use; nothing connects again, until the pool gives up."""
    p = pool(reconnect_timeout=0.5, min_size=2, max_size=2)
    p.wait()
    fence()
    for _ in range(2):
        with p.connection() as conn:
            fenced(one, conn, "select 1")
    try:
        with p.connection(timeout=1):
            raise AssertionError("lent a connection")
    except PoolTimeout:
        pass
    p.close(timeout=5)


@case
def pool_finds_the_fenced():
    p = pool(reconnect_timeout=0.5, min_size=2, max_size=2)
    p.wait()
    fence()
    p.check()
    equal(p.get_stats()["connections_lost"], 2)
    p.close(timeout=5)


main()
