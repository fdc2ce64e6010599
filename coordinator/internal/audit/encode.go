package audit

import (
	"encoding/json"
	"strconv"
)

// append writes a line as encoding/json would, which is much slower: a line for each grant and each end is a good part
// of what they cost every node. A test compares the two. at is its time in text, which lines of one entry share.
func (l *line) append(to, at []byte) []byte {
	to = append(to, `{"time":"`...)
	to = append(to, at...)
	to = append(to, '"')
	to = appendText(to, "node", l.Node)
	to = appendNumber(to, "group", uint64(l.Group))
	to = append(to, `,"from":`...)
	to = strconv.AppendUint(to, l.From, 10)
	to = append(to, `,"index":`...)
	to = strconv.AppendUint(to, l.Index, 10)
	to = appendNumber(to, "term", l.Term)
	if l.LeaseTime != 0 {
		to = append(to, `,"lease_time":`...)
		to = strconv.AppendInt(to, int64(l.LeaseTime), 10)
	}
	if l.More {
		to = append(to, `,"more":true`...)
	}
	to = appendPlain(to, "decision", l.Decision)
	to = appendFilled(to, "cause", l.Cause)
	to = appendFilled(to, "command", l.Command)
	to = appendFilled(to, "resource", l.Resource)
	if l.Lease != "" {
		to = appendPlain(to, "lease", l.Lease)
	}
	to = appendNumber(to, "token", uint64(l.Token))
	if l.Mode != "" {
		to = appendPlain(to, "mode", l.Mode)
	}
	to = appendFilled(to, "identity", l.Identity)
	to = appendFilled(to, "client", l.Client)
	to = appendFilled(to, "request", l.Request)
	to = appendFilled(to, "leader", l.Leader)
	to = appendFilled(to, "key", l.Key)
	to = appendFilled(to, "policy", l.Policy)
	to = appendFilled(to, "member", l.Member)
	to = appendNumber(to, "version", uint64(l.Version))
	if len(l.Cycle) > 0 {
		to = append(to, `,"cycle":[`...)
		for i, owner := range l.Cycle {
			if i > 0 {
				to = append(to, ',')
			}
			to = appendString(to, owner)
		}
		to = append(to, ']')
	}
	return append(to, '}')
}

func appendNumber(to []byte, name string, n uint64) []byte {
	if n == 0 {
		return to
	}
	to = append(to, `,"`...)
	to = append(to, name...)
	to = append(to, `":`...)
	return strconv.AppendUint(to, n, 10)
}

func appendFilled(to []byte, name, value string) []byte {
	if value == "" {
		return to
	}
	return appendText(to, name, value)
}

// appendPlain is appendText of a word of this program, or a hash: nothing in it is ever escaped.
func appendPlain(to []byte, name, value string) []byte {
	to = append(to, `,"`...)
	to = append(to, name...)
	to = append(to, `":"`...)
	to = append(to, value...)
	return append(to, '"')
}

func appendText(to []byte, name, value string) []byte {
	to = append(to, `,"`...)
	to = append(to, name...)
	to = append(to, `":`...)
	return appendString(to, value)
}

// appendString leaves what has to be escaped to the library. Names never do.
func appendString(to []byte, s string) []byte {
	for i := range len(s) {
		if !plain[s[i]] {
			quoted, err := json.Marshal(s)
			if err != nil {
				return append(to, `""`...) // a string always can be
			}
			return append(to, quoted...)
		}
	}
	to = append(to, '"')
	to = append(to, s...)
	return append(to, '"')
}

// plain is the bytes that stand for themselves in a string. To look them up is faster than to compare each with all the others.
var plain = func() (table [256]bool) {
	for c := byte(' '); c <= '~'; c++ {
		table[c] = c != '"' && c != '\\' && c != '<' && c != '>' && c != '&'
	}
	return table
}()
