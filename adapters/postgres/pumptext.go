package postgres

import (
	"bytes"
	"errors"

	"github.com/lychgate/lychgate/adapters/postgres/internal/sqltext"
	"github.com/lychgate/lychgate/adapters/postgres/internal/track"
	"github.com/lychgate/lychgate/adapters/postgres/internal/wire"
	"github.com/lychgate/lychgate/proxy/gate"
)

// query deals with a simple query.
func (r *relay) query(size int) error {
	in := r.session.fromClient
	if !in.Fits() {
		if r.barred {
			return r.refuseAndSkip(track.Query, nil, ticketRequired())
		}
		_, err := r.streamText('Q', size, track.Query)
		return err
	}
	body, err := in.Body()
	if err != nil {
		return unlessEOF(err)
	}
	s := sqltext.Parse(bytes.TrimRight(body, "\x00"))
	if refusal := r.judge(s); refusal != nil {
		return r.refuse(track.Query, nil, refusal)
	}
	sent := track.Sent{Kind: track.Query, Pure: isPure(s), MayCommit: s.Commits}
	if s.Kind == sqltext.SetTicket || s.Kind == sqltext.ResetTicket {
		return r.showTicket(s, sent, func() error {
			if s.Kind == sqltext.SetTicket {
				return r.replace('Q', []byte(s.Redacted()), []byte{0})
			}
			return r.replace('Q', body)
		})
	}
	if err := r.send(sent); err != nil {
		return err
	}
	return r.replace('Q', body)
}

// parse deals with the preparation of a statement. A ticket in it is taken out here and shown when the statement
// is executed.
func (r *relay) parse(size int) error {
	in := r.session.fromClient
	if !in.Fits() {
		return r.parseLarge(size)
	}
	body, err := in.Body()
	if err != nil {
		return unlessEOF(err)
	}
	name, rest, ok1 := wire.CString(body)
	text, types, ok2 := wire.CString(rest)
	if !ok1 || !ok2 {
		return &wire.FrameError{Reason: "Parse without its terminators"}
	}
	s := sqltext.Parse(text)
	if sqltext.Parse(name).Mentions {
		return r.refuse(track.Parse, nil, mentionRefused())
	}
	if refusal := r.judge(s); refusal != nil {
		r.statements.doubt(name)
		return r.refuse(track.Parse, name, refusal)
	}
	if r.barred {
		switch err := r.quiesce(); {
		case errors.Is(err, errSkipping):
			return nil // the server would not look at it
		case err != nil:
			return err
		}
	}
	certain, err := r.certain()
	if err != nil {
		return err
	}
	if !r.statements.prepare(name, s, certain) {
		return r.refuse(track.Parse, name, notAllowed("Too many prepared statements carry tickets.", "Use one statement, or the simple protocol."))
	}
	if err := r.send(track.Sent{Kind: track.Parse, Pure: isPure(s)}); err != nil {
		return err
	}
	parts := [][]byte{body}
	if s.Kind == sqltext.SetTicket {
		parts = [][]byte{name, {0}, []byte(s.Redacted()), {0}, types}
	}
	if err := r.replace('P', parts...); err != nil || !r.barred {
		return err
	}
	return r.confirm(name)
}

// confirm waits for the answer to the Parse that was sent last. Where a session executes next to nothing, a name
// means what it was given only once the server has said so: a Parse that fails leaves the name to what it stood for
// before, which may be anything that was prepared under a ticket.
func (r *relay) confirm(name []byte) error {
	name = bytes.Clone(name)
	err := r.quiesce()
	if errors.Is(err, errSkipping) {
		r.statements.doubt(name)
		return nil
	}
	return err
}

// parseLarge streams a Parse whose text is too large to be a ticket's.
func (r *relay) parseLarge(size int) error {
	head, err := r.session.fromClient.Peek(maxName + 1)
	if err != nil {
		return unlessEOF(err)
	}
	name, _, ok := wire.CString(head)
	if !ok {
		return &wire.FrameError{Reason: "name of a prepared statement is too long"}
	}
	name = bytes.Clone(name)
	if r.barred {
		r.statements.doubt(name)
		return r.refuseAndSkip(track.Parse, name, ticketRequired())
	}
	found, err := r.streamText('P', size, track.Parse)
	r.statements.prepare(name, sqltext.Statement{Findings: found}, false)
	return err
}

// streamText forwards a text that does not fit into the buffer, looking at each piece before it goes. A text that
// must not be forwarded is cut off, which ends the session: the server never executes a message that it has not
// got as a whole, nor logs it.
func (r *relay) streamText(typ byte, size int, kind track.Kind) (found sqltext.Findings, err error) {
	if err := r.send(track.Sent{Kind: kind, MayCommit: true}); err != nil {
		return found, err
	}
	if err := r.header(typ, size); err != nil {
		return found, err
	}
	var scan sqltext.Scanner
	for {
		piece, err := r.session.fromClient.Chunk()
		if err != nil || len(piece) == 0 {
			return found, unlessEOF(err)
		}
		scan.Write(piece)
		found = scan.Findings()
		switch {
		case found.Mentions:
			return found, r.gate.Refused(mentionRefused())
		case found.Prepares && r.access() == gate.Fenced:
			return found, r.gate.Refused(prepareRefused())
		}
		if _, err := r.toServer.Write(piece); err != nil {
			return found, err
		}
	}
}

// bind deals with a portal for a prepared statement.
func (r *relay) bind(size int) error {
	portal, name, err := r.twoNames()
	if err != nil {
		return err
	}
	s := r.statements.statement(name)
	if r.barred && s.Kind == sqltext.Other {
		return r.refuseAndSkip(track.Bind, nil, ticketRequired())
	}
	if !r.statements.bind(portal, name) {
		return r.refuseAndSkip(track.Bind, nil, notAllowed("Too many portals carry tickets.", "Use the unnamed portal."))
	}
	return r.pass('B', size, track.Sent{Kind: track.Bind, Pure: isPure(s)})
}

// execute deals with the execution of a portal.
func (r *relay) execute(size int) error {
	portal, err := r.oneName(0)
	if err != nil {
		return err
	}
	s := r.statements.portal(portal)
	sent := track.Sent{Kind: track.Execute, Pure: isPure(s), MayCommit: s.Commits}
	switch {
	case r.barred && s.Kind == sqltext.Other:
		return r.refuseAndSkip(track.Execute, nil, ticketRequired())
	case s.Kind == sqltext.SetTicket || s.Kind == sqltext.ResetTicket:
		body, err := r.session.fromClient.Body()
		if err != nil {
			return unlessEOF(err)
		}
		body = bytes.Clone(body)
		return r.showTicket(s, sent, func() error { return r.replace('E', body) })
	}
	return r.pass('E', size, sent)
}

// describe deals with a question about a statement or portal, which executes nothing.
func (r *relay) describe(size int) error {
	what, err := r.session.fromClient.Peek(1)
	if err != nil {
		return unlessEOF(err)
	}
	if len(what) == 0 {
		return &wire.FrameError{Reason: "empty Describe"}
	}
	sent, find := track.Sent{Kind: track.DescribePortal}, r.statements.portal
	if what[0] == 'S' {
		sent.Kind, find = track.DescribeStatement, r.statements.statement
	}
	name, err := r.oneName(1)
	if err != nil {
		return err
	}
	sent.Pure = isPure(find(name))
	return r.pass('D', size, sent)
}

// closeName deals with the end of a prepared statement or portal. It is believed only where the server is certain to
// carry it out: one that stands in a batch that has failed, or may have, leaves the name to what it stood for. For a
// statement that carries a ticket it is worth waiting, since those are few.
func (r *relay) closeName(size int) error {
	what, err := r.session.fromClient.Peek(1)
	if err != nil {
		return unlessEOF(err)
	}
	if len(what) == 0 {
		return &wire.FrameError{Reason: "empty Close"}
	}
	portal := what[0] != 'S'
	name, err := r.oneName(1)
	if err != nil {
		return err
	}
	name = bytes.Clone(name)
	if !portal && r.statements.carries(name) {
		if err := r.quiesce(); err != nil && !errors.Is(err, errSkipping) {
			return err
		}
	}
	certain, err := r.certain()
	switch {
	case err != nil:
		return err
	case certain && portal:
		r.statements.forgetPortal(name)
	case certain:
		r.statements.forget(name)
	}
	return r.pass('C', size, track.Sent{Kind: track.Close})
}

// certain reports whether the server is going to look at what is sent next: nothing is outstanding that might fail.
func (r *relay) certain() (yes bool, err error) {
	err = r.await(func() bool { return true }, func() { yes = r.talk.Quiet() && !r.talk.Skipping() })
	return yes, err
}

// oneName looks at a name that stands skip bytes into the body. It is valid until the next read.
func (r *relay) oneName(skip int) ([]byte, error) {
	head, err := r.session.fromClient.Peek(skip + bufferSize/4)
	if err != nil {
		return nil, unlessEOF(err)
	}
	name, _, ok := wire.CString(head[min(skip, len(head)):])
	if !ok {
		return nil, &wire.FrameError{Reason: "a name without its terminator, or too long"}
	}
	return name, nil
}

// twoNames looks at the two names that a Bind begins with.
func (r *relay) twoNames() (portal, name []byte, err error) {
	head, err := r.session.fromClient.Peek(bufferSize / 2)
	if err != nil {
		return nil, nil, unlessEOF(err)
	}
	portal, rest, ok1 := wire.CString(head)
	name, _, ok2 := wire.CString(rest)
	if !ok1 || !ok2 {
		return nil, nil, &wire.FrameError{Reason: "a name without its terminator, or too long"}
	}
	return portal, name, nil
}
