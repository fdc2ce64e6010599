// What the cases of Node's drivers share: the tickets in ascending order, and how a case is told.
'use strict'
const assert = require('node:assert/strict')

const tickets = process.env.TICKETS.split(' ')
const holder = {at: 0, get ticket() { return tickets[this.at] }, next() { this.at++; return this.ticket }}
const where = {
  host: process.env.PGHOST, port: Number(process.env.PGPORT), user: process.env.PGUSER, database: process.env.PGDATABASE,
}
const all = []

// code expects a promise to be rejected by the server, and returns the error.
async function code(promise, want) {
  let e
  try {
    await promise
  } catch (caught) {
    e = caught
  }
  assert.ok(e, 'no error')
  assert.equal(e.code, want, String(e))
  return e
}

function bounded(promise) {
  let timer
  const late = new Promise((_, reject) => { timer = setTimeout(() => reject(new Error('hangs')), 60000) })
  return Promise.race([promise, late]).finally(() => clearTimeout(timer))
}

async function main() {
  let failed = 0
  for (const [name, f] of all) {
    try {
      await bounded(f())
      console.log('ok ' + name)
    } catch (e) {
      failed = 1
      console.error(e)
      console.log(`not ok ${name}: ${String(e).replace(/\s+/g, ' ').slice(0, 500)}`)
    }
  }
  process.exit(failed)
}

module.exports = {
  assert, holder, where, code, main, resource: process.env.RESOURCE, big: '0123456789abcdef'.repeat(10 * 1024 * 64),
  test: (name, f) => all.push([name, f]),
}
