'use strict'
const postgres = require('postgres')
const {pipeline} = require('node:stream/promises')
const {Readable} = require('node:stream')
const {assert, holder, where, code, main, resource, big, test} = require('./cases.js')

function connect(ticket = holder.ticket, more = {}) {
  const connection = ticket ? {'fence.ticket': ticket} : {}
  return postgres({...where, ssl: false, max: 1, onnotice: () => {}, connection, ...more})
}
// through runs f with a client that is closed afterwards.
async function through(f, ...how) {
  const sql = connect(...how)
  try {
    return await f(sql)
  } finally {
    await sql.end({timeout: 1})
  }
}
const write = async (sql, n = 1) => (await sql`insert into guarded values (${resource}, ${n})`).count
const fence = () => through((sql) => sql`select 1`, holder.next())

test('ticket_by_startup_parameter', () => through(async (sql) => assert.equal(await write(sql), 1)))
test('no_ticket', () => through((sql) => code(sql`select 1`, 'LG002'), '', {fetch_types: false})) // it asks for types by itself, and has no handler for a refusal
test('malformed_ticket', () => through((sql) => code(sql`select 1`, 'LG003'), 'nonsense'))
test('set_ticket', () => through(async (sql) => {
  await sql.unsafe(`set fence.ticket = '${holder.ticket}'`)
  assert.equal(await write(sql), 1)
}, '', {fetch_types: false}))
test('set_local_ticket', () => through(async (sql) => {
  await sql.begin(async (tx) => {
    await tx.unsafe(`set local fence.ticket = '${holder.ticket}'`)
    await write(tx)
  })
  await code(sql`insert into item values (1, 'a', 1)`, 'LG002')
}, '', {fetch_types: false}))
test('reset_ticket', () => through(async (sql) => {
  await sql.unsafe(`set fence.ticket = '${holder.ticket}'`)
  await sql.unsafe('reset fence.ticket')
  await code(sql`insert into item values (1, 'a', 1)`, 'LG002')
}, '', {fetch_types: false}))
test('discard_all_keeps_the_fence', () => through(async (sql) => {
  await sql.unsafe('discard all')
  await sql.unsafe('reset all')
  assert.equal(await write(sql), 1)
}))
test('ticket_by_set_config', () => through(async (sql) => {
  await code(sql.unsafe(`select set_config('fence.ticket', '${holder.ticket}', false)`), 'LG006')
  assert.equal((await sql`select 1 x`)[0].x, 1)
}))
test('stale_at_connect', async () => {
  const stale = holder.ticket
  await fence()
  const e = await through((sql) => code(sql`select 1`, 'LG001'), stale)
  assert.ok(e.detail.includes('floor') && e.hint && e.severity === 'FATAL')
})
test('fenced_while_idle_reconnects_and_is_refused', () => through(async (sql) => {
  await sql`select 1`
  await fence()
  let last
  for (let n = 0; n < 3; n++) await assert.rejects(sql`select 1`, (e) => { last = e; return true })
  assert.equal(last.code, 'LG001')
}))
// Not by begin(): when the connection is gone, the driver throws where nobody can catch it, at whatever it sends next.
test('fenced_while_a_statement_runs', () => through(async (sql) => {
  const tx = await sql.reserve()
  await tx`begin`
  const running = code(tx`select pg_sleep(20)`, 'LG001')
  await through(async (other) => {
    while ((await other`select 1 from pg_stat_activity where wait_event = 'PgSleep'`).count === 0) { /* not yet */ }
  })
  await fence()
  await running
}))
test('fenced_in_a_transaction', async () => {
  let closed
  const ended = new Promise((resolve) => { closed = resolve })
  await through(async (sql) => {
    const tx = await sql.reserve()
    await tx`begin`
    await write(tx, 777)
    await fence()
    await ended // with the transaction open: there is nothing left to commit by
  }, holder.ticket, {onclose: () => closed()})
  assert.equal(await through(async (s) => (await s`select 1 from guarded where n = 777`).count), 0)
})
for (const [name, type, ...values] of [
  ['integers', 'int4', 0, -1, 2147483647], ['big_integers', 'int8', '9223372036854775807'], ['floats', 'float8', 1.5, 1e300],
  ['numerics', 'numeric', '12345678901234567890.123456789'], ['texts', 'text', '', 'ä€😀', '\'"\\', 'x'.repeat(100000)],
  ['nulls', 'text', null], ['booleans', 'bool', true, false], ['large_values', 'text', big],
  ['bytes', 'bytea', Buffer.from([0, 1, 255]), Buffer.alloc(0)],
]) {
  test(name, () => through(async (sql) => {
    for (const v of values) assert.deepEqual((await sql.unsafe(`select $1::${type} x`, [v]))[0].x, v)
  }))
}
test('arrays', () => through(async (sql) => {
  await sql`select 1` // only then does it know the types of arrays
  assert.deepEqual([...(await sql`select ${sql.array([1, 2])}::int[] x`)[0].x], [1, 2])
}))
test('json', () => through(async (sql) => assert.deepEqual((await sql`select ${sql.json({a: [1]})} x`)[0].x, {a: [1]})))
test('many_rows', () => through(async (sql) => {
  assert.equal((await sql`select n, repeat('x', 50) from generate_series(1, 100000) n`).count, 100000)
}))
test('error_in_the_middle', () => through(async (sql) => {
  await code(sql.begin(async (tx) => {
    await tx`insert into item values (30, 'a', 1)`
    await code(tx`select 1/0`, '22012')
    await code(tx`select 1`, '25P02')
  }), '22012')
  assert.equal((await sql`select 1 from item where id = 30`).count, 0)
}))
test('savepoints', () => through(async (sql) => {
  await sql.begin(async (tx) => {
    await code(tx.savepoint((s) => s`select nothing`), '42703')
    await tx`insert into item values (31, 'a', 1)`
  })
  assert.equal((await sql`select 1 from item where id = 31`).count, 1)
}))
test('pipelined_queries', () => through(async (sql) => {
  const got = await Promise.all(Array.from({length: 300}, (_, n) => sql`select ${n}::int x`))
  assert.equal(got.reduce((sum, r) => sum + r[0].x, 0), 44850)
}))
test('pipelined_errors', () => through(async (sql) => {
  const got = await Promise.allSettled(Array.from({length: 100}, (_, n) => sql`select 1 / ${n % 2}::int x`))
  assert.deepEqual(got.map((r) => r.status === 'fulfilled'), Array.from({length: 100}, (_, n) => n % 2 === 1))
}))
test('pipeline_in_a_transaction_rolls_back', () => through(async (sql) => {
  await assert.rejects(sql.begin((tx) => [tx`insert into item values (40, 'a', 1)`, tx`insert into item values (40, 'b', 1)`]))
  assert.equal((await sql`select 1 from item where id = 40`).count, 0)
}))
test('many_prepared_statements', () => through(async (sql) => {
  for (let n = 0; n < 200; n++) assert.equal((await sql.unsafe(`select $1::int + ${n} x`, [1], {prepare: true}))[0].x, n + 1)
}))
test('cursor_with_row_limit', () => through(async (sql) => {
  let seen = 0
  await sql`select generate_series(1, 1000) n`.cursor(7, (rows) => { seen += rows.length })
  assert.equal(seen, 1000)
}))
test('cursor_ended_early', () => through(async (sql) => {
  await sql`select generate_series(1, 1000) n`.cursor(7, () => sql.CLOSE)
  assert.equal((await sql`select 1 x`)[0].x, 1)
}))
test('describe_only', () => through(async (sql) => assert.equal((await sql`select 1 a, 'x' b`.describe()).columns.length, 2)))
test('copy_in', () => through(async (sql) => {
  await pipeline(Readable.from(Array.from({length: 20000}, (_, n) => `${n + 1000}\tx\t1\n`)), await sql`copy item from stdin`.writable())
  assert.equal((await sql`select 1 from item where id between 1000 and 20999`).count, 20000)
}))
test('copy_out', () => through(async (sql) => {
  let size = 0
  for await (const chunk of await sql`copy (select repeat('x', 99) from generate_series(1, 20000)) to stdout`.readable()) size += chunk.length
  assert.equal(size, 20000 * 100)
}))
test('listen_notify', () => through(async (sql) => {
  let heard
  const got = new Promise((resolve) => { heard = resolve })
  await sql.listen('news', heard)
  await sql.notify('news', 'payload')
  assert.equal(await got, 'payload')
}))
test('cancel', () => through(async (sql) => {
  await sql`select 1`
  const running = sql`select pg_sleep(20)`
  const failed = code(running, '57014')
  await through(async (other) => {
    while ((await other`select 1 from pg_stat_activity where wait_event = 'PgSleep'`).count === 0) { /* not yet */ }
  })
  running.cancel()
  await failed
  assert.equal((await sql`select 1 x`)[0].x, 1)
}))
test('statement_timeout', () => through(async (sql) => {
  await sql.unsafe('set statement_timeout = 50')
  await code(sql`select pg_sleep(20)`, '57014')
}))
test('notices', async () => {
  const got = []
  await through((sql) => sql.unsafe('do $$ begin raise notice \'a\'; raise warning \'w\'; end $$'), holder.ticket, {onnotice: (n) => got.push(n.severity)})
  assert.deepEqual(got, ['NOTICE', 'WARNING'])
})
test('several_statements', () => through(async (sql) => {
  assert.deepEqual((await sql.unsafe('select 1 x; select 2 x')).map((r) => r[0].x), [1, 2])
}))
test('another_resource_is_refused', () => through((sql) => assert.rejects(sql`insert into guarded values ('another', 1)`, (e) => e.code.startsWith('LG'))))

main()
