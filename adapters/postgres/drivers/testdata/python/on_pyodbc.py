import os
import threading

import pyodbc

from cases import case, database, equal, holder, host, main, port, resource, tickets, user

large = "0123456789abcdef" * (256 * 1024 // 16)
pyodbc.pooling = False  # the driver manager's own, which would hand out what an earlier case has left

# The ways in which the driver can be told to talk. Protocol=7.4-N is what follows an error: nothing, a rollback of the
# transaction, or of the statement alone by a savepoint before it.
MODES = {
    "plain": {},
    "declare_fetch": {"UseDeclareFetch": 1, "Fetch": 7},
    "error_is_left": {"Protocol": "7.4-0"},
    "error_rolls_back": {"Protocol": "7.4-1"},
    "error_rolls_back_the_statement": {"Protocol": "7.4-2"},
    "client_prepares": {"UseServerSidePrepare": 0},
    "declare_fetch_and_savepoints": {"UseDeclareFetch": 1, "Fetch": 7, "Protocol": "7.4-2"},
}


def connect(ticket=None, autocommit=True, **more):
    ticket = holder.ticket if ticket is None else ticket
    at = {"Driver": "{PostgreSQL Unicode}", "Server": host, "Port": port, "Database": database, "Uid": user, "sslmode": "disable"}
    if ticket:
        at["pqopt"] = "{options='-c fence.ticket=" + ticket + "'}"
    at.update(more)
    return pyodbc.connect(";".join(f"{k}={v}" for k, v in at.items()), autocommit=autocommit)


def one(conn, sql, *args):
    c = conn.cursor()
    c.execute(sql, *args)
    v = c.fetchone()[0] if c.description else c.rowcount
    c.close()
    return v


def write(conn, n=1):
    return one(conn, "insert into guarded values (?, ?)", resource, n)


def fails(f, *args, **more):
    """The SQLSTATE and the text of what has to fail."""
    try:
        f(*args, **more)
    except pyodbc.Error as e:
        return e.args[0], str(e.args[-1])
    raise AssertionError("no error")


def state(f, *args, **more):
    return fails(f, *args, **more)[0]


def fence():
    connect(holder.next()).close()


def fenced(f, *args):
    """The session's end: the driver's own code and the server's text, or only that the connection is lost; the next connect
    tells why."""
    code, text = fails(f, *args)
    assert "LG001" in text or "connection" in text or code.startswith("08") or code == "LG001", (code, text)
    code, text = fails(connect, tickets[holder.at - 1])
    assert "LG001" in text, (code, text)


def pid(conn):
    return one(conn, "select pg_backend_pid()")


def when_asleep(conn_pid, then):
    watch = connect()

    def wait():
        while not int(one(watch, "select count(*) from pg_stat_activity where pid = ? and wait_event = 'PgSleep'", conn_pid)):
            pass
        then()

    t = threading.Thread(target=wait, daemon=True)
    t.start()
    return t


@case
def ticket_by_pqopt():
    equal(write(connect()), 1)


@case
def ticket_by_pgoptions():
    os.environ["PGOPTIONS"] = f"-c fence.ticket={holder.ticket}"
    try:
        equal(write(connect("")), 1)
    finally:
        del os.environ["PGOPTIONS"]


@case
def ticket_by_connsettings():
    # They come behind what the driver asks for by itself, which takes a ticket.
    equal(state(connect, "", ConnSettings="{set fence.ticket = '" + holder.ticket + "'}"), "LG002")
    conn = connect(ConnSettings="{set fence.ticket = '" + holder.ticket + "'}")
    equal(write(conn), 1)


@case
def no_ticket():
    equal(state(connect, ""), "LG002")


@case
def malformed_ticket():
    assert "LG003" in fails(connect, "nonsense")[1]


@case
def set_ticket_again():
    conn = connect()
    one(conn, f"set fence.ticket = '{holder.ticket}'")
    equal(write(conn), 1)
    assert holder.ticket not in one(conn, "show fence.ticket")
    one(conn, "reset fence.ticket")
    equal(state(write, conn), "LG002")


@case
def pool_reset_keeps_the_fence():
    conn = connect()
    one(conn, "reset all")
    one(conn, "discard all")
    equal(write(conn), 1)


@case
def ticket_by_set_config():
    equal(state(one, connect(), f"select set_config('fence.ticket', '{holder.ticket}', false)"), "LG006")


@case
def another_resource_is_refused():
    equal(state(one, connect(), "insert into guarded values ('another', 1)"), "LG002")


@case
def stale_at_connect():
    stale = holder.ticket
    fence()
    text = fails(connect, stale)[1]
    assert "LG001" in text and "floor" in text, text


def in_mode(name, more):
    def add(f):
        def run():
            f(more)

        run.__name__ = f"{name}_{f.__name__}"
        case(run)

    @add
    def queries(more):
        conn = connect(**more)
        for n in range(12):
            equal(one(conn, "select cast(? as int) + 1", n), n + 1)
            equal(write(conn, 4), 1)
            equal(state(one, conn, "select 1/cast(? as int)", 0), "22012")

    @add
    def transactions(more):
        conn = connect(autocommit=False, **more)
        for n in range(5):
            write(conn, 6000)
            equal(state(one, conn, "select nothing"), "42703")
            if more.get("Protocol") in (None, "7.4-2"):
                equal(one(conn, "select 1"), 1)
            conn.rollback()
            equal(int(one(conn, "select count(*) from guarded where n = 6000")), 0)
            conn.commit()

    @add
    def ticket_for_each_transaction(more):
        # The driver puts BEGIN before the first statement's own text, and with some settings a savepoint before each.
        conn = connect(autocommit=False, **more)
        one(conn, "reset fence.ticket")
        conn.commit()
        for n in range(5):
            one(conn, f"set local fence.ticket = '{holder.ticket}'")
            equal(write(conn), 1)
            conn.commit()
            equal(state(write, conn), "LG002")
            conn.rollback()
        conn = connect(**more)
        one(conn, "reset fence.ticket")
        for n in range(5):
            one(conn, "begin")
            one(conn, f"set local fence.ticket = '{holder.ticket}'")
            equal(write(conn), 1)
            one(conn, "commit")
            equal(state(write, conn), "LG002")

    @add
    def many_rows(more):
        conn = connect(autocommit=False, **more)
        c = conn.cursor()
        c.execute("select generate_series(1, 1000)")
        equal(sum(r[0] for r in c), 500500)
        conn.commit()

    @add
    def rows_given_up(more):
        conn = connect(autocommit=False, **more)
        c = conn.cursor()
        c.execute("select generate_series(1, 1000)")
        c.fetchone()
        c.close()
        equal(one(conn, "select 1"), 1)
        conn.commit()

    @add
    def rows_of_256_kb(more):
        conn = connect(MaxLongVarcharSize=1 << 20, **more)
        c = conn.cursor()
        c.execute("select repeat('0123456789abcdef', 16384) from generate_series(1, 20)")
        rows = c.fetchall()
        equal((len(rows), rows[19][0] == large), (20, True))

    @add
    def fenced_while_idle(more):
        conn = connect(**more)
        fence()
        fenced(one, conn, "select 1")

    @add
    def fenced_in_a_transaction(more):
        conn = connect(autocommit=False, **more)
        write(conn, 777)
        fence()
        fenced(conn.commit)
        equal(int(one(connect(), "select count(*) from guarded where n = 777")), 0)

    @add
    def fenced_while_a_statement_runs(more):
        conn = connect(autocommit=False, **more)
        write(conn, 778)
        t = when_asleep(pid(conn), fence)
        fenced(one, conn, "select pg_sleep(20)")
        t.join()

    @add
    def fenced_between_rows(more):
        conn = connect(autocommit=False, **more)
        c = conn.cursor()
        c.execute("select generate_series(1, 1000)")
        c.fetchone()
        fence()
        try:
            equal(len(c.fetchall()), 999)  # it had them all
        except pyodbc.Error as e:
            assert more.get("UseDeclareFetch"), e
        fenced(one, conn, "select 1")

    @add
    def many_at_once(more):
        conn = connect(autocommit=False, **more)
        c = conn.cursor()
        c.executemany("insert into item values (?, ?, 2)", [(n, "b") for n in range(100, 300)])
        equal(int(one(conn, "select count(*) from item where id between 100 and 299")), 200)
        conn.rollback()


for name, more in MODES.items():
    in_mode(name, more)


@case
def types():
    conn = connect()
    for sql, v in (
        ("int", 5), ("bigint", 2**62), ("text", "ä€😀"), ("bytea", bytes(range(256))), ("text", None), ("float8", 1.5),
    ):
        got = one(conn, f"select cast(? as {sql})", v)
        equal(bytes(got) if isinstance(v, bytes) else got, v)


@case
def isolation_levels():
    for level, want in ((pyodbc.SQL_TXN_SERIALIZABLE, "serializable"), (pyodbc.SQL_TXN_REPEATABLE_READ, "repeatable read")):
        conn = connect(autocommit=False)
        conn.set_attr(pyodbc.SQL_ATTR_TXN_ISOLATION, level)
        equal(one(conn, "show transaction_isolation"), want)


@case
def savepoints():
    conn = connect(autocommit=False, Protocol="7.4-0")
    one(conn, "savepoint a")
    equal(state(one, conn, "select nothing"), "42703")
    one(conn, "rollback to savepoint a")
    equal(write(conn), 1)
    conn.commit()


@case
def statement_timeout():
    conn = connect()
    one(conn, "set statement_timeout = 50")
    equal(state(one, conn, "select pg_sleep(20)"), "57014")
    one(conn, "reset statement_timeout")
    equal(one(conn, "select 1"), 1)


@case
def cancel_reaches_its_own_backend_only():
    a, b = connect(), connect()
    got = []
    other = threading.Thread(target=lambda: got.append(one(b, "select 5 from pg_sleep(0.5)")))
    other.start()
    c = a.cursor()
    t = when_asleep(pid(a), c.cancel)
    equal(state(c.execute, "select pg_sleep(20)"), "57014")
    t.join()
    other.join()
    equal((got, one(a, "select 1")), ([5], 1))


@case
def catalogue():
    equal(len(connect().cursor().columns(table="item").fetchall()), 3)


@case
def several_statements():
    conn = connect()
    c = conn.cursor()
    c.execute("select 1; select 2")
    c.nextset()
    equal(c.fetchone()[0], 2)
    equal(state(one, connect(Protocol="7.4-0"), "insert into item values (50, 'a', 1); select 1/0"), "22012")


@case
def large_object_by_functions():
    conn = connect(autocommit=False)
    oid = one(conn, "select lo_from_bytea(0, ?)", b"x" * 300000)
    equal(int(one(conn, "select length(lo_get(?))", oid)), 300000)
    one(conn, "select lo_unlink(?)", oid)
    conn.commit()


@case
def tls_and_scram():
    for mode in ("require", "verify-ca", "verify-full"):
        conn = connect(sslmode=mode, Uid="scram", Pwd="secret", pqopt="{options='-c fence.ticket=" + holder.ticket + "' sslrootcert=" + os.environ["ROOTCERT"] + "}")
        equal(write(conn), 1)
        fence()
        fenced(one, conn, "select 1")


@case
def wrong_password():
    assert "password" in fails(connect, Uid="scram", Pwd="wrong")[1]


@case
def concurrent_connections():
    failed = []

    def work():
        try:
            conn = connect()
            for _ in range(20):
                write(conn, 3)
        except pyodbc.Error as e:
            failed.append(e)

    threads = [threading.Thread(target=work) for _ in range(20)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    equal(failed, [])


@case
def pooled_connection_is_fenced():
    pyodbc.pooling = True
    try:
        conn = connect()
        write(conn)
        conn.close()
        fence()
        assert "LG001" in fails(connect, tickets[holder.at - 1])[1]
    finally:
        pyodbc.pooling = False


@case
def two_phase_commit_is_refused():
    conn = connect(autocommit=False)
    write(conn, 950)
    equal(state(one, conn, "prepare transaction 'x'"), "LG006")


main()
