import asyncio
import datetime
import decimal
import uuid

import asyncpg

from cases import big, case, database, equal, holder, host, main, port, resource, user


async def connect(ticket=None, **more):
    ticket = holder.ticket if ticket is None else ticket
    settings = {"fence.ticket": ticket} if ticket else {}
    return await asyncpg.connect(host=host, port=port, user=user, database=database, ssl=False, server_settings=settings, **more)


async def write(conn, n=1):
    return await conn.execute("insert into guarded values ($1, $2)", resource, n)


async def code(awaitable):
    """The error that has to come."""
    try:
        await awaitable
    except asyncpg.PostgresError as e:
        return e.sqlstate
    raise AssertionError("no error")


async def fence():
    await (await connect(holder.next())).close()


@case
async def ticket_by_server_settings():
    equal(await write(await connect()), "INSERT 0 1")


@case
async def no_ticket():
    equal(await code((await connect("")).fetchval("select 1")), "LG002")


@case
async def malformed_ticket():
    equal(await code(connect("nonsense")), "LG003")


@case
async def set_ticket():
    conn = await connect("")
    equal(await conn.execute(f"set fence.ticket = '{holder.ticket}'"), "SET")
    equal(await write(conn), "INSERT 0 1")


@case
async def set_local_ticket():
    conn = await connect("")
    async with conn.transaction():
        await conn.execute(f"set local fence.ticket = '{holder.ticket}'")
        await write(conn)
    equal(await code(conn.execute("insert into item values (1, 'a', 1)")), "LG002")


@case
async def reset_ticket():
    conn = await connect("")
    await conn.execute(f"set fence.ticket = '{holder.ticket}'")
    await conn.execute("reset fence.ticket")
    equal(await code(conn.execute("insert into item values (1, 'a', 1)")), "LG002")


@case
async def pool_reset_keeps_the_fence():
    conn = await connect()
    await conn.reset()
    equal(await write(conn), "INSERT 0 1")


@case
async def discard_all_keeps_the_fence():
    conn = await connect(statement_cache_size=0)
    await conn.execute("discard all")
    await conn.execute("reset all")
    equal(await write(conn), "INSERT 0 1")


@case
async def ticket_by_set_config():
    conn = await connect()
    equal(await code(conn.execute(f"select set_config('fence.ticket', '{holder.ticket}', false)")), "LG006")
    equal(await conn.fetchval("select 1"), 1)


@case
async def stale_at_connect():
    stale = holder.ticket
    await fence()
    try:
        await connect(stale)
    except asyncpg.PostgresError as e:
        equal(e.sqlstate, "LG001")
        assert "floor" in e.detail and e.hint, e
    else:
        raise AssertionError("let in")


@case
async def fenced_while_a_statement_runs():
    """asyncpg tells of the end of the stream (08003), not of the FATAL before it; why, is told at the next connect."""
    conn, stale = await connect(), holder.ticket
    async with asyncio.TaskGroup() as group:
        tr = conn.transaction()
        await tr.start()
        running = group.create_task(code(conn.execute("select pg_sleep(20)")))
        await asyncio.sleep(0.2)
        await fence()
    equal(running.result(), "08003")
    equal(await code(connect(stale)), "LG001")


@case
async def fenced_while_idle():
    conn = await connect()
    lost = asyncio.Event()
    conn.add_termination_listener(lambda _: lost.set())
    await fence()
    await asyncio.wait_for(lost.wait(), 20)
    assert conn.is_closed()


@case
async def fenced_in_a_transaction():
    conn = await connect()
    tr = conn.transaction()
    await tr.start()
    await write(conn, 777)
    await fence()
    try:
        await tr.commit()
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        pass
    else:
        raise AssertionError("committed")
    equal(await (await connect()).fetchval("select count(*) from guarded where n = 777"), 0)


@case
async def pool_is_fenced():
    pool = await asyncpg.create_pool(host=host, port=port, user=user, database=database, ssl=False, min_size=2, max_size=4,
                                     server_settings={"fence.ticket": holder.ticket})
    equal(await asyncio.gather(*(pool.fetchval("select 1") for _ in range(20))), [1] * 20)
    await fence()
    for _ in range(5):  # those that are open end, and new ones are refused
        try:
            await pool.fetchval("select 1")
        except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError) as e:
            last = e
        else:
            raise AssertionError("a statement went through")
    equal(getattr(last, "sqlstate", None), "LG001")
    pool.terminate()


def round_trip(name, typ, *values):
    async def f():
        conn = await connect()
        for v in values:
            equal(await conn.fetchval(f"select $1::{typ}", v), v)
    f.__name__ = name
    case(f)


round_trip("integers", "int8", 0, -1, 2**63 - 1, -(2**63), None)
round_trip("floats", "float8", 1.5, -0.0, float("inf"), 1e300)
round_trip("numerics", "numeric", decimal.Decimal("12345678901234567890.123456789"), decimal.Decimal("-0.1"))
round_trip("texts", "text", "", "ä€😀", "x" * 100000, "'\"\\", None)
round_trip("bytes", "bytea", b"", bytes(range(256)), None)
round_trip("booleans", "bool", True, False, None)
round_trip("timestamps", "timestamptz", datetime.datetime(2024, 2, 29, tzinfo=datetime.timezone.utc))
round_trip("dates", "date", datetime.date(1, 1, 1), datetime.date(9999, 12, 31))
round_trip("arrays", "int[]", [1, None, 3], [], [[1, 2], [3, 4]])
round_trip("uuids", "uuid", uuid.UUID(int=5))
round_trip("json", "jsonb", '{"a": [1]}')
round_trip("large_values", "text", big)


@case
async def many_rows():
    rows = await (await connect()).fetch("select n, repeat('x', 50) from generate_series(1, 100000) n")
    equal(sum(r[0] for r in rows), 5000050000)


@case
async def error_in_the_middle():
    conn = await connect()
    tr = conn.transaction()
    await tr.start()
    equal(await code(conn.fetchval("select 1/0")), "22012")
    equal(await code(conn.fetchval("select 1")), "25P02")
    await tr.rollback()
    equal(await conn.fetchval("select 1"), 1)


@case
async def savepoints():
    conn = await connect()
    async with conn.transaction():
        await conn.execute("insert into item values (20, 'a', 1)")
        try:
            async with conn.transaction():
                await conn.execute("insert into item values (20, 'a', 1)")
        except asyncpg.UniqueViolationError:
            pass
    equal(await conn.fetchval("select count(*) from item where id = 20"), 1)


@case
async def prepared_statements():
    conn = await connect()
    all = [await conn.prepare(f"select $1::int + {n}") for n in range(300)]
    equal([await p.fetchval(1) for p in all], list(range(1, 301)))


@case
async def statement_cache_turns_over():
    conn = await connect(statement_cache_size=10)
    for n in range(50):
        equal(await conn.fetchval(f"select {n}"), n)


@case
async def cursor_with_row_limit():
    conn = await connect()
    async with conn.transaction():
        equal([r[0] async for r in conn.cursor("select generate_series(1, 1000)", prefetch=7)], list(range(1, 1001)))
        c = await conn.cursor("select generate_series(1, 100)")
        equal(len(await c.fetch(10)) + await c.forward(5), 15)
        equal((await c.fetchrow())[0], 16)


@case
async def executemany_is_one_transaction():
    conn = await connect()
    equal(await code(conn.executemany("insert into item values ($1, 'm', 1)", [(n,) for n in range(3000, 4000)] + [(3000,)])), "23505")
    equal(await conn.fetchval("select count(*) from item where id between 3000 and 3999"), 0)
    await conn.executemany("insert into item values ($1, 'm', 1)", [(n,) for n in range(3000, 4000)])
    equal(await conn.fetchval("select count(*) from item where id between 3000 and 3999"), 1000)


@case
async def copy_in():
    conn = await connect()
    equal(await conn.copy_records_to_table("item", records=[(n, "c", 1) for n in range(10000, 30000)]), "COPY 20000")


@case
async def copy_in_duplicates():
    conn = await connect()
    equal(await code(conn.copy_records_to_table("item", records=[(50000, "c", 1)] * 20000)), "23505")
    equal(await conn.fetchval("select 1"), 1)


@case
async def copy_in_given_up():
    async def broken():
        yield b"60000\tx\t1\n"
        raise RuntimeError("source is broken")

    conn = await connect()
    try:
        await conn.copy_to_table("item", source=broken())
    except RuntimeError:
        pass
    equal(await conn.fetchval("select count(*) from item where id = 60000"), 0)


@case
async def copy_out():
    size = 0

    async def sink(data):
        nonlocal size
        size += len(data)

    equal(await (await connect()).copy_from_query("select repeat('x', 99) from generate_series(1, 20000)", output=sink), "COPY 20000")
    equal(size, 20000 * 100)


@case
async def listen_notify():
    a, b = await connect(), await connect()
    got = asyncio.get_running_loop().create_future()
    await a.add_listener("news", lambda *args: got.set_result(args[1:]))
    await b.execute("select pg_notify('news', 'payload')")
    equal(await asyncio.wait_for(got, 20), (b.get_server_pid(), "news", "payload"))


@case
async def cancel_by_timeout():
    conn = await connect()
    try:
        await conn.execute("select pg_sleep(20)", timeout=0.2)
    except asyncio.TimeoutError:
        pass
    else:
        raise AssertionError("not cancelled")
    equal(await conn.fetchval("select 1"), 1)


@case
async def statement_timeout():
    conn = await connect()
    await conn.execute("set statement_timeout = 50")
    equal(await code(conn.execute("select pg_sleep(20)")), "57014")


@case
async def notices():
    conn, got = await connect(), []
    conn.add_log_listener(lambda _, m: got.append(m.severity))
    await conn.execute("do $$ begin raise notice 'a'; raise warning 'w'; end $$")
    await conn.fetchval("select 1")
    equal(got, ["NOTICE", "WARNING"])


@case
async def several_statements():
    conn = await connect()
    equal(await conn.execute("select 1; select 2; create temp table t (n int)"), "CREATE TABLE")
    equal(await code(conn.execute("insert into item values (70, 'a', 1); select 1/0")), "22012")
    equal(await conn.fetchval("select count(*) from item where id = 70"), 0)


@case
async def another_resource_is_refused():
    conn = await connect()
    assert (await code(conn.execute("insert into guarded values ('another', 1)"))).startswith("LG")


main()
