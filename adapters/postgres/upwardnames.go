package postgres

import (
	"errors"

	"github.com/lychgate/lychgate/adapters/postgres/internal/sqltext"
	"github.com/lychgate/lychgate/adapters/postgres/internal/track"
	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
	"github.com/lychgate/lychgate/proxy/gate"
)

// bind deals with a portal for a prepared statement.
func (r *relay) bind(b *burst, m message) (next, error) {
	portal, rest, ok1 := wire.CString(m.body)
	name, _, ok2 := wire.CString(rest)
	if !ok1 || !ok2 {
		return done, errName()
	}
	s := r.up.statements.bound(name)
	if r.up.barred && s.Kind == sqltext.Other {
		return r.refuse(b, m, track.Bind, nil, ticketRequired())
	}
	if !r.up.statements.bind(portal, name) {
		return r.refuse(b, m, track.Bind, nil, notAllowed("Too many portals carry tickets.", "Use the unnamed portal."))
	}
	if text := r.up.statements.again(name); text != "" {
		r.prepareAgain(b, name, text)
	}
	return r.pass(b, m, track.Sent{Kind: track.Bind, Pure: isPure(s)})
}

// prepareAgain gives a name the text that its client knows it by, unseen by the client. Drivers keep BEGIN and COMMIT
// prepared while tickets come and go. Where the server does not take it, it executes nothing either up to the next Sync.
func (r *relay) prepareAgain(b *burst, name []byte, text string) {
	r.own(b, track.Close, 'C', "S"+string(name)+"\x00")
	r.own(b, track.Parse, 'P', string(name)+"\x00"+text+"\x00"+string(noTypes))
}

func errName() error {
	return &wire.FrameError{Reason: "a name without its terminator, or too long"}
}

// execute deals with the execution of a portal.
func (r *relay) execute(b *burst, m message) (next, error) {
	portal, _, ok := wire.CString(m.body)
	if !ok {
		return done, errName()
	}
	s := r.up.statements.portal(portal)
	switch {
	case r.up.barred && s.Kind == sqltext.Other:
		return r.refuse(b, m, track.Execute, nil, ticketRequired())
	case carriesTicket(s):
		if !m.whole() {
			return done, errName()
		}
		return r.showTicket(b, m, s, track.Execute, m.body)
	}
	return r.pass(b, m, track.Sent{Kind: track.Execute, Pure: isPure(s), MayCommit: s.Commits})
}

// describe deals with a question about a statement or portal, which executes nothing.
func (r *relay) describe(b *burst, m message) (next, error) {
	portal, name, err := describedName(m)
	if err != nil {
		return done, err
	}
	if portal {
		return r.pass(b, m, track.Sent{Kind: track.DescribePortal, Pure: isPure(r.up.statements.portal(name))})
	}
	return r.pass(b, m, track.Sent{Kind: track.DescribeStatement, Pure: isPure(r.up.statements.statement(name))})
}

// describedName is what a Describe or Close is about.
func describedName(m message) (portal bool, name []byte, err error) {
	if len(m.body) == 0 {
		return false, nil, &wire.FrameError{Reason: "empty Describe or Close"}
	}
	name, _, ok := wire.CString(m.body[1:])
	if !ok {
		return false, nil, errName()
	}
	return m.body[0] != 'S', name, nil
}

// closeName deals with the end of a prepared statement or portal. It is believed only where the server is certain to
// carry it out: one that stands in a batch that has failed, or may have, leaves the name to what it stood for. For a
// statement that carries a ticket it is worth waiting, since those are few.
func (r *relay) closeName(b *burst, m message) (next, error) {
	portal, name, err := describedName(m)
	if err != nil {
		return done, err
	}
	if !portal && r.up.statements.carries(name) {
		if n, err := r.quiesce(b); n != done || err != nil && !errors.Is(err, errSkipping) {
			return n, err
		}
	}
	switch certain := r.certain(); {
	case certain && portal:
		r.up.statements.forgetPortal(name)
	case certain:
		r.up.statements.forget(name)
	}
	return r.pass(b, m, track.Sent{Kind: track.Close})
}

// errSkipping means that the server ignores everything up to the next Sync.
var errSkipping = errors.New("the server skips to the next Sync")

// quiesce waits until no reply is outstanding. Where a batch has begun it asks the server to hand over the replies
// that it holds back; a Flush changes nothing else, where a Sync would commit half of the batch. Where that moment
// cannot be had, the session ends: during a COPY the server would not take what stands in for a refused statement.
func (r *relay) quiesce(b *burst) (next, error) {
	switch {
	case r.talk.Quiet():
		r.up.flushed = false
		if r.talk.Skipping() {
			return done, errSkipping
		}
		return done, nil
	case r.talk.Lost() || r.talk.Copying():
		r.endLocked(r.gate.Refused(blind()))
		return done, errEnded
	case !r.up.flushed && r.talk.NeedsFlush():
		r.up.flushed = true
		b.putMessage('H')
	}
	return wait, nil
}

func blind() *gate.Refusal {
	return notAllowed("A COPY runs, or the server has answered in a way that the proxy does not understand: "+
		"nothing can be bound in the middle of that.", "Connect again, and show the ticket between transactions.")
}

// confirm waits for the answer to the Parse that was sent last. Where a session executes next to nothing, a name
// means what it was given only once the server has said so: a Parse that fails leaves the name to what it stood for
// before, which may be anything that was prepared under a ticket.
func (r *relay) confirm(b *burst) (next, error) {
	n, err := r.quiesce(b)
	if errors.Is(err, errSkipping) {
		r.up.statements.doubt(r.up.confirming)
		err = nil
	}
	if n == done {
		r.up.confirming = nil
	}
	return n, err
}

// confirmLater makes what comes behind a Parse wait for its answer.
func (r *relay) confirmLater(name []byte) { r.up.confirming = append([]byte{}, name...) }
