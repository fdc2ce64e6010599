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
func (r *relay) query(b *burst, m message) (next, error) {
	if !m.whole() {
		if r.up.barred {
			return r.refuse(b, m, track.Query, nil, ticketRequired())
		}
		return r.beginText(b, m, track.Query, nil)
	}
	s := sqltext.Parse(bytes.TrimRight(m.body, "\x00"))
	if refusal := r.judge(s); refusal != nil {
		return r.refuse(b, m, track.Query, nil, refusal)
	}
	switch s.Kind {
	case sqltext.SetTicket:
		return r.showTicket(b, m, s, track.Query, []byte(s.Redacted()), []byte{0})
	case sqltext.ResetTicket:
		return r.showTicket(b, m, s, track.Query, m.body)
	case sqltext.Other, sqltext.Empty, sqltext.Begin, sqltext.End, sqltext.Savepoint, sqltext.Clear, sqltext.ShowTicket:
	}
	return r.pass(b, m, track.Sent{Kind: track.Query, Pure: isPure(s), MayCommit: s.Commits})
}

// parse deals with the preparation of a statement. A ticket in it is taken out here and shown when the statement
// is executed.
func (r *relay) parse(b *burst, m message) (next, error) {
	if !m.whole() {
		return r.parseLarge(b, m)
	}
	name, rest, ok1 := wire.CString(m.body)
	query, types, ok2 := wire.CString(rest)
	if !ok1 || !ok2 {
		return done, &wire.FrameError{Reason: "Parse without its terminators"}
	}
	s := sqltext.Parse(query)
	if sqltext.Parse(name).Mentions {
		return r.refuse(b, m, track.Parse, nil, mentionRefused())
	}
	if refusal := r.judge(s); refusal != nil {
		r.up.statements.doubt(name)
		return r.refuse(b, m, track.Parse, name, refusal)
	}
	if r.up.barred {
		n, err := r.quiesce(b)
		switch {
		case n != done:
			return n, nil
		case errors.Is(err, errSkipping):
			r.up.body.skip(b, m) // the server would not look at it
			return done, nil
		case err != nil:
			return done, err
		}
	}
	if !r.up.statements.prepare(name, query, s, r.certain()) {
		return r.refuse(b, m, track.Parse, name, notAllowed("Too many prepared statements carry tickets.", "Use one statement, or the simple protocol."))
	}
	if r.up.barred {
		r.confirmLater(name)
	}
	sent := track.Sent{Kind: track.Parse, Pure: isPure(s)}
	if s.Kind == sqltext.SetTicket {
		return r.replace(b, m, sent, name, []byte{0}, []byte(s.Redacted()), []byte{0}, types)
	}
	return r.pass(b, m, sent)
}

// parseLarge streams a Parse whose text is too large to be a ticket's.
func (r *relay) parseLarge(b *burst, m message) (next, error) {
	name, _, ok := wire.CString(m.body[:maxName+1])
	if !ok {
		return done, &wire.FrameError{Reason: "name of a prepared statement is too long"}
	}
	if r.up.barred {
		r.up.statements.doubt(name)
		return r.refuse(b, m, track.Parse, name, ticketRequired())
	}
	return r.beginText(b, m, track.Parse, bytes.Clone(name))
}

// text is one that streams.
type text struct {
	scan  sqltext.Scanner
	parse bool
	name  []byte // that a Parse gives it
}

// beginText lets a text go on that is too large to be looked at whole: each piece is looked at before it goes.
func (r *relay) beginText(b *burst, m message, kind track.Kind, name []byte) (next, error) {
	r.talk.Send(track.Sent{Kind: kind, MayCommit: true})
	b.pass(headerSize)
	r.up.body = body{rest: m.size}
	r.up.text = &text{parse: kind == track.Parse, name: name}
	return done, nil
}

// streamText looks at the next piece. A text that must not go on is cut off, which ends the session: the server never
// executes a message that it has not got as a whole, nor logs it.
func (r *relay) streamText(b *burst) error {
	t := r.up.text
	t.scan.Write(b.left()[:min(r.up.body.rest, len(b.left()))])
	found := t.scan.Findings()
	switch {
	case found.Mentions:
		return r.gate.Refused(mentionRefused())
	case found.Prepares && r.access() == gate.Fenced:
		return r.gate.Refused(prepareRefused())
	}
	r.up.body.stream(b)
	if r.up.body.rest > 0 {
		return nil
	}
	r.up.text = nil
	if t.parse {
		r.up.statements.prepare(t.name, nil, sqltext.Statement{Findings: found}, false)
	}
	return nil
}
