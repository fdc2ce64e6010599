// Package sqltext finds out what little a fence has to know of a statement's text: whether it mentions the setting
// fence.ticket, in which form, and whether it may end a transaction. It is not an SQL parser. Where it cannot tell
// it errs to the safe side: a text that only looks like a mention is refused, one that only looks like a COMMIT
// makes an outcome unknown.
//
// What it cannot see is a name put together at run time or written with escapes. Such a text does not bind the
// session either, so nothing is let in by it.
package sqltext

// Scanner reads a statement's text in pieces of any size. The zero value is ready.
type Scanner struct {
	mention mention
	starts  starts
}

// Findings is what a text contains.
type Findings struct {
	Mentions bool // fence.ticket, in whatever spelling
	Commits  bool // a statement that ends a transaction and may commit it
	Prepares bool // PREPARE TRANSACTION
}

// Write takes the next piece.
func (s *Scanner) Write(p []byte) {
	s.mention.write(p)
	s.starts.write(p)
}

// Findings judges the text as if it ended here.
func (s *Scanner) Findings() Findings {
	starts := s.starts
	starts.step(';')
	return Findings{Mentions: s.mention.found || s.mention.complete(), Commits: starts.commits, Prepares: starts.prepares}
}

// mention matches fence, a dot and ticket, with anything between them that a spelling of the name can have there:
// white space, comments, quotes, backslashes, and the bars of a concatenation.
type mention struct {
	found  bool
	at     place
	letter int // of the word that is being matched
	prev   byte
	blank  blank
}

type place uint8

const (
	outside  place = iota
	inFence        // letters of fence matched
	pastName       // fence matched, waiting for the dot
	pastDot        // waiting for ticket
	inTicket       // letters of ticket matched
)

const (
	firstWord  = "fence"
	secondWord = "ticket"
)

func (m *mention) write(p []byte) {
	for i := 0; i < len(p) && !m.found; i++ {
		if m.at == outside {
			next := indexF(p[i:])
			if next < 0 {
				m.prev = p[len(p)-1]
				return
			}
			if next > 0 {
				i += next
				m.prev = p[i-1]
			}
		}
		m.step(p[i])
		m.prev = p[i]
	}
}

// indexF finds the next f of either case.
func indexF(p []byte) int {
	for i, c := range p {
		if c|0x20 == 'f' {
			return i
		}
	}
	return -1
}

func (m *mention) step(c byte) {
	switch m.at {
	case outside:
		if c|0x20 == firstWord[0] && !isIdent(m.prev) {
			m.at, m.letter = inFence, 1
		}
	case inFence:
		m.match(c, firstWord, pastName)
	case pastName:
		m.between(c)
	case pastDot:
		m.between(c)
	case inTicket:
		if m.letter < len(secondWord) {
			m.match(c, secondWord, inTicket)
		} else if isIdent(c) {
			m.at = outside
		} else {
			m.found = true
		}
	}
}

// match takes the next letter of a word.
func (m *mention) match(c byte, word string, then place) {
	if c|0x20 != word[m.letter] {
		m.restart(c)
		return
	}
	m.letter++
	if m.letter == len(word) {
		m.at = then
	}
}

// between takes what may stand between the words.
func (m *mention) between(c byte) {
	wasInside := m.blank.inside()
	switch {
	case m.blank.step(c):
	case wasInside: // a slash or dash that began no comment
		m.restart(c)
	case isNoise(c):
	case c == '.' && m.at == pastName:
		m.at = pastDot
	case c|0x20 == secondWord[0] && m.at == pastDot:
		m.at, m.letter = inTicket, 1
	default:
		m.restart(c)
	}
}

// restart looks at c as the possible beginning of another mention.
func (m *mention) restart(c byte) {
	m.at, m.blank = outside, blank{}
	m.step(c)
}

// complete reports whether the text, if it ended here, would end in a mention.
func (m *mention) complete() bool { return m.at == inTicket && m.letter == len(secondWord) }

func isNoise(c byte) bool {
	switch c {
	case '"', '\'', '\\', '|':
		return true
	}
	return false
}

func isIdent(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$' || c >= 0x80
}

// starts looks at the first words of each statement. What it takes for a beginning may stand inside a string or a
// comment, so it never skips from an opening to a closing mark: a statement can begin at the start of the text and
// behind every semicolon, every end of a block comment, and every end of a line that has two dashes in it. That
// only adds beginnings.
type starts struct {
	commits   bool
	prepares  bool
	preparing bool // PREPARE began something; TRANSACTION may follow behind comments of any kind
	within    bool // a word or mark that begins nothing: only the next beginning is of interest
	dashed    bool // the line has two dashes
	prev      byte
	word      [12]byte
	n         int // letters of word; one more than fit: a longer word
}

func (s *starts) write(p []byte) {
	for i, c := range p {
		if s.within && !mayBegin[c] {
			continue
		}
		if i > 0 {
			s.prev = p[i-1]
		}
		s.step(c)
	}
	if len(p) > 0 {
		s.prev = p[len(p)-1]
	}
}

// mayBegin are the bytes of interest within a statement.
var mayBegin = [256]bool{';': true, '/': true, '-': true, '\n': true, '\r': true}

func (s *starts) step(c byte) {
	before := s.prev
	s.prev = c
	if s.n > 0 && isIdent(c) {
		s.add(c)
		return
	}
	if s.n > 0 {
		s.endWord()
	}
	switch {
	case c == ';', c == '/' && before == '*':
		s.within = false
	case c == '\n' || c == '\r':
		s.within = s.within && !s.dashed
		s.dashed = false
	case c == '-' && before == '-':
		s.within, s.dashed = true, true
	case s.within || isSpace(c):
	case isIdent(c):
		s.add(c)
	default:
		s.within = true
	}
}

func (s *starts) add(c byte) {
	if s.n < len(s.word) {
		s.word[s.n] = c | 0x20
	}
	if s.n <= len(s.word) {
		s.n++
	}
}

func (s *starts) endWord() {
	word := ""
	if s.n <= len(s.word) {
		word = string(s.word[:s.n])
	}
	s.n, s.within = 0, true
	switch word {
	case "commit", "end":
		s.commits = true
	case "prepare":
		s.preparing, s.within = true, false
	case "transaction":
		if s.preparing {
			s.prepares, s.commits = true, true
		}
	}
}

// blank recognises white space and comments, which nest, across pieces.
type blank struct {
	at    blankPlace
	depth int
}

type blankPlace uint8

const (
	noBlank blankPlace = iota
	slash              // one slash
	block              // inside a block comment
	blockStar
	blockSlash
	dash // one dash
	line // inside a line comment
)

func (b *blank) inside() bool { return b.at != noBlank }

// step reports whether c belongs to white space or a comment, or may begin one.
func (b *blank) step(c byte) bool {
	switch b.at {
	case noBlank:
		return b.open(c)
	case slash:
		if c != '*' {
			b.at = noBlank
			return false
		}
		b.at, b.depth = block, 1
	case block:
		b.inBlock(c)
	case blockStar:
		if c == '/' {
			b.depth--
			b.at = block
			if b.depth == 0 {
				b.at = noBlank
			}
			return true
		}
		b.inBlock(c)
	case blockSlash:
		if c == '*' {
			b.depth++
			b.at = block
			return true
		}
		b.inBlock(c)
	case dash:
		if c != '-' {
			b.at = noBlank
			return false
		}
		b.at = line
	case line:
		if c == '\n' || c == '\r' {
			b.at = noBlank
		}
	}
	return true
}

func (b *blank) open(c byte) bool {
	switch {
	case isSpace(c):
	case c == '/':
		b.at = slash
	case c == '-':
		b.at = dash
	default:
		return false
	}
	return true
}

func (b *blank) inBlock(c byte) {
	switch c {
	case '*':
		b.at = blockStar
	case '/':
		b.at = blockSlash
	default:
		b.at = block
	}
}

func isSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }
