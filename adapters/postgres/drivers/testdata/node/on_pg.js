'use strict'
const {Client, Pool} = require('pg')
const Cursor = require('pg-cursor')
const {from: copyFrom, to: copyTo} = require('pg-copy-streams')
const {pipeline} = require('node:stream/promises')
const {Readable, Writable} = require('node:stream')
const {assert, holder, where, code, main, resource, big, test} = require('./cases.js')

const open = []
const config = (ticket) => ({...where, ssl: false, options: ticket ? '-c fence.ticket=' + ticket : undefined})

async function connect(ticket = holder.ticket) {
  const c = new Client(config(ticket))
  c.on('error', () => {}) // a fence ends it
  await c.connect()
  open.push(c)
  return c
}
const one = async (c, sql, args) => Object.values((await c.query(sql, args)).rows[0])[0]
const write = async (c, n = 1) => (await c.query('insert into guarded values ($1, $2)', [resource, n])).rowCount
const fence = async () => (await connect(holder.next())).end()

test('ticket_by_options', async () => assert.equal(await write(await connect()), 1))
test('no_ticket', async () => code((await connect('')).query('select 1'), 'LG002'))
test('malformed_ticket', async () => code(connect('nonsense'), 'LG003'))
test('set_ticket', async () => {
  const c = await connect('')
  await c.query(`set fence.ticket = '${holder.ticket}'`)
  assert.equal(await write(c), 1)
})
test('set_local_ticket', async () => {
  const c = await connect('')
  await c.query('begin')
  await c.query(`set local fence.ticket = '${holder.ticket}'`)
  await write(c)
  await c.query('commit')
  await code(write(c), 'LG002')
})
test('reset_ticket', async () => {
  const c = await connect('')
  await c.query(`set fence.ticket = '${holder.ticket}'`)
  await c.query('reset fence.ticket')
  await code(write(c), 'LG002')
})
test('discard_all_keeps_the_fence', async () => {
  const c = await connect()
  await c.query('discard all')
  await c.query('reset all')
  assert.equal(await write(c), 1)
})
test('ticket_by_set_config', async () => {
  const c = await connect()
  await code(c.query(`select set_config('fence.ticket', '${holder.ticket}', false)`), 'LG006')
  assert.equal(await one(c, 'select 1'), 1)
})
test('stale_at_connect', async () => {
  const stale = holder.ticket
  await fence()
  const e = await code(connect(stale), 'LG001')
  assert.ok(e.detail.includes('floor') && e.hint && e.severity === 'FATAL')
})
test('fenced_while_idle', async () => {
  const c = await connect()
  const ended = new Promise((resolve) => c.on('error', resolve))
  await fence()
  const e = await ended
  assert.equal(e.code, 'LG001')
  assert.ok(e.detail && e.hint)
})
test('fenced_while_a_statement_runs', async () => {
  const c = await connect()
  await c.query('begin')
  const running = code(c.query('select pg_sleep(20)'), 'LG001')
  await fence()
  await running
})
test('fenced_in_a_transaction', async () => {
  const c = await connect()
  await c.query('begin')
  await write(c, 777)
  await fence()
  await assert.rejects(c.query('commit'))
  assert.equal(await one(await connect(), 'select count(*) from guarded where n = 777'), '0')
})
for (const [name, type, ...values] of [
  ['integers', 'int4', 0, -1, 2147483647], ['big_integers', 'int8', '9223372036854775807'], ['floats', 'float8', 1.5, 1e300],
  ['numerics', 'numeric', '12345678901234567890.123456789'], ['texts', 'text', '', 'ä€😀', '\'"\\', 'x'.repeat(100000)],
  ['nulls', 'text', null], ['booleans', 'bool', true, false], ['arrays', 'int[]', [1, null, 3], []], ['json', 'jsonb', {a: [1]}],
  ['bytes', 'bytea', Buffer.from([0, 1, 255]), Buffer.alloc(0)], ['large_values', 'text', big],
]) {
  test(name, async () => {
    const c = await connect()
    for (const v of values) assert.deepEqual(await one(c, `select $1::${type}`, [v]), v)
  })
}
test('many_rows', async () => {
  const r = await (await connect()).query('select n, repeat(\'x\', 50) from generate_series(1, 100000) n')
  assert.equal(r.rows.reduce((sum, row) => sum + row.n, 0), 5000050000)
})
test('error_in_the_middle', async () => {
  const c = await connect()
  await c.query('begin')
  await code(c.query('select 1/0'), '22012')
  await code(c.query('select $1::int', [1]), '25P02')
  await c.query('rollback')
  assert.equal(await one(c, 'select 1'), 1)
})
test('savepoints', async () => {
  const c = await connect()
  await c.query('begin')
  await c.query('savepoint a')
  await code(c.query('select nothing'), '42703')
  await c.query('rollback to a')
  assert.equal(await one(c, 'select 1'), 1)
  await c.query('commit')
})
test('named_statements', async () => {
  const c = await connect()
  for (let n = 0; n < 200; n++) {
    for (let again = 0; again < 2; again++) {
      assert.deepEqual((await c.query({name: 's' + n, text: `select $1::int + ${n} x`, values: [1]})).rows, [{x: n + 1}])
    }
  }
})
test('queued_queries', async () => {
  const c = await connect()
  const got = await Promise.all(Array.from({length: 100}, (_, n) => one(c, 'select $1::int', [n])))
  assert.equal(got.reduce((a, b) => a + b), 4950)
})
test('cursor_with_row_limit', async () => {
  const c = await connect()
  const cursor = c.query(new Cursor('select generate_series(1, 1000) n'))
  let seen = 0
  for (let rows; (rows = await cursor.read(7)).length > 0;) seen += rows.length
  assert.equal(seen, 1000)
  await cursor.close()
  assert.equal(await one(c, 'select 1'), 1)
})
test('cursor_closed_early', async () => {
  const c = await connect()
  const cursor = c.query(new Cursor('select generate_series(1, 1000) n'))
  await cursor.read(7)
  await cursor.close()
  assert.equal(await one(c, 'select 1'), 1)
})
test('copy_in', async () => {
  const c = await connect()
  const into = c.query(copyFrom('copy item from stdin'))
  await pipeline(Readable.from(Array.from({length: 20000}, (_, n) => `${n + 1000}\tx\t1\n`)), into)
  assert.equal(into.rowCount, 20000)
})
test('copy_in_bad_data', async () => {
  const c = await connect()
  await code(pipeline(Readable.from(['a\tb\n']), c.query(copyFrom('copy item from stdin'))), '22P02')
  assert.equal(await one(c, 'select 1'), 1)
})
test('copy_in_given_up', async () => {
  const c = await connect()
  const broken = Readable.from((async function* () { yield '90000\tx\t1\n'; throw new Error('source is broken') })())
  await assert.rejects(pipeline(broken, c.query(copyFrom('copy item from stdin'))))
  assert.equal(await one(c, 'select count(*) from item where id = 90000'), '0')
})
test('copy_out', async () => {
  let size = 0
  const sink = new Writable({write(chunk, _, done) { size += chunk.length; done() }})
  await pipeline((await connect()).query(copyTo('copy (select repeat(\'x\', 99) from generate_series(1, 20000)) to stdout')), sink)
  assert.equal(size, 20000 * 100)
})
test('listen_notify', async () => {
  const [a, b] = [await connect(), await connect()]
  const got = new Promise((resolve) => a.on('notification', resolve))
  await a.query('listen news')
  await b.query('select pg_notify(\'news\', \'payload\')')
  const n = await got
  assert.deepEqual([n.channel, n.payload, n.processId], ['news', 'payload', b.processID])
})
test('cancel_by_pid', async () => {
  const [a, b] = [await connect(), await connect()]
  const running = code(a.query('select pg_sleep(20)'), '57014')
  const sleeps = 'select count(*) from pg_stat_activity where pid = $1 and wait_event = \'PgSleep\''
  while (await one(b, sleeps, [a.processID]) !== '1') { /* not yet */ }
  await one(b, 'select pg_cancel_backend($1)', [a.processID])
  await running
})
test('statement_timeout', async () => {
  const c = await connect()
  await c.query('set statement_timeout = 50')
  await code(c.query('select pg_sleep(20)'), '57014')
})
test('notices', async () => {
  const c = await connect()
  const got = []
  c.on('notice', (n) => got.push(n.severity))
  await c.query('do $$ begin raise notice \'a\'; raise warning \'w\'; end $$')
  assert.deepEqual(got, ['NOTICE', 'WARNING'])
})
test('several_statements', async () => {
  const c = await connect()
  assert.deepEqual((await c.query('select 1 x; select 2 x')).map((r) => r.rows[0].x), [1, 2])
  await code(c.query('insert into item values (70, \'a\', 1); select 1/0'), '22012')
  assert.equal(await one(c, 'select count(*) from item where id = 70'), '0')
})
test('empty_query', async () => assert.deepEqual((await (await connect()).query('')).rows, []))
test('another_resource_is_refused', async () => {
  await assert.rejects((await connect()).query('insert into guarded values (\'another\', 1)'), (e) => e.code.startsWith('LG'))
})
test('pool_is_fenced', async () => {
  const pool = new Pool({...config(holder.ticket), max: 4})
  pool.on('error', () => {})
  await Promise.all(Array.from({length: 20}, () => pool.query('select 1')))
  await fence()
  let last
  for (let n = 0; n < 6; n++) await assert.rejects(pool.query('select 1'), (e) => { last = e; return true })
  assert.equal(last.code, 'LG001')
  await pool.end()
})

main()
