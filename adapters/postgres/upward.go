package postgres

import (
	"fmt"

	"github.com/lychgate/lychgate/adapters/postgres/internal/sqltext"
	"github.com/lychgate/lychgate/adapters/postgres/internal/track"
	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
	"github.com/lychgate/lychgate/proxy/gate"
)

// upward is what is remembered on the way from the client to the server. The relay's lock guards it.
type upward struct {
	body       body
	text       *text      // of the message that streams; nil: it is none
	statements statements // what the client's names stand for
	barred     bool       // the session could do nothing when the last message came
	showing    *showing   // a ticket by SET that is being bound
	confirming []byte     // the name that the last Parse gave, if its answer is waited for; never nil then
	flushed    bool       // the server was asked for the replies that are waited for
}

// next is what a client's messages need to go on.
type next uint8

const (
	done next = iota // nothing: the message is dealt with
	more             // bytes that have not arrived
	wait             // something else: the driver's look says when to try again
	left             // nothing comes any more: the client has ended the session
)

// fromClient deals with what has arrived from the client and decides what goes to the server. What it does not deal with
// it wants to see again, together with what arrives then. An error, errEnded for one, ends the client's part of the
// session; what was let through before still goes.
func (r *relay) fromClient(in []byte) (b burst, _ next, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b.in = in
	for {
		n, err := r.fromClientOne(&b)
		if n != done || err != nil {
			return b, n, err
		}
	}
}

// fromClientOne deals with one message, or with a piece of one.
func (r *relay) fromClientOne(b *burst) (next, error) {
	switch {
	case r.reason != nil:
		return done, errEnded
	case r.up.body.rest > 0:
		return r.streamUp(b)
	case r.up.confirming != nil:
		return r.confirm(b)
	}
	m, ok, err := firstMessage(b.left())
	switch {
	case err != nil:
		return done, err
	case !ok:
		return more, nil
	}
	return r.message(b, m)
}

func (r *relay) streamUp(b *burst) (next, error) {
	if len(b.left()) == 0 {
		return more, nil
	}
	if r.up.text == nil {
		r.up.body.stream(b)
		return done, nil
	}
	return done, r.streamText(b)
}

// message deals with one that is to be looked at.
func (r *relay) message(b *burst, m message) (next, error) {
	barred := !r.access().Executes()
	if barred && !r.up.barred {
		r.up.statements.distrust()
	}
	r.up.barred = barred
	switch m.typ {
	case 'X':
		r.goodbye = true
		r.up.body.pass(b, m)
		return left, nil
	case 'd', 'H':
		r.up.body.pass(b, m)
		return done, nil
	}
	if r.talk.Full() {
		return wait, nil
	}
	switch m.typ {
	case 'Q':
		return r.query(b, m)
	case 'P':
		return r.parse(b, m)
	case 'B':
		return r.bind(b, m)
	case 'E':
		return r.execute(b, m)
	case 'D':
		return r.describe(b, m)
	case 'F':
		if barred {
			return r.refuse(b, m, track.Call, nil, ticketRequired())
		}
		return r.pass(b, m, track.Sent{Kind: track.Call})
	case 'C':
		return r.closeName(b, m)
	case 'S':
		return r.pass(b, m, track.Sent{Kind: track.Sync})
	case 'c', 'f':
		return r.pass(b, m, track.Sent{Kind: track.CopyEnd})
	}
	return done, &wire.FrameError{Reason: fmt.Sprintf("invalid frontend message type %d", m.typ)}
}

// pass notes a message and lets it go on as it is.
func (r *relay) pass(b *burst, m message, sent track.Sent) (next, error) {
	r.talk.Send(sent)
	r.up.body.pass(b, m)
	return done, nil
}

// replace notes a message and puts another body in its place.
func (r *relay) replace(b *burst, m message, sent track.Sent, body ...[]byte) (next, error) {
	r.talk.Send(sent)
	r.up.body.skip(b, m)
	b.putMessage(m.typ, body...)
	return done, nil
}

// The texts that the server sees in place of what is refused. It answers each with an error, which makes the error
// its own: an open transaction is aborted, the rest of a pipeline is skipped.
var (
	refusedText = []byte("lychgate refused a statement\x00")
	refusedBind = []byte{0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0} // two formats for no parameters
	noTypes     = []byte{0, 0}
)

// refuse gives the server something to refuse in a message's place; name is that of a Parse. While the server skips
// everything anyway it gets nothing.
func (r *relay) refuse(b *burst, m message, kind track.Kind, name []byte, refusal *gate.Refusal) (next, error) {
	return r.refuseCounted(b, m, kind, name, r.gate.Refused(refusal))
}

// refuseCounted is refuse for a refusal that the gate has counted already.
func (r *relay) refuseCounted(b *burst, m message, kind track.Kind, name []byte, refusal *gate.Refusal) (next, error) {
	r.up.body.skip(b, m)
	if r.talk.Skipping() {
		return done, nil
	}
	r.talk.Send(track.Sent{Kind: kind, Instead: noticeOf(refusal, severityError).ErrorResponse()})
	switch kind {
	case track.Query, track.Call:
		b.putMessage('Q', refusedText)
	case track.Parse:
		b.putMessage('P', name, []byte{0}, refusedText, noTypes)
	default:
		b.putMessage('B', refusedBind)
	}
	return done, nil
}

func ticketRequired() *gate.Refusal {
	return &gate.Refusal{
		Reason: gate.TicketRequired, Detail: "This listener executes nothing without a ticket.",
		Hint: "Connect with the parameter fence.ticket, or SET fence.ticket first.",
	}
}

// notAllowed is a refusal of a statement's form.
func notAllowed(detail, hint string) *gate.Refusal {
	return &gate.Refusal{Reason: gate.NotAllowed, Detail: detail, Hint: hint}
}

func mentionRefused() *gate.Refusal {
	return notAllowed("The statement mentions fence.ticket in a form that would reach the server's log, and bind nothing.",
		"Send SET fence.ticket = '…' as a statement of its own.")
}

func prepareRefused() *gate.Refusal {
	return notAllowed("A prepared transaction would outlive its session, and with it the fence.", "Commit in one phase.")
}

// judge says whether a whole text may go on as far as its form goes.
func (r *relay) judge(s sqltext.Statement) *gate.Refusal {
	switch {
	case s.Mentions && s.Kind == sqltext.Other:
		return mentionRefused()
	case s.Prepares && r.access() == gate.Fenced:
		return prepareRefused()
	case r.up.barred && s.Kind == sqltext.Other:
		return ticketRequired()
	}
	return nil
}

// isPure reports whether executing a statement changes nothing and sees nothing.
func isPure(s sqltext.Statement) bool {
	switch s.Kind {
	case sqltext.Empty, sqltext.Begin, sqltext.Savepoint, sqltext.SetTicket, sqltext.ResetTicket, sqltext.ShowTicket:
		return true
	case sqltext.Other, sqltext.End, sqltext.Clear:
	}
	return false
}

// certain reports whether the server is going to look at what is sent next: nothing is outstanding that might fail.
func (r *relay) certain() bool { return r.talk.Quiet() && !r.talk.Skipping() }
