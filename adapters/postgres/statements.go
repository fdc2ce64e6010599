package postgres

import (
	"github.com/lychgate/lychgate/adapters/postgres/internal/sqltext"
)

// Bounds of what is remembered of a session's prepared statements.
const (
	maxStatements = 256
	maxTickets    = 16 // of those, statements that carry tickets
	maxName       = 256
	maxKept       = 256 // of a text that can be prepared again
)

// statements remembers those prepared statements and portals whose execution means something to the fence, under
// the client's own names. All others execute something and commit nothing by themselves inside a transaction.
type statements struct {
	prepared map[string]prepared
	portals  map[string]sqltext.Statement
	tickets  int
	overflow bool // something that may commit was not remembered
}

// prepared is what a name stands for.
type prepared struct {
	sqltext.Statement
	text     string // of what is let through without a ticket
	doubtful bool   // the server may know something else by the name: it is to be given the text again
}

// notable reports whether a statement has to be remembered.
func notable(s sqltext.Statement) bool { return s.Kind != sqltext.Other || s.Commits }

// prepare notes what a name stands for if the server takes the statement. It reports false when a statement that has
// to be remembered cannot be. certain says that the server looks at it: the unnamed statement then
// loses what it stood for even if the new text is refused. Otherwise, and always for a named statement, which the
// server does not replace, what may have committed before may still.
func (m *statements) prepare(name, text []byte, s sqltext.Statement, certain bool) bool {
	if old := m.prepared[string(name)]; len(name) > 0 || !certain {
		s.Commits = s.Commits || old.Commits
	}
	m.forget(name)
	if !notable(s) {
		return true
	}
	full := len(name) > maxName || len(m.prepared) >= maxStatements
	carries := carriesTicket(s)
	if carries && (full || m.tickets >= maxTickets) {
		m.overflow = m.overflow || s.Commits
		return false
	}
	if full {
		m.overflow = true
		return true
	}
	if m.prepared == nil {
		m.prepared = map[string]prepared{}
	}
	if carries {
		m.tickets++
	}
	p := prepared{Statement: s}
	if s.Kind != sqltext.Other && s.Kind != sqltext.SetTicket && len(text) <= maxKept {
		p.text = string(text)
	}
	m.prepared[string(name)] = p
	return true
}

func (m *statements) forget(name []byte) {
	old, ok := m.prepared[string(name)]
	if !ok {
		return
	}
	if carriesTicket(old.Statement) {
		m.tickets--
	}
	delete(m.prepared, string(name))
}

// doubt is forget where the name may still stand for what it did: then all that counts is that this may commit.
func (m *statements) doubt(name []byte) {
	commits := m.prepared[string(name)].Commits
	m.forget(name)
	if commits {
		m.prepared[string(name)] = prepared{Statement: sqltext.Statement{Findings: sqltext.Findings{Commits: true}}}
	}
}

func carriesTicket(s sqltext.Statement) bool {
	return s.Kind == sqltext.SetTicket || s.Kind == sqltext.ResetTicket
}

// carries reports whether a name stands for a statement that counts among the tickets.
func (m *statements) carries(name []byte) bool {
	return carriesTicket(m.prepared[string(name)].Statement)
}

func (m *statements) forgetPortal(portal []byte) { delete(m.portals, string(portal)) }

// distrust doubts what would be let through without a ticket: names can be given a new meaning in ways that
// are not seen here. What shows a ticket stays, since whatever it executes is then carried by that ticket.
func (m *statements) distrust() {
	for name, p := range m.prepared {
		switch {
		case p.Kind == sqltext.Other || p.Kind == sqltext.SetTicket:
		case p.text == "":
			m.doubt([]byte(name))
		default:
			p.doubtful = true
			m.prepared[name] = p
		}
	}
	clear(m.portals)
}

// again is the text that a name has to be given once more before it is executed, so that it stands for that; empty: it
// need not.
func (m *statements) again(name []byte) string {
	if p := m.prepared[string(name)]; p.doubtful {
		return p.text
	}
	return ""
}

// bind notes which statement a portal stands for. It reports false when that has to be remembered and cannot be.
func (m *statements) bind(portal, name []byte) bool {
	s := m.bound(name)
	if !notable(s) {
		delete(m.portals, string(portal))
		return true
	}
	if _, known := m.portals[string(portal)]; !known && (len(portal) > maxName || len(m.portals) >= maxStatements) {
		m.overflow = true
		return s.Kind == sqltext.Other
	}
	if m.portals == nil {
		m.portals = map[string]sqltext.Statement{}
	}
	m.portals[string(portal)] = s
	return true
}

// bound is what a name stands for when a portal is made of it, once it was given its text again where it has to be; the
// zero value for anything that is not notable.
func (m *statements) bound(name []byte) sqltext.Statement {
	p, ok := m.prepared[string(name)]
	if !ok {
		p.Commits = m.overflow
	}
	return p.Statement
}

// statement is what a name certainly stands for.
func (m *statements) statement(name []byte) sqltext.Statement {
	s := m.bound(name)
	if m.again(name) != "" {
		return sqltext.Statement{Findings: s.Findings}
	}
	return s
}

// portal is what a portal stands for.
func (m *statements) portal(portal []byte) sqltext.Statement {
	s, ok := m.portals[string(portal)]
	if !ok {
		s.Commits = m.overflow
	}
	return s
}
