"""SQLAlchemy's engines, pools and sessions, over psycopg2 and, with asyncio, over asyncpg."""
import asyncio
import io
import threading
from contextlib import contextmanager

from sqlalchemy import BigInteger, Column, Numeric, Text, create_engine, event, exc, insert, inspect, select, text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.orm import Session, declarative_base
from sqlalchemy.pool import NullPool, QueuePool

from cases import case, database, equal, holder, host, main, port, resource, user
from sessions import Driver, large, sessions

where = f"{user}@{host}:{port}/{database}"
asked = threading.local()  # the ticket that the connection about to be made is to have


def ticket():
    """What engines connect with: the holder's newest, unless a case asks for another."""
    t = getattr(asked, "ticket", None)
    return holder.ticket if t is None else t


@contextmanager
def with_ticket(t):
    asked.ticket = t
    try:
        yield
    finally:
        asked.ticket = None


def engine(ticket=ticket, **more):
    """An engine that looks the ticket up whenever it connects. use_native_hstore asks the server at each connect."""
    e = create_engine(f"postgresql+psycopg2://{where}", future=True, use_native_hstore=False, **more)

    @event.listens_for(e, "do_connect")
    def with_options(dialect, record, args, params):
        t = ticket()
        params["options"] = f"-c fence.ticket={t}" if t else ""

    return e


class OnPsycopg2(Driver):
    error = exc.DBAPIError

    def __init__(self):
        self.engine = engine(poolclass=NullPool)

    def connect(self, ticket=None, autocommit=True):
        with with_ticket(None):
            self.engine.connect().close()  # the first one asks for the server's version
        with with_ticket(ticket):
            conn = self.engine.connect()
        return conn.execution_options(isolation_level="AUTOCOMMIT") if autocommit else conn

    def one(self, conn, query):
        result = conn.exec_driver_sql(query)
        return result.scalar() if result.returns_rows else None

    def commit(self, conn):
        conn.commit()

    def rollback(self, conn):
        conn.rollback()

    def state(self, error):
        return error.orig.pgcode

    def cut(self, error):
        assert error.connection_invalidated and "closed the connection" in str(error), error


class OnAsyncpg(Driver):
    error = exc.DBAPIError

    def connect(self, ticket=None, autocommit=True):
        shown = holder.ticket if ticket is None else ticket
        e = create_async_engine(f"postgresql+asyncpg://{where}", poolclass=NullPool, future=True, connect_args={
            "ssl": False, "server_settings": {"fence.ticket": shown or holder.ticket}})
        loop = asyncio.new_event_loop()
        try:
            conn = loop.run_until_complete(e.connect())
        except Exception as error:  # what fails in connecting is asyncpg's own
            if hasattr(error, "sqlstate"):
                raise exc.DBAPIError("connect", {}, error) from error
            raise
        if not shown:  # connecting asks for types, which takes a ticket
            loop.run_until_complete(conn.exec_driver_sql("reset fence.ticket"))
            loop.run_until_complete(conn.commit())
        if autocommit:
            conn = loop.run_until_complete(conn.execution_options(isolation_level="AUTOCOMMIT"))
        return loop, conn

    def one(self, conn, query):
        result = conn[0].run_until_complete(conn[1].exec_driver_sql(query))
        return result.scalar() if result.returns_rows else None

    def commit(self, conn):
        conn[0].run_until_complete(conn[1].commit())

    def rollback(self, conn):
        conn[0].run_until_complete(conn[1].rollback())

    def state(self, error):
        return getattr(error.orig, "sqlstate", None)

    def cut(self, error):
        assert self.state(error) in ("LG001", "08003") or "closed" in str(error), error


d = OnPsycopg2()
sessions(d)
sessions(OnAsyncpg(), "asyncpg_")

Base = declarative_base()


class Item(Base):
    __tablename__ = "item"
    id = Column(BigInteger, primary_key=True)
    name = Column(Text)
    price = Column(Numeric)


def write(conn, n=1):
    conn.execute(text("insert into guarded values (:r, :n)"), {"r": resource, "n": n})


def state(f, *args):
    return d.code(f, *args)


def pooled(**more):
    return engine(poolclass=QueuePool, pool_size=1, max_overflow=0, **more)


@case
def the_first_connect_takes_a_ticket():
    with with_ticket(""):
        equal(state(engine().connect), "LG002")


@case
def ticket_in_the_url():
    e = create_engine(f"postgresql+psycopg2://{where}?options=-c%20fence.ticket%3D{holder.ticket}", future=True)
    with e.begin() as conn:
        write(conn)
    e.dispose()


@case
def ticket_by_connect_args():
    e = create_engine(f"postgresql+psycopg2://{where}", future=True, connect_args={"options": f"-c fence.ticket={holder.ticket}"})
    with e.begin() as conn:
        write(conn)
    e.dispose()


@case
def reset_on_return_rolls_back():
    e = pooled()
    with e.connect() as conn:
        write(conn, 60)
    with e.begin() as conn:
        write(conn, 61)
    equal((d.count(60), d.count(61)), (0, 1))
    e.dispose()


@case
def pre_ping_finds_the_fenced_and_connects_with_a_newer_ticket():
    e = pooled(pool_pre_ping=True)
    for n in range(3):
        with e.begin() as conn:
            write(conn, 62)
        d.fence()
    equal(d.count(62), 3)
    e.dispose()


@case
def pre_ping_with_the_stale_ticket():
    stale = holder.ticket
    e = pooled(pool_pre_ping=True, ticket=lambda: stale)
    e.connect().close()
    d.fence()
    for _ in range(3):
        error = d.fails(e.connect)
        assert "LG001" in str(error), error
    e.dispose()


@case
def without_pre_ping_one_statement_fails():
    e = pooled()
    e.connect().close()
    d.fence()
    with e.connect() as conn:
        error = d.fails(write, conn)
        d.cut(error)
        conn.rollback()  # from here on another connection of the pool
        write(conn, 63)
        conn.commit()
    equal(d.count(63), 1)
    e.dispose()


@case
def the_whole_pool_is_replaced():
    """A lost connection makes the engine drop all that are older."""
    e = engine(pool_size=3)
    conns = [e.connect() for _ in range(3)]
    for conn in conns:
        conn.close()
    d.fence()
    with e.connect() as conn:
        d.cut(d.fails(write, conn))
    for _ in range(3):
        with e.begin() as conn:
            write(conn)
    e.dispose()


@case
def ticket_for_each_transaction_by_an_event():
    e = pooled()
    e.connect().close()

    @event.listens_for(e, "begin")
    def show(conn):
        conn.exec_driver_sql(f"set local fence.ticket = '{holder.ticket}'")

    @event.listens_for(e, "connect")
    def without(raw, record):
        with raw.cursor() as c:
            c.execute("reset fence.ticket")
        raw.commit()

    e.dispose()
    for _ in range(5):
        with e.begin() as conn:
            write(conn, 64)
        with Session(e, future=True) as session:
            session.execute(text("select 1"))
            session.commit()
    raw = e.raw_connection()
    try:
        raw.cursor().execute("select 1")
    except Exception as error:
        equal(error.pgcode, "LG002")
    else:
        raise AssertionError("executed without a ticket")
    raw.close()
    equal(d.count(64), 5)
    e.dispose()


@case
def ticket_at_checkout_and_reset_at_checkin():
    e = pooled()
    e.connect().close()

    @event.listens_for(e, "checkout")
    def show(raw, record, proxy):
        with raw.cursor() as c:
            c.execute(f"set fence.ticket = '{holder.ticket}'")
        raw.commit()

    @event.listens_for(e, "reset")
    def drop(raw, record):
        raw.rollback()
        with raw.cursor() as c:
            c.execute("reset fence.ticket")
        raw.commit()

    for _ in range(5):
        with e.begin() as conn:
            write(conn)
    e.dispose()


@case
def a_fence_is_no_reason_to_try_again():
    """What applications that repeat transactions look at: the error's class and the invalidated connection, after which
    connecting is refused."""
    stale = holder.ticket
    e = pooled(ticket=lambda: stale)
    tries = []

    def transaction():
        tries.append(1)
        with e.begin() as conn:
            write(conn, 65)
            if len(tries) == 1:
                d.fence()
            conn.execute(text("select 1"))

    error = d.fails(transaction)
    assert error.connection_invalidated, error
    for _ in range(2):
        error = d.fails(transaction)
        assert "LG001" in str(error) and isinstance(error, exc.OperationalError), error
    equal(d.count(65), 0)
    e.dispose()


@case
def handle_error_sees_the_fence():
    e, seen = pooled(), []

    @event.listens_for(e, "handle_error")
    def note(context):
        seen.append(context.is_disconnect)

    with e.connect() as conn:
        write(conn)
        d.fence()
        d.fails(write, conn)
    equal(seen, [True])
    e.dispose()


@case
def many_values():
    e = pooled(executemany_mode="values_plus_batch")
    with e.connect() as conn:
        conn.execute(insert(Item), [{"id": n, "name": "m", "price": 1} for n in range(3000)])
        equal(conn.execute(text("select count(*) from item")).scalar(), 3000)
        equal(state(conn.execute, insert(Item), [{"id": 5000}, {"id": 5000}]), "23505")
    e.dispose()


@case
def rows_by_a_cursor_of_the_server():
    e = pooled()
    with e.connect() as conn:
        rows = conn.execution_options(stream_results=True, max_row_buffer=100).execute(text("select generate_series(1, 5000)"))
        equal(sum(rows.scalars()), 12502500)
        rows = conn.execution_options(yield_per=10).execute(text("select generate_series(1, 5000)"))
        next(rows)
        d.fence()
        d.cut(d.fails(rows.fetchall))
    e.dispose()


@case
def isolation_levels():
    e = engine(isolation_level="SERIALIZABLE")
    with e.connect() as conn:
        equal(conn.execute(text("show transaction_isolation")).scalar(), "serializable")
    with e.connect().execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True) as conn:
        equal(conn.execute(text("show transaction_isolation")).scalar(), "repeatable read")
        equal(state(write, conn), "25006")
    e.dispose()


@case
def savepoints():
    e = pooled()
    with e.begin() as conn:
        write(conn, 66)
        nested = conn.begin_nested()
        write(conn, 67)
        equal(state(conn.execute, text("select 1/0")), "22012")
        nested.rollback()
        with conn.begin_nested():
            write(conn, 66)
    equal((d.count(66), d.count(67)), (2, 0))
    e.dispose()


@case
def fenced_in_a_savepoint():
    e = pooled()

    def run():
        with e.begin() as conn, conn.begin_nested():
            write(conn, 68)
            d.fence()

    d.cut(d.fails(run))
    equal(d.count(68), 0)
    e.dispose()


@case
def two_phase_is_refused():
    with d.connect(autocommit=False) as conn:
        tx = conn.begin_twophase()
        write(conn, 69)
        equal(state(tx.prepare), "LG006")


@case
def unit_of_work():
    e = pooled()
    with Session(e, future=True) as session, session.begin():
        session.add_all(Item(id=n, name="u", price=n) for n in range(10000, 10100))
    with Session(e, future=True) as session:
        item = session.get(Item, 10005)
        item.name = large
        session.commit()
        session.refresh(item)
        equal(item.name == large, True)
        equal(len(session.scalars(select(Item).where(Item.id >= 10000)).all()), 100)
        for item in session.scalars(select(Item).where(Item.id >= 10000)):
            session.delete(item)
        session.commit()
    e.dispose()


@case
def unit_of_work_is_fenced():
    e = pooled()

    def run():
        with Session(e, future=True) as session, session.begin():
            session.add(Item(id=20000))
            session.flush()
            d.fence()
            session.add(Item(id=20001))

    d.cut(d.fails(run))
    with Session(e, future=True) as session:  # with the newer ticket
        equal(session.get(Item, 20000), None)
    e.dispose()


@case
def tables_are_seen_and_made():
    e = pooled()
    equal([c["name"] for c in inspect(e).get_columns("item")], ["id", "name", "price"])
    equal(inspect(e).get_pk_constraint("item")["constrained_columns"], ["id"])
    with e.begin() as conn:
        conn.exec_driver_sql("create table made (n int)")
    equal(inspect(e).has_table("made"), True)
    with e.begin() as conn:
        conn.exec_driver_sql("drop table made")
    e.dispose()


@case
def raw_connection_copies():
    e = pooled()
    raw = e.raw_connection()
    with raw.cursor() as c:
        c.copy_expert("copy item from stdin", io.StringIO("".join(f"{n}\tx\t1\n" for n in range(30000, 31000))))
        equal(c.rowcount, 1000)
    raw.close()  # rolls back
    with e.connect() as conn:
        equal(conn.execute(text("select count(*) from item where id >= 30000")).scalar(), 0)
    e.dispose()


@case
def threads_share_a_pool():
    e = engine(pool_size=4, max_overflow=2)
    failed = []

    def work():
        try:
            for _ in range(10):
                with e.begin() as conn:
                    write(conn, 70)
        except Exception as error:
            failed.append(error)

    threads = [threading.Thread(target=work) for _ in range(10)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    equal((failed, d.count(70)), ([], 100))
    e.dispose()


def asynchronous(**more):
    return create_async_engine(f"postgresql+asyncpg://{where}", future=True, connect_args={
        "ssl": False, "server_settings": {"fence.ticket": holder.ticket}}, **more)


@case
async def asyncio_engine():
    e = asynchronous(pool_size=3)

    async def work():
        async with e.begin() as conn:
            await conn.execute(text("insert into guarded values (:r, 71)"), {"r": resource})

    await asyncio.gather(*(work() for _ in range(30)))
    async with e.connect() as conn:
        rows = await conn.stream(text("select generate_series(1, 1000)"))
        equal(sum([r[0] async for r in rows]), 500500)
        equal((await conn.execute(text("select count(*) from guarded where n = 71"))).scalar(), 30)
    await e.dispose()


@case
async def asyncio_pool_is_fenced():
    e = asynchronous(pool_pre_ping=True)
    async with e.connect() as conn:
        await conn.execute(text("select 1"))
    await asyncio.to_thread(d.fence)
    try:
        async with e.connect():
            raise AssertionError("connected")
    except Exception as error:
        equal(getattr(error, "sqlstate", None) or getattr(error.orig, "sqlstate", None), "LG001")
    await e.dispose()


main()
