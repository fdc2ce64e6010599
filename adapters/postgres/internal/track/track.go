// Package track follows one conversation between a client and a PostgreSQL server by the types of its messages: which
// replies are outstanding, where the transaction stands, and what may have been committed if the server vanished now.
// It does no I/O and is not safe for concurrent use; its owner calls Send before a message goes to the server and
// Receive before one goes to the client.
//
// Where a server answers in a way that was not foreseen, the conversation is lost: from then on it is never taken
// for quiescent, so that nothing is bound or unbound on a guess.
package track

import "bytes"

// Kind is a message to the server that has a reply of its own, or ends a COPY.
type Kind uint8

// The kinds. A Flush and the data of a COPY have no entry.
const (
	Query Kind = iota + 1
	Call       // FunctionCall
	Parse
	Bind
	DescribeStatement
	DescribePortal
	Close
	Execute
	Sync
	CopyEnd // CopyDone or CopyFail
)

// Sent describes a message that goes to the server.
type Sent struct {
	Kind      Kind
	Pure      bool   // it executes nothing and takes no snapshot: BEGIN, a SET of our own, an empty text
	MayCommit bool   // its text may end a transaction block
	Hidden    bool   // the proxy's own: the client sees no reply to it
	Instead   []byte // the ErrorResponse for the client in place of the one that this message provokes; nil: a real message
}

// Outcome is how a transaction ended.
type Outcome uint8

// The outcomes. None means that no transaction ended, nor a part of one.
const (
	None Outcome = iota
	Committed
	RolledBack
	Unclear
	Partial // part of it was committed or rolled back (AND CHAIN, ROLLBACK TO), and a transaction is open
)

// Effect is what a message of the server's means.
type Effect struct {
	Hidden  bool    // it answers a hidden message
	Instead []byte  // goes to the client in place of this ErrorResponse
	Outcome Outcome // of the transaction that ended
	Idle    bool    // nothing is outstanding and no transaction is open
}

// MaxOutstanding bounds the replies that are waited for. A server holds back fewer than 2,000 replies until it is
// asked to flush, so that waiting for room cannot last.
const MaxOutstanding = 1 << 16

// Conversation is one session after its start-up. New makes one.
type Conversation struct {
	queue    queue
	instead  [][]byte // of the queue's refused entries, in order
	status   byte     // of the last ReadyForQuery: I, T or E
	fresh    bool     // a transaction block is open and has executed nothing
	skipping bool     // the server ignores everything up to the next Sync
	copying  bool     // a COPY FROM STDIN runs, or one in both directions, and its end was not sent
	streams  bool     // a COPY in both directions runs
	lost     bool
	cycle    cycle
}

// cycle is what happened since the last ReadyForQuery.
type cycle struct {
	impure   bool // something other than pure messages was completed
	failed   bool
	commit   bool
	rollback bool
}

// New is a conversation whose server has just said that it is ready for the first time.
func New() *Conversation { return &Conversation{status: 'I'} }

// Full reports whether Send has to wait.
func (c *Conversation) Full() bool { return c.queue.len() >= MaxOutstanding }

// Quiet reports whether no reply is outstanding. The client's batch may still lack its Sync.
func (c *Conversation) Quiet() bool { return c.queue.len() == 0 && !c.lost }

// Idle reports whether nothing is outstanding and no transaction is open, not even an implicit one.
func (c *Conversation) Idle() bool {
	return c.Quiet() && c.status == 'I' && !c.skipping && c.cycle == cycle{}
}

// Lost reports whether the conversation can no longer be followed.
func (c *Conversation) Lost() bool { return c.lost }

// Skipping reports whether the server ignores everything up to the next Sync.
func (c *Conversation) Skipping() bool { return c.skipping }

// Copying reports whether the server waits for the client's data of a COPY.
func (c *Conversation) Copying() bool { return c.copying }

// Streams reports whether the server sends what it replicates (COPY in both directions), which by itself has no end.
func (c *Conversation) Streams() bool { return c.streams }

// NeedsFlush reports whether replies are outstanding that the server may hold back until a Flush.
func (c *Conversation) NeedsFlush() bool {
	return c.queue.len() > 0 && !endsCycle(c.queue.at(c.queue.len()-1).kind)
}

// Bindable reports whether a statement sent now would see nothing older than a binding made now: no transaction, or
// one that has executed nothing. It wants Quiet.
func (c *Conversation) Bindable() bool {
	return c.Quiet() && !c.skipping && !c.cycle.impure && !c.cycle.failed && (c.status == 'I' || c.status == 'T' && c.fresh)
}

// MayCommit reports whether something that was sent may have been committed without the client knowing, if the
// server is gone now. It errs to true.
func (c *Conversation) MayCommit() bool {
	if c.lost {
		return true
	}
	if c.copying && c.queue.len() > 0 {
		return c.queue.at(0).is(mayCommit) // what stands behind a COPY has not begun
	}
	for i := range c.queue.len() {
		if c.commits(c.queue.at(i)) {
			return true
		}
	}
	return false
}

func (c *Conversation) commits(e entry) bool {
	switch e.kind {
	case Query, Call, Execute:
		return e.is(mayCommit) || c.implicit() && !e.is(pure) && !e.is(refused)
	case Sync:
		return c.implicit() && c.cycle.impure
	case Parse, Bind, DescribeStatement, DescribePortal, Close, CopyEnd:
	}
	return false
}

// implicit reports whether no transaction block need be open: behind a COMMIT inside of a batch the rest of it is
// committed by its Sync.
func (c *Conversation) implicit() bool { return c.status == 'I' || c.cycle.commit || c.cycle.rollback }

// Send notes a message that goes to the server next. The caller has waited while Full.
func (c *Conversation) Send(s Sent) {
	switch {
	case c.skipping && s.Kind == Sync:
		c.skipping = false
	case c.skipping:
		return
	case c.copying && s.Kind == Sync:
		return // ignored by a server that reads COPY data
	case c.copying && s.Kind == CopyEnd:
		c.copying = false
		return
	case s.Kind == CopyEnd && !c.queue.mayCopy():
		return
	}
	c.queue.push(s)
	if s.Instead == nil {
		return
	}
	// A flood of refusals says the same again and again: kept once.
	if n := len(c.instead); n > 0 && bytes.Equal(c.instead[n-1], s.Instead) {
		s.Instead = c.instead[n-1]
	}
	c.instead = append(c.instead, s.Instead)
}

// Receive notes a message of the server's. tag is the command tag of a CommandComplete; status the byte of a
// ReadyForQuery. A fatal ErrorResponse is not for Receive: it ends the conversation.
func (c *Conversation) Receive(typ byte, tag string, status byte) Effect {
	hidden := c.answersHidden(typ)
	effect := c.receive(typ, tag, status)
	effect.Hidden = hidden
	return effect
}

// answersHidden reports whether a message belongs to the answer to a hidden one. An error in a batch does not: the client
// has to know that the rest of its batch is skipped.
func (c *Conversation) answersHidden(typ byte) bool {
	if c.queue.len() == 0 || !c.queue.at(0).is(hidden) {
		return false
	}
	switch typ {
	case '1', '2', '3', 'C', 'Z':
		return true
	case 'E':
		return c.headIs(Query)
	}
	return false
}

func (c *Conversation) receive(typ byte, tag string, status byte) Effect {
	switch typ {
	case '1':
		c.complete(Parse)
	case '2':
		c.complete(Bind)
	case '3':
		c.complete(Close)
	case 'n':
		c.complete(DescribeStatement, DescribePortal)
	case 'T':
		if !c.headIs(Query) {
			c.complete(DescribeStatement, DescribePortal)
		}
	case 't':
		c.expect(DescribeStatement)
	case 'C':
		c.command(tag)
	case 'I', 's':
		if !c.headIs(Query) {
			c.complete(Execute)
		}
	case 'G':
		c.beginCopy()
	case 'W':
		c.streams = true
		c.beginCopy()
	case 'E':
		return Effect{Instead: c.fail()}
	case 'Z':
		return c.ready(status)
	}
	return Effect{}
}

func (c *Conversation) headIs(kind Kind) bool {
	c.dropCopyEnds()
	return c.queue.len() > 0 && c.queue.at(0).kind == kind
}

// dropCopyEnds removes ends of a COPY that turned out to have none.
func (c *Conversation) dropCopyEnds() {
	for c.queue.len() > 0 && c.queue.at(0).kind == CopyEnd {
		c.pop()
	}
}

func (c *Conversation) expect(kinds ...Kind) bool {
	for _, k := range kinds {
		if c.headIs(k) {
			return true
		}
	}
	c.lost = true
	return false
}

func (c *Conversation) complete(kinds ...Kind) {
	if c.expect(kinds...) {
		c.finish(c.pop())
		c.dropCopyEnds() // nothing else would answer them
	}
}

// finish notes what a completed message did.
func (c *Conversation) finish(e entry) {
	if !e.is(pure) && e.kind != Close && e.kind != Sync {
		c.cycle.impure = true
	}
}

func (c *Conversation) pop() entry {
	e := c.queue.pop()
	if e.is(refused) {
		c.instead[0] = nil
		c.instead = c.instead[1:]
	}
	return e
}

func (c *Conversation) command(tag string) {
	switch tag {
	case "COMMIT":
		c.cycle.commit = true
	case "ROLLBACK":
		c.cycle.rollback = true
	}
	if !c.headIs(Query) {
		c.complete(Execute)
	}
}

// beginCopy notes that the server reads COPY data from here on: it ignores each Sync up to the data's end.
func (c *Conversation) beginCopy() {
	if !c.headIs(Query) && !c.expect(Execute) {
		return
	}
	c.copying = true
	for c.queue.len() > 1 {
		kind := c.queue.at(1).kind
		if kind != Sync && kind != CopyEnd {
			return
		}
		c.queue.removeSecond()
		if kind == CopyEnd {
			c.copying = false
			return
		}
	}
}

// fail notes an error. In the extended protocol the server then ignores everything up to the next Sync.
func (c *Conversation) fail() (instead []byte) {
	c.copying, c.streams, c.cycle.failed = false, false, true
	c.dropCopyEnds()
	if c.queue.len() == 0 {
		c.lost = c.lost || !c.skipping
		return nil
	}
	head := c.queue.at(0)
	if head.is(refused) {
		instead = c.instead[0]
	}
	if endsCycle(head.kind) {
		return instead
	}
	for c.queue.len() > 0 {
		if c.queue.at(0).kind == Sync {
			return instead
		}
		c.pop()
	}
	c.skipping = true
	return instead
}

// ready notes a ReadyForQuery.
func (c *Conversation) ready(status byte) Effect {
	c.copying, c.streams = false, false
	c.dropCopyEnds()
	if c.queue.len() == 0 || !endsCycle(c.queue.at(0).kind) {
		c.lost = true
		for c.queue.len() > 0 && !endsCycle(c.queue.at(0).kind) {
			c.pop()
		}
	}
	if c.queue.len() > 0 {
		c.finish(c.pop())
	}
	c.dropCopyEnds()
	before := c.status
	c.status = status
	c.fresh = status == 'T' && (before == 'I' || c.fresh) && !c.cycle.impure && !c.cycle.failed
	effect := Effect{Outcome: c.outcome(before)}
	c.cycle = cycle{}
	effect.Idle = c.Idle()
	return effect
}

// outcome judges the transaction that a cycle ended.
func (c *Conversation) outcome(before byte) Outcome {
	implicit := before == 'I' && !c.cycle.commit && !c.cycle.rollback
	switch {
	case c.status != 'I' && (c.cycle.commit || c.cycle.rollback):
		return Partial
	case c.status != 'I':
		return None
	case c.lost:
		return Unclear
	case implicit && c.cycle.failed, c.cycle.rollback && !c.cycle.commit, c.cycle.failed && !c.cycle.commit:
		return RolledBack
	case implicit, c.cycle.commit && !c.cycle.rollback && !c.cycle.failed:
		return Committed
	}
	return Unclear
}

// endsCycle reports whether a message is answered with a ReadyForQuery.
func endsCycle(k Kind) bool { return k == Query || k == Call || k == Sync }
