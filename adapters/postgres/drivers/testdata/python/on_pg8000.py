"""pg8000 of Debian 12, which is 1.10: it hands over nothing when it connects, so the ticket is always SET."""
import io
import struct
import warnings

import pg8000

from cases import case, database, equal, holder, host, main, port, resource, user
from sessions import Driver, large, sessions

warnings.simplefilter("ignore")


class Pg8000(Driver):
    error = (pg8000.Error, struct.error, OSError)

    def __init__(self, **more):
        self.more = more

    def connect(self, ticket=None, autocommit=True):
        conn = pg8000.connect(user=user, host=host, port=int(port), database=database, **self.more)
        ticket = holder.ticket if ticket is None else ticket
        conn.autocommit = True
        if ticket:
            self.one(conn, f"set fence.ticket = '{ticket}'")
        conn.autocommit = autocommit
        return conn

    def one(self, conn, query, *args):
        c = conn.cursor()
        try:
            c.execute(query.replace("%", "%%") if not args else query, args)
            return c.fetchone()[0] if c.description else None
        finally:
            c.close()

    def commit(self, conn):
        conn.commit()

    def rollback(self, conn):
        conn.rollback()

    def state(self, error):
        return error.args[2] if len(error.args) > 3 else None

    def cut(self, error):
        """It reads on behind the FATAL, up to the end of the stream, which it tells in its own way."""
        assert isinstance(error, (struct.error, OSError)), error


d = Pg8000()
connect, one, write, fence, fenced, code = d.connect, d.one, d.write, d.fence, d.fenced, d.code
sessions(d)
sessions(Pg8000(ssl=True), "tls_")


@case
def statements_are_prepared():
    conn = connect()
    for n in range(100):
        equal(one(conn, f"select %s + {n % 30}", 1), 1 + n % 30)
    equal(one(conn, "select %s", large) == large, True)


@case
def rows_come_by_portals():
    """It fetches 100 rows at a time, from portals that it suspends."""
    conn = connect(autocommit=False)
    c = conn.cursor()
    c.execute("select generate_series(1, 1000)")
    equal(sum(r[0] for r in c), 500500)
    c.execute("select generate_series(1, 1000)")
    c.fetchone()
    fence()
    fenced(c.fetchall)


@case
def many_values():
    conn = connect(autocommit=False)
    c = conn.cursor()
    c.executemany("insert into item values (%s, %s, 1)", [(n, "m") for n in range(300)])
    equal(one(conn, "select count(*) from item"), 300)
    conn.rollback()


@case
def copy_in_and_out():
    conn = connect()
    c = conn.cursor()
    c.execute("copy item from stdin", stream=io.BytesIO(b"".join(b"%d\tx\t1\n" % n for n in range(1000, 3000))))
    out = io.BytesIO()
    c.execute("copy item to stdout", stream=out)
    equal(out.getvalue().count(b"\n"), 2000)
    equal(code(lambda: c.execute("copy item from stdin", stream=io.BytesIO(b"a\tb\n" * 5000))), "22P02")
    equal(one(conn, "select 1"), 1)


@case
def two_phase_commit_is_refused():
    conn = connect(autocommit=False)
    conn.tpc_begin(conn.xid(1, "a", "b"))
    write(conn)
    equal(code(conn.tpc_prepare), "LG006")


main()
