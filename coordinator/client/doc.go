// Package client takes locks at a Lychgate coordinator and keeps them while their holder works.
//
//	c, err := client.Dial(client.Config{Addrs: []string{"127.0.0.1:7600"}})
//	…
//	err = c.Do(ctx, "ledger/eu", func(ctx context.Context, l *client.Lease) error {
//		// ctx ends before anybody else can be granted ledger/eu.
//		return post(ctx, l.Ticket())
//	})
//
// A Lease is held until its deadline, which each renewal moves. The client counts the deadline from the
// instant at which it sent the question, on a clock that also runs while the machine sleeps, so it never
// believes longer than the coordinator does. When the coordinator cannot be reached, or has no quorum, the
// lease is uncertain but still held: nobody else can be granted it without a quorum either. It is lost when
// the deadline passes without an answer, or when the coordinator says that it has ended.
//
// No client can stop a write that is already on its way. What makes a lost lease harmless is its ticket: a
// store behind a Lychgate proxy refuses it once it has accepted a newer one. Give Do or Acquire the option Before
// to have the store accept the new ticket before any work starts.
//
// To test code that uses this package, see package clienttest; for PostgreSQL with pgx or database/sql, see
// package pgxlease.
package client
