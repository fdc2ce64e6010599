"""The cases of a session's tickets and of its fence, for every driver that says in a Driver how it does things."""
import threading

from cases import case, equal, holder, resource, tickets

large = "0123456789abcdef" * (256 * 1024 // 16)


class Driver:
    """How a driver connects, executes and tells errors.

    error is the class of its errors; startup says whether it can hand over the ticket when it connects."""

    error = Exception
    startup = True

    def connect(self, ticket=None, autocommit=True):
        """A session; without a ticket it has the holder's newest, with "" none."""

    def one(self, conn, sql):
        """The first column of the first row, or None where there are no rows."""

    def commit(self, conn): ...

    def rollback(self, conn): ...

    def state(self, error):
        """The SQLSTATE, or None where the driver does not tell it."""

    def cut(self, error):
        """Checks what ended a session that was fenced."""

    # What is the same for all.

    at = 1000

    def fresh(self):
        """A number that no row has."""
        Driver.at += 1
        return Driver.at

    def write(self, conn, n=1):
        self.one(conn, f"insert into guarded values ('{resource}', {n})")

    def count(self, n):
        return self.one(self.connect(), f"select count(*) from guarded where resource = '{resource}' and n = {n}")

    def fails(self, f, *args):
        try:
            f(*args)
        except self.error as e:
            return e
        raise AssertionError("no error")

    def code(self, f, *args):
        return self.state(self.fails(f, *args))

    def refused(self, ticket, code):
        """Connecting, or else setting the ticket, is refused."""
        e = self.fails(self.connect, ticket)
        assert self.state(e) == code or code in str(e), e
        return str(e)

    def fence(self):
        self.connect(holder.next())

    def fenced(self, f, *args):
        """Checks that this ends the session, and that its ticket is refused from then on."""
        self.cut(self.fails(f, *args))
        self.refused(tickets[holder.at - 1], "LG001")

    def when_asleep(self, conn, then):
        """Does it in a thread, as soon as the session sleeps."""
        pid, watch = self.one(conn, "select pg_backend_pid()"), self.connect()
        asleep = f"select count(*) from pg_stat_activity where pid = {pid} and wait_event = 'PgSleep'"

        def wait():
            while not self.one(watch, asleep):
                pass
            then()

        t = threading.Thread(target=wait, daemon=True)
        t.start()
        return t


def concurrently(n, f):
    """Runs f in n threads and raises what one of them raised."""
    failed = []

    def run():
        try:
            f()
        except Exception as e:
            failed.append(e)

    threads = [threading.Thread(target=run) for _ in range(n)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failed:
        raise failed[0]


def sessions(d, prefix=""):
    """Makes the cases of a driver, or, named by a prefix, of one of its ways."""

    def add(f):
        f.__name__ = prefix + f.__name__
        return case(f)

    tickets_of_a_session(d, add)
    fenced_sessions(d, add)
    transactions(d, add)


def tickets_of_a_session(d, add):
    @add
    def ticket_at_connect():
        n = d.fresh()
        d.write(d.connect(), n)
        assert d.count(n)

    @add
    def no_ticket():
        equal(d.code(d.one, d.connect(""), "select 1"), "LG002")

    @add
    def malformed_ticket():
        d.refused("nonsense", "LG003")

    @add
    def set_ticket():
        conn = d.connect("")
        d.one(conn, f"set fence.ticket = '{holder.ticket}'")
        d.write(conn)
        assert holder.ticket not in d.one(conn, "show fence.ticket")

    @add
    def set_local_ticket():
        conn = d.connect("", autocommit=False)
        for _ in range(3):
            d.one(conn, f"set local fence.ticket = '{holder.ticket}'")
            d.write(conn)
            d.commit(conn)
            equal(d.code(d.write, conn), "LG002")
            d.rollback(conn)

    @add
    def reset_ticket():
        conn = d.connect()
        d.one(conn, "reset fence.ticket")
        equal(d.code(d.write, conn), "LG002")

    @add
    def ticket_late_in_a_transaction():
        conn = d.connect(autocommit=False)
        d.one(conn, "select 1")
        equal(d.code(d.one, conn, f"set fence.ticket = '{holder.ticket}'"), "LG006")
        d.rollback(conn)

    @add
    def ticket_by_set_config():
        equal(d.code(d.one, d.connect(), f"select set_config('fence.ticket', '{holder.ticket}', false)"), "LG006")

    @add
    def a_reset_keeps_the_fence():
        conn = d.connect()
        d.one(conn, "reset all")
        d.write(conn)
        d.one(conn, "discard all")
        d.fence()
        d.fenced(d.write, conn)

    @add
    def another_resource_is_refused():
        equal(d.code(d.one, d.connect(), "insert into guarded values ('another', 1)"), "LG002")


def fenced_sessions(d, add):
    @add
    def stale_at_connect():
        stale = holder.ticket
        d.fence()
        text = d.refused(stale, "LG001")
        assert "floor" in text, text

    @add
    def fenced_while_idle():
        conn = d.connect()
        d.fence()
        d.fenced(d.one, conn, "select 1")

    @add
    def fenced_in_a_transaction():
        n = d.fresh()
        conn = d.connect(autocommit=False)
        d.write(conn, n)
        d.fence()
        d.fenced(d.write, conn, n)
        equal(d.count(n), 0)

    @add
    def fenced_before_the_commit():
        n = d.fresh()
        conn = d.connect(autocommit=False)
        d.write(conn, n)
        d.fence()
        d.fenced(d.commit, conn)
        equal(d.count(n), 0)

    @add
    def fenced_while_a_statement_runs():
        n = d.fresh()
        conn = d.connect(autocommit=False)
        d.write(conn, n)
        t = d.when_asleep(conn, d.fence)
        d.fenced(d.one, conn, "select pg_sleep(20)")
        t.join()
        equal(d.count(n), 0)

    @add
    def connecting_again_takes_a_newer_ticket():
        n = d.fresh()
        stale = holder.ticket
        d.fence()
        for _ in range(5):
            d.refused(stale, "LG001")
        d.write(d.connect(), n)
        equal(d.count(n), 1)

    @add
    def many_sessions_are_fenced_at_once():
        n = d.fresh()
        conns = [d.connect() for _ in range(10)]
        d.fence()
        for conn in conns:
            d.cut(d.fails(d.write, conn, n))
        equal(d.count(n), 0)

    @add
    def fenced_in_a_transaction_that_has_failed():
        conn = d.connect(autocommit=False)
        equal(d.code(d.one, conn, "select 1/0"), "22012")
        d.fence()
        d.fenced(d.one, conn, "select 1")


def transactions(d, add):
    @add
    def error_in_the_middle():
        n = d.fresh()
        conn = d.connect(autocommit=False)
        d.write(conn, n)
        equal(d.code(d.one, conn, "select 1/0"), "22012")
        equal(d.code(d.one, conn, "select 1"), "25P02")
        d.rollback(conn)
        equal(d.count(n), 0)

    @add
    def savepoints_by_hand():
        n = d.fresh()
        conn = d.connect(autocommit=False)
        d.one(conn, "savepoint a")
        equal(d.code(d.one, conn, "select nothing"), "42703")
        d.one(conn, "rollback to savepoint a")
        d.write(conn, n)
        d.commit(conn)
        equal(d.count(n), 1)

    @add
    def prepared_transaction_is_refused():
        n = d.fresh()
        conn = d.connect(autocommit=False)
        d.write(conn, n)
        equal(d.code(d.one, conn, "prepare transaction 'x'"), "LG006")

    @add
    def rows_of_256_kb():
        conn = d.connect()
        for _ in range(5):
            assert d.one(conn, "select repeat('0123456789abcdef', 16384) from generate_series(1, 10)") == large
        equal(d.one(conn, f"select length('{large}')"), len(large))

    @add
    def statement_timeout_ends_the_statement():
        conn = d.connect()
        d.one(conn, "set statement_timeout = 50")
        equal(d.code(d.one, conn, "select pg_sleep(20)"), "57014")
        d.one(conn, "reset statement_timeout")
        equal(d.one(conn, "select 1"), 1)

    @add
    def concurrent_connections():
        n = d.fresh()
        def work():
            conn = d.connect()
            for _ in range(10):
                d.write(conn, n)

        concurrently(15, work)
        equal(d.count(n), 150)
