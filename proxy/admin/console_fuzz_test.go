package admin

import (
	"strings"
	"testing"
)

// Whatever is typed is an error or commands that there are, each with the argument that it takes.
func FuzzParseCommands(f *testing.F) {
	for _, text := range []string{"", ";", "show help", "SHOW  bindings ;; show floors;", "cut 12; reload", "cut", "cut 1 2", "show", "drain x", "select 1", "show help\x00", "Cut ſ"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := parseCommands(text)
		if err != nil {
			if len(list) > 0 {
				t.Errorf("refused (%v), with %d commands", err, len(list))
			}
			return
		}
		if len(list) > strings.Count(text, ";")+1 {
			t.Errorf("%d commands in %q", len(list), text)
		}
		for _, c := range list {
			if v, ok := find(c.verb); !ok || (c.argument != "") != (v.argument != "") {
				t.Errorf("%q is read as %+v", text, c)
			}
		}
	})
}
