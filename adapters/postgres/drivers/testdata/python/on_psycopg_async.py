"""psycopg 3 with asyncio."""
import asyncio
import os

import psycopg
from psycopg_pool import AsyncConnectionPool, PoolTimeout

from cases import case, database, equal, holder, host, main, port, resource, tickets, user
from sessions import Driver, large, sessions


def at(ticket=None, **more):
    ticket = holder.ticket if ticket is None else ticket
    return {"host": host, "port": port, "user": user, "dbname": database, "sslmode": "disable",
            "options": f"-c fence.ticket={ticket}" if ticket else "", "autocommit": True} | more


async def connect(ticket=None, **more):
    return await psycopg.AsyncConnection.connect(**at(ticket, **more))


async def one(conn, query, *args):
    c = await conn.execute(query, args or None)
    return (await c.fetchone())[0] if c.description else None


async def write(conn, n=1):
    await one(conn, "insert into guarded values (%s, %s)", resource, n)


async def count(n):
    return await one(await connect(), "select count(*) from guarded where n = %s", n)


async def fence():
    await (await connect(holder.next())).close()


async def code(awaitable):
    try:
        await awaitable
    except psycopg.Error as e:
        return e.sqlstate
    raise AssertionError("no error")


def cut(e):
    told = e.sqlstate == "LG001" or any(s in str(e) for s in ("(LG001)", "closed the connection", "connection is lost", "connection is closed"))
    assert isinstance(e, psycopg.Error) and told, e


async def fenced(awaitable):
    try:
        await awaitable
    except psycopg.Error as e:
        cut(e)
    else:
        raise AssertionError("no error")
    try:
        await connect(tickets[holder.at - 1])
    except psycopg.OperationalError as e:
        assert "LG001" in str(e), e
    else:
        raise AssertionError("let in again")


async def asleep(conn):
    watch, pid = await connect(), conn.info.backend_pid
    while not await one(watch, "select count(*) from pg_stat_activity where pid = %s and wait_event = 'PgSleep'", pid):
        pass


class OnLoops(Driver):
    """Each session with a loop of its own, so that threads can have theirs."""

    error = psycopg.Error

    def connect(self, ticket=None, autocommit=True):
        loop = asyncio.new_event_loop()
        conn = loop.run_until_complete(connect(ticket, autocommit=autocommit))
        return loop, conn

    def one(self, conn, query):
        return conn[0].run_until_complete(one(conn[1], query))

    def commit(self, conn):
        conn[0].run_until_complete(conn[1].commit())

    def rollback(self, conn):
        conn[0].run_until_complete(conn[1].rollback())

    def state(self, error):
        return error.sqlstate

    def cut(self, error):
        cut(error)


sessions(OnLoops())


@case
async def many_tasks_share_a_session():
    conn = await connect()
    equal(await asyncio.gather(*(one(conn, "select %s::int", n) for n in range(100))), list(range(100)))


@case
async def many_sessions_at_once():
    async def work(n):
        async with await connect() as conn:
            await write(conn, 1)
            return await one(conn, "select %s::int", n)

    equal(await asyncio.gather(*(work(n) for n in range(30))), list(range(30)))


@case
async def all_of_them_are_fenced():
    conns = [await connect() for _ in range(20)]
    waiting = [asyncio.ensure_future(one(c, "select pg_sleep(20)")) for c in conns]
    await asleep(conns[19])
    await fence()
    for e in await asyncio.gather(*waiting, return_exceptions=True):
        cut(e)


@case
async def pipeline():
    conn = await connect()
    async with conn.pipeline() as p:
        cursors = [await conn.execute("select %s::int", (n,)) for n in range(100)]
        await p.sync()
        more = await conn.execute("select 7")
    equal([(await c.fetchone())[0] for c in cursors] + [(await more.fetchone())[0]], list(range(100)) + [7])


@case
async def pipeline_fails_as_a_whole():
    conn = await connect()

    async def run():
        async with conn.pipeline():
            await conn.execute("insert into guarded values (%s, 41)", (resource,))
            await conn.execute("select 1/0")

    equal(await code(run()), "22012")
    equal(await count(41), 0)


@case
async def pipeline_brings_its_ticket():
    conn = await connect("")
    async with conn.pipeline(), conn.transaction():
        await conn.execute(f"set local fence.ticket = '{holder.ticket}'")
        await conn.execute("insert into guarded values (%s, 42)", (resource,))
    equal(await count(42), 1)
    equal(await code(write(conn)), "LG002")


@case
async def pipeline_is_fenced():
    conn = await connect()

    async def run():
        async with conn.pipeline() as p, conn.transaction():
            await conn.execute("insert into guarded values (%s, 43)", (resource,))
            await p.sync()
            await fence()
            for _ in range(20):
                await conn.execute("insert into guarded values (%s, 43)", (resource,))

    await fenced(run())
    equal(await count(43), 0)


@case
async def pipeline_of_large_values():
    conn = await connect()
    async with conn.pipeline():
        cursors = [await conn.execute("select %s::text", (large,)) for _ in range(60)]
    equal([(await c.fetchone())[0] == large for c in cursors], [True] * 60)


@case
async def copy_in_and_out():
    conn = await connect()
    c = conn.cursor()
    async with c.copy("copy item from stdin") as copy:
        for n in range(1000, 11000):
            await copy.write_row((n, "x", 1))
    equal(c.rowcount, 10000)
    async with c.copy("copy item to stdout") as copy:
        equal(len([row async for row in copy.rows()]), 10000)


@case
async def fenced_in_copy_in():
    conn = await connect(autocommit=False)

    async def run():
        async with conn.cursor() as c, c.copy("copy guarded from stdin") as copy:
            await copy.write(f"{resource}\t50\n")
            await fence()
            for _ in range(100000):
                await copy.write(f"{resource}\t50\n" * 100)

    await fenced(run())
    equal(await count(50), 0)


@case
async def fenced_in_copy_out():
    conn = await connect(autocommit=False)

    async def run():
        async with conn.cursor() as c, c.copy("copy (select repeat('x', 1000) from generate_series(1, 500000)) to stdout") as copy:
            await copy.read()
            await fence()
            async for _ in copy:
                pass

    await fenced(run())


@case
async def fenced_while_rows_stream():
    conn = await connect(autocommit=False)
    await write(conn, 51)

    async def run():
        n = 0
        async for _ in conn.cursor().stream("select repeat('x', 1000) from generate_series(1, 200000)"):
            n += 1
            if n == 1:
                await fence()

    await fenced(run())
    equal(await count(51), 0)


@case
async def server_cursor():
    conn = await connect(autocommit=False)
    async with conn.cursor("named") as c:
        c.itersize = 7
        await c.execute("select generate_series(1, 500)")
        equal(sum([r[0] async for r in c]), 125250)


@case
async def executemany():
    conn = await connect(autocommit=False)
    async with conn.cursor() as c:
        await c.executemany("insert into item values (%s, 'm', 1)", [(n,) for n in range(20000, 21000)])
        equal(c.rowcount, 1000)
    await conn.rollback()


@case
async def notifications():
    a, b = await connect(), await connect()
    await one(a, "listen news")
    await one(b, "select pg_notify('news', 'payload')")
    async for n in a.notifies():
        equal((n.channel, n.payload, n.pid), ("news", "payload", b.info.backend_pid))
        break


@case
async def a_listener_is_fenced():
    a = await connect()
    await one(a, "listen news")

    async def listen():
        async for _ in a.notifies():
            raise AssertionError("a notification")

    waiting = asyncio.ensure_future(listen())
    await asyncio.sleep(0)  # it waits by now
    await fence()
    await fenced(waiting)


@case
async def cancel():
    a, b = await connect(), await connect()
    other = asyncio.ensure_future(one(b, "select 5 from pg_sleep(0.3)"))
    sleeping = asyncio.ensure_future(code(one(a, "select pg_sleep(20)")))
    await asleep(a)
    await asyncio.to_thread(a.cancel)
    equal((await sleeping, await other, await one(a, "select 1")), ("57014", 5, 1))


@case
async def scram_and_tls():
    conn = await connect(user="scram", password="secret", sslmode="verify-full", sslrootcert=os.environ["ROOTCERT"])
    await write(conn)
    await fence()
    await fenced(one(conn, "select 1"))


@case
async def pool():
    async with AsyncConnectionPool("", kwargs=at(), min_size=2, max_size=4) as p:
        async def work():
            async with p.connection() as conn:
                await write(conn)

        await asyncio.gather(*(work() for _ in range(40)))


@case
async def pool_with_a_ticket_for_each_transaction():
    async def clean(conn):
        await conn.execute("discard all")

    async with AsyncConnectionPool("", kwargs=at("", prepare_threshold=None), min_size=1, max_size=1, reset=clean) as p:
        for _ in range(5):
            async with p.connection() as conn, conn.transaction():
                await conn.execute(f"set local fence.ticket = '{holder.ticket}'")
                await write(conn)
            async with p.connection() as conn:
                equal(await code(write(conn)), "LG002")


@case
async def pool_is_fenced():
    p = AsyncConnectionPool("", kwargs=at(), min_size=1, max_size=1, reconnect_timeout=0.5)
    await p.wait()
    await fence()
    async with p.connection() as conn:
        await fenced(one(conn, "select 1"))
    try:
        async with p.connection(timeout=1):
            raise AssertionError("lent a connection")
    except PoolTimeout:
        pass
    await p.close(timeout=5)


main()
