package sqltext

import (
	"bytes"
	"strings"
)

// Kind is what a whole statement's text is.
type Kind uint8

// The kinds.
const (
	Other       Kind = iota
	Empty            // blanks, comments and semicolons only
	Begin            // BEGIN or START TRANSACTION and nothing else
	End              // COMMIT, END, ROLLBACK or ABORT of the whole transaction, or ROLLBACK TO, and nothing else
	Savepoint        // SAVEPOINT or RELEASE and nothing else
	Clear            // DEALLOCATE, DISCARD, RESET, UNLISTEN or CLOSE ALL and nothing else: takes away what the session has of its own
	SetTicket        // SET fence.ticket to a literal
	ResetTicket      // RESET fence.ticket, or SET to DEFAULT or to the empty string
	ShowTicket       // SHOW fence.ticket
)

// Statement is what is known of a whole text.
type Statement struct {
	Findings
	Kind  Kind
	Local bool   // SET LOCAL
	Ahead string // of a statement about fence.ticket: what stands before it, BEGIN or savepoints, as some drivers send it
	Value string // of SetTicket: the literal, a secret
}

// Redacted is the text that goes to the server in place of a SetTicket: of the same effect on what SHOW and the
// transaction see, without the secret.
func (s Statement) Redacted() string {
	if s.Local {
		return s.Ahead + "SET LOCAL fence.ticket = '(redacted)'"
	}
	return s.Ahead + "SET fence.ticket = '(redacted)'"
}

// Tickets splits a SetTicket's value.
func (s Statement) Tickets() []string { return SplitTickets(s.Value) }

// SplitTickets splits comma separated tickets and drops empty ones.
func SplitTickets(value string) []string {
	var tickets []string
	for part := range strings.SplitSeq(value, ",") {
		if part = strings.TrimSpace(part); part != "" {
			tickets = append(tickets, part)
		}
	}
	return tickets
}

// Parse looks at a whole text, without its terminator. A text that mentions fence.ticket and is of kind Other is
// one that must not be forwarded.
func Parse(text []byte) Statement {
	var scan Scanner
	scan.Write(text)
	s := Statement{Findings: scan.Findings()}
	switch {
	case s.Mentions:
		s.parseTicket(text)
	case isEmpty(text):
		s.Kind = Empty
	default:
		s.Kind = parseControl(text)
	}
	return s
}

// isEmpty reports whether there is nothing to execute: also a comment alone, which drivers send to see whether the
// server is there.
func isEmpty(text []byte) bool {
	var b blank
	for _, c := range text {
		if !b.step(c) && c != ';' {
			return false
		}
	}
	return b.at == noBlank || b.at == line
}

// parseTicket accepts exactly these forms, with white space only between the words.
func (s *Statement) parseTicket(text []byte) {
	l := lexer{text}
	for l.ahead() {
	}
	s.Ahead = string(text[:len(text)-len(l.rest)])
	switch {
	case l.word("SHOW"):
		s.finish(&l, ShowTicket)
	case l.word("RESET"):
		s.finish(&l, ResetTicket)
	case l.word("SET"):
		s.Local = l.word("LOCAL")
		if !s.Local {
			l.word("SESSION")
		}
		s.parseAssignment(&l)
	}
}

// finish takes the name and the end.
func (s *Statement) finish(l *lexer, kind Kind) {
	if l.word("fence.ticket") && l.end() {
		s.Kind = kind
	}
}

func (s *Statement) parseAssignment(l *lexer) {
	if !l.word("fence.ticket") || !l.symbol('=') && !l.word("TO") {
		return
	}
	if l.word("DEFAULT") && l.end() {
		s.Kind = ResetTicket
		return
	}
	value, ok := l.literal()
	switch {
	case !ok || !l.end():
	case len(SplitTickets(value)) == 0:
		s.Kind = ResetTicket
	default:
		s.Kind, s.Value = SetTicket, value
	}
}

// parseControl recognises the commands of a transaction's two ends, and those that tidy up. Nothing that they are made of
// can execute anything else.
func parseControl(text []byte) Kind {
	l := lexer{text}
	switch {
	case l.word("BEGIN"):
		return l.modes()
	case l.word("START"):
		if l.word("TRANSACTION") {
			return l.modes()
		}
	case l.word("COMMIT"), l.word("END"), l.word("ROLLBACK"), l.word("ABORT"):
		if !l.word("WORK") {
			l.word("TRANSACTION")
		}
		if l.word("AND") {
			l.word("NO")
			if !l.word("CHAIN") {
				return Other
			}
		}
		if l.word("TO") {
			l.word("SAVEPOINT")
			return l.named(End)
		}
		if l.end() {
			return End
		}
	case l.word("SAVEPOINT"):
		return l.named(Savepoint)
	case l.word("RELEASE"):
		l.word("SAVEPOINT")
		return l.named(Savepoint)
	}
	return l.clear()
}

// clear takes a whole command with which drivers and pools tidy a session up. None of them can execute anything else.
func (l *lexer) clear() Kind {
	switch {
	case l.word("DEALLOCATE"):
		l.word("PREPARE")
		return l.named(Clear) // or ALL
	case l.word("DISCARD"):
		return l.named(Clear)
	case l.word("RESET"):
		if l.word("SESSION") {
			return l.only("AUTHORIZATION")
		}
		return l.named(Clear) // or ALL
	case l.word("SET"):
		if l.word("SESSION") && l.word("AUTHORIZATION") {
			return l.only("DEFAULT")
		}
	case l.word("CLOSE"):
		return l.only("ALL")
	case l.word("UNLISTEN"):
		if l.symbol('*') && l.end() {
			return Clear
		}
	}
	return Other
}

// only takes the last word of what clear takes.
func (l *lexer) only(word string) Kind {
	if l.word(word) && l.end() {
		return Clear
	}
	return Other
}

// lexer takes tokens off the front of a text.
type lexer struct{ rest []byte }

func (l *lexer) space() {
	for len(l.rest) > 0 && isSpace(l.rest[0]) {
		l.rest = l.rest[1:]
	}
}

// word takes a word of any case, if it comes next and ends there.
func (l *lexer) word(w string) bool {
	l.space()
	if len(l.rest) < len(w) || !strings.EqualFold(string(l.rest[:len(w)]), w) {
		return false
	}
	if len(l.rest) > len(w) && (isIdent(l.rest[len(w)]) || l.rest[len(w)] == '.') {
		return false
	}
	l.rest = l.rest[len(w):]
	return true
}

func (l *lexer) symbol(c byte) bool {
	l.space()
	if len(l.rest) == 0 || l.rest[0] != c {
		return false
	}
	l.rest = l.rest[1:]
	return true
}

// literal takes a plain string constant.
func (l *lexer) literal() (string, bool) {
	if !l.symbol('\'') {
		return "", false
	}
	var value strings.Builder
	for i := 0; i < len(l.rest); i++ {
		switch c := l.rest[i]; {
		case c == '\\':
			return "", false // means different things under different settings, and no ticket has one
		case c != '\'':
			value.WriteByte(c)
		case i+1 < len(l.rest) && l.rest[i+1] == '\'':
			i++
			value.WriteByte('\'')
		default:
			l.rest = l.rest[i+1:]
			return value.String(), true
		}
	}
	return "", false
}

// ahead takes a statement that may stand before one about fence.ticket in the same text, with its semicolon.
func (l *lexer) ahead() bool {
	n := bytes.IndexByte(l.rest, ';')
	if n < 0 {
		return false
	}
	if kind := parseControl(l.rest[:n]); kind != Begin && kind != Savepoint {
		return false
	}
	l.rest = l.rest[n+1:]
	return true
}

// named takes a name, up to the end.
func (l *lexer) named(kind Kind) Kind {
	if l.name() && l.end() {
		return kind
	}
	return Other
}

// name takes a name, with quotes or without.
func (l *lexer) name() bool {
	if l.symbol('"') {
		n := bytes.IndexByte(l.rest, '"')
		l.rest = l.rest[n+1:]
		return n > 0
	}
	n := 0
	for n < len(l.rest) && isIdent(l.rest[n]) {
		n++
	}
	l.rest = l.rest[n:]
	return n > 0
}

// end reports whether nothing but semicolons is left.
func (l *lexer) end() bool {
	for l.symbol(';') {
	}
	return len(l.rest) == 0
}

// modes takes the transaction modes of a BEGIN up to the end.
func (l *lexer) modes() Kind {
	words := []string{"WORK", "TRANSACTION", "ISOLATION", "LEVEL", "SERIALIZABLE", "REPEATABLE", "READ", "COMMITTED", "UNCOMMITTED", "WRITE", "ONLY", "NOT", "DEFERRABLE"}
	for taken := true; taken; {
		taken = l.symbol(',')
		for _, w := range words {
			taken = l.word(w) || taken
		}
	}
	if l.end() {
		return Begin
	}
	return Other
}
