package postgres

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lychgate/lychgate/adapters/postgres/internal/track"
	"github.com/lychgate/lychgate/fencestore"
)

// claims reads "a1 b2".
func claims(text string) (list []fencestore.Claim) {
	for word := range strings.FieldsSeq(text) {
		list = append(list, fencestore.Claim{Cluster: "c", Resource: word[:1], Token: fencestore.Token(word[1] - '0')})
	}
	return list
}

func words(list []fencestore.Claim) string {
	var all []string
	for _, c := range list {
		all = append(all, fmt.Sprintf("%s%d", c.Resource, c.Token))
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

func TestFences(t *testing.T) {
	type change func(*fences)
	set := func(text string) change { return func(f *fences) { f.add(claims(text), false) } }
	local := func(text string) change { return func(f *fences) { f.add(claims(text), true) } }
	reset := change(func(f *fences) { f.reset() })
	end := func(o track.Outcome) change { return func(f *fences) { f.settle(o) } }
	for name, c := range map[string]struct {
		changes        []change
		base, unwanted string
	}{
		"nothing":              {[]change{end(track.Committed)}, "a1", ""},
		"set":                  {[]change{set("b1"), end(track.Committed)}, "b1", "a1"},
		"set, rolled back":     {[]change{set("b1"), end(track.RolledBack)}, "a1", "b1"},
		"set, unclear":         {[]change{set("b1"), end(track.Unclear)}, "a1 b1", ""},
		"local":                {[]change{local("b1"), end(track.Committed)}, "a1", "b1"},
		"local, unclear":       {[]change{local("b1"), end(track.Unclear)}, "a1", "b1"},
		"both":                 {[]change{local("b1"), set("c1"), end(track.Committed)}, "c1", "a1 b1"},
		"two sets add up":      {[]change{set("b1"), set("c1"), end(track.Committed)}, "b1 c1", "a1"},
		"same resource":        {[]change{set("a2"), end(track.Committed)}, "a2", ""},
		"same, rolled back":    {[]change{set("a2"), end(track.RolledBack)}, "a2", ""}, // the store has it under 2
		"local of the same":    {[]change{local("a1"), end(track.Committed)}, "a1", ""},
		"reset":                {[]change{reset, end(track.Committed)}, "", "a1"},
		"reset, rolled back":   {[]change{reset, end(track.RolledBack)}, "a1", ""},
		"reset, unclear":       {[]change{reset, end(track.Unclear)}, "a1", ""},
		"reset takes back set": {[]change{set("b1"), reset, end(track.Committed)}, "", "a1 b1"},
		// COMMIT AND CHAIN keeps what was set though the chained transaction is rolled back; ROLLBACK TO may take a
		// RESET back.
		"set, chained, rolled back": {[]change{set("b1"), end(track.Partial), end(track.RolledBack)}, "a1 b1", ""},
		"set, chained, committed":   {[]change{set("b1"), end(track.Partial), end(track.Committed)}, "a1 b1", ""},
		"reset, rolled back to":     {[]change{reset, end(track.Partial), end(track.Committed)}, "a1", ""},
		"local, rolled back to":     {[]change{local("b1"), end(track.Partial)}, "a1", ""},
		"local, and the end":        {[]change{local("b1"), end(track.Partial), end(track.Committed)}, "a1", "b1"},
		"wanted again":              {[]change{set("b1"), end(track.Committed), set("a1"), end(track.Committed)}, "a1", "b1"},
	} {
		f := fences{base: claims("a1")}
		for _, change := range c.changes {
			change(&f)
		}
		if got := words(f.base); got != c.base {
			t.Errorf("%s: base %q, want %q", name, got, c.base)
		}
		if got := words(f.takeUnwanted()); got != c.unwanted {
			t.Errorf("%s: unwanted %q, want %q", name, got, c.unwanted)
		}
	}
}
