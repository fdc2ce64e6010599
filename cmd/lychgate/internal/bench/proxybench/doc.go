// Package proxybench measures the proxy beside PgBouncer in session mode and beside PostgreSQL itself, on one machine and
// in one run: pgbench is pointed at each in turn, ours, theirs, nothing in between, and the medians of the rounds are told,
// so that what else the machine does meets all alike. Proxy and PgBouncer are processes of their own, so that their
// processor time is theirs. The proxy fences every session by the signed ticket of a real lease; PgBouncer fences nothing.
//
// Every run is judged: no transaction may fail, what was acknowledged is in the database, a stale ticket does not write
// and no floor goes down. A run in which such a thing was seen reports nothing but that.
package proxybench
