package postgres_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgproto3"
)

// conversation is what a client sends, as testdata/conversations tells it:
//
//	== a name                     begins a conversation
//	Query "select 1"              one message a line; {x*5} in a text stands for xxxxx
//	Bind "" "s" in=1 out=1 "\x00" null
//	Raw "Q\x00\x00\x00\x05\x00"   any bytes
//	read Z 2                      sends what stands before it at once, and reads up to the second message of type Z
//	refused FATAL 08P01           through the proxy it ends with this error instead
//
// What stands behind the last read is sent, too, and at the end of all Terminate.
type conversation struct {
	name    string
	turns   []turn
	refused string // in the body of the proxy's own error
}

// turn is what is sent at once, and up to where the client then reads: the count-th message of a type.
type turn struct {
	send  []byte
	until byte
	count int
}

func parseConversations(text string) (all []conversation, _ error) {
	var now turn
	for i, line := range strings.Split(text+"\n== \n", "\n") {
		name, begins := strings.CutPrefix(line, "== ")
		switch {
		case begins:
			if len(all) > 0 && len(now.send) > 0 {
				last := &all[len(all)-1]
				last.turns = append(last.turns, now)
			}
			now = turn{}
			all = append(all, conversation{name: name})
			continue
		case line == "" || line[0] == '#':
			continue
		case len(all) == 0:
			return nil, fmt.Errorf("line %d stands before the first name", i+1)
		}
		if err := all[len(all)-1].take(&now, line); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return all[:len(all)-1], nil
}

func (c *conversation) take(now *turn, line string) error {
	words, err := splitWords(line)
	if err != nil {
		return err
	}
	switch words[0] {
	case "read":
		now.until, now.count = words[1][0], 1
		if len(words) > 2 {
			now.count, err = strconv.Atoi(words[2])
		}
		c.turns = append(c.turns, *now)
		*now = turn{}
	case "refused":
		severity, code := words[1], words[2]
		c.refused = fmt.Sprintf(`S%s\x00V%s\x00C%s\x00`, severity, severity, code)
	case "Raw":
		now.send = append(now.send, words[1]...)
	default:
		m, err := parseMessage(words[0], words[1:])
		if err != nil {
			return err
		}
		now.send, err = m.Encode(now.send)
		return err
	}
	return err
}

func parseMessage(typ string, w []string) (pgproto3.FrontendMessage, error) {
	want := map[string]int{"Query": 1, "Parse": 2, "Bind": 2, "Describe": 2, "Close": 2, "Execute": 2, "CopyData": 1, "CopyFail": 1, "FunctionCall": 1}
	if len(w) < want[typ] {
		return nil, fmt.Errorf("%s has %d words, want %d", typ, len(w), want[typ])
	}
	switch typ {
	case "Query":
		return &query{String: w[0]}, nil
	case "Parse":
		m := &parse{Name: w[0], Query: w[1]}
		for _, oid := range w[2:] {
			m.ParameterOIDs = append(m.ParameterOIDs, uint32(number(oid)))
		}
		return m, nil
	case "Bind":
		return parseBind(w), nil
	case "Describe":
		return &descr{ObjectType: w[0][0], Name: w[1]}, nil
	case "Close":
		return &close_{ObjectType: w[0][0], Name: w[1]}, nil
	case "Execute":
		return &execute{Portal: w[0], MaxRows: uint32(number(w[1]))}, nil
	case "CopyData":
		return &copyData{Data: []byte(w[0])}, nil
	case "CopyFail":
		return &copyFail{Message: w[0]}, nil
	case "FunctionCall":
		return &call{Function: uint32(number(w[0])), Arguments: values(w[1:])}, nil
	}
	m, ok := map[string]pgproto3.FrontendMessage{"Sync": &sync_{}, "Flush": &flush{}, "CopyDone": &copyDone{}, "Terminate": &pgproto3.Terminate{}}[typ]
	if !ok {
		return nil, fmt.Errorf("no message %q", typ)
	}
	return m, nil
}

func parseBind(w []string) *bind {
	m := &bind{DestinationPortal: w[0], PreparedStatement: w[1]}
	w = w[2:]
	for len(w) > 0 {
		format, in := strings.CutPrefix(w[0], "in=")
		out, isOut := strings.CutPrefix(w[0], "out=")
		switch {
		case in:
			m.ParameterFormatCodes = append(m.ParameterFormatCodes, int16(number(format)))
		case isOut:
			m.ResultFormatCodes = append(m.ResultFormatCodes, int16(number(out)))
		default:
			m.Parameters = values(w)
			return m
		}
		w = w[1:]
	}
	return m
}

func values(words []string) (all [][]byte) {
	for _, word := range words {
		if word == "null" {
			all = append(all, nil)
		} else {
			all = append(all, []byte(word))
		}
	}
	return all
}

// number is a word's, 0 where it is none: a conversation whose numbers are wrong is answered wrongly by both.
func number(word string) int {
	n, _ := strconv.Atoi(word)
	return n
}

var repeated = regexp.MustCompile(`\{(.*?)\*(\d+)\}`)

// splitWords takes words apart, some of which are quoted as in Go.
func splitWords(line string) (words []string, _ error) {
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		if line[0] != '"' {
			word, rest, _ := strings.Cut(line, " ")
			words, line = append(words, word), rest
			continue
		}
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, line)
		}
		word, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, err
		}
		words = append(words, repeated.ReplaceAllStringFunc(word, func(s string) string {
			parts := repeated.FindStringSubmatch(s)
			return strings.Repeat(parts[1], number(parts[2]))
		}))
		line = line[len(quoted):]
	}
	return words, nil
}
