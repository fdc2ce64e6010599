package access

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/lychgate/lychgate/coordinator/lease"
)

func mustRules(t testing.TB, rules ...Rule) *Rules {
	t.Helper()
	r, err := New(rules)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestWhatNoRuleAllowsIsRefused(t *testing.T) {
	r := mustRules(t,
		Rule{"acme:*", "ledger/", []Right{Acquire, Read}},
		Rule{"acme:auditor", "", []Right{Read}},
		Rule{"root", "", []Right{Admin}},
		Rule{"umbrella:w", "ledger/eu/", []Right{Shared}},
	)
	for _, test := range []struct {
		id       lease.Identity
		right    Right
		resource string
		want     bool
	}{
		{"acme:worker", Acquire, "ledger/eu", true},
		{"acme:worker", Read, "ledger/eu", true},
		{"acme:worker", Shared, "ledger/eu", false},
		{"acme:worker", Admin, "ledger/eu", false},
		{"acme:worker", Acquire, "ledger", false},
		{"acme:worker", Acquire, "other/ledger/eu", false},
		{"acme:worker", Read, "", false},
		{"acmeworker", Acquire, "ledger/eu", false},
		{"acme", Acquire, "ledger/eu", false},
		{"acme:auditor", Read, "anything", true},
		{"acme:auditor", Read, "", true},
		{"acme:auditor", Acquire, "anything", false},
		{"acme:auditor", Acquire, "ledger/eu", true},
		{"root", Admin, "", true},
		{"root", Admin, "ledger/eu", true},
		{"root", Read, "ledger/eu", false},
		{"umbrella:w", Shared, "ledger/eu/x", true},
		{"umbrella:w2", Shared, "ledger/eu/x", false},
		{"anonymous", Read, "ledger/eu", false},
		{"", Read, "ledger/eu", false},
	} {
		if got := r.Allows(test.id, test.right, test.resource); got != test.want {
			t.Errorf("%q may %s %q: %v, want %v", test.id, test.right, test.resource, got, test.want)
		}
	}
	for id, want := range map[lease.Identity]bool{"acme:x": true, "root": true, "nobody": false, "": false} {
		if r.Knows(id) != want {
			t.Errorf("%q is known: %v, want %v", id, !want, want)
		}
	}
}

func TestWithoutRulesEverythingIsAllowed(t *testing.T) {
	var none *Rules
	if !none.Allows("anonymous", Admin, "") || !none.Knows("anonymous") || !slices.Equal(none.Prefixes("anonymous", Read, "a"), []string{"a"}) {
		t.Error("something is refused without access control")
	}
}

func TestPrefixesThatMayBeRead(t *testing.T) {
	r := mustRules(t,
		Rule{"a", "ledger/eu/", []Right{Read}},
		Rule{"a", "ledger/eu/x", []Right{Read}},
		Rule{"a", "ledger/", []Right{Acquire}},
		Rule{"a", "audit/", []Right{Read}},
		Rule{"*", "public/", []Right{Read}},
	)
	for prefix, want := range map[string][]string{
		"":            {"audit/", "ledger/eu/", "public/"},
		"ledger/":     {"ledger/eu/"},
		"ledger/eu/x": {"ledger/eu/x"},
		"ledger/us":   nil,
		"public":      {"public/"},
	} {
		if got := r.Prefixes("a", Read, prefix); !slices.Equal(got, want) {
			t.Errorf("%q: got %q, want %q", prefix, got, want)
		}
	}
}

// A name lies below one of the prefixes exactly if it may be read, and below one only.
func TestPrefixesAndAllowsAgree(t *testing.T) {
	name := rapid.StringMatching(`[ab]{0,4}`)
	rapid.Check(t, func(t *rapid.T) {
		var rules []Rule
		seen := map[string]bool{}
		for _, id := range rapid.SliceOfN(rapid.SampledFrom([]string{"x", "*", "x*", "y"}), 0, 6).Draw(t, "ids") {
			rule := Rule{id, name.Draw(t, "prefix"), rapid.SliceOfNDistinct(rapid.SampledFrom(Rights()), 1, 4, rapid.ID).Draw(t, "allow")}
			if key := rule.Identity + " " + rule.Prefix; !seen[key] {
				seen[key] = true
				rules = append(rules, rule)
			}
		}
		r, err := New(rules)
		if err != nil {
			t.Fatal(err)
		}
		within, resource := name.Draw(t, "within"), name.Draw(t, "resource")
		count := 0
		for _, p := range r.Prefixes("x", Read, within) {
			if strings.HasPrefix(resource, p) {
				count++
			}
		}
		want := 0
		if strings.HasPrefix(resource, within) && r.Allows("x", Read, resource) {
			want = 1
		}
		if count != want {
			t.Fatalf("%q within %q of %v lies below %d of %q, want %d", resource, within, rules, count, r.Prefixes("x", Read, within), want)
		}
	})
}

func TestRulesThatCannotBeMeant(t *testing.T) {
	good := Rule{"acme:*", "ledger/", []Right{Read}}
	with := func(change func(*Rule)) []Rule {
		r := good
		change(&r)
		return []Rule{r}
	}
	for name, test := range map[string]struct {
		rules []Rule
		field string
		said  string
	}{
		"no identity":         {with(func(r *Rule) { r.Identity = "" }), "identity", "is missing"},
		"star in the middle":  {with(func(r *Rule) { r.Identity = "a*b" }), "identity", "at the end"},
		"two stars":           {with(func(r *Rule) { r.Identity = "acme:**" }), "identity", "at the end"},
		"a space":             {with(func(r *Rule) { r.Identity = "the worker" }), "identity", "has the character"},
		"no tenant":           {with(func(r *Rule) { r.Identity = ":*" }), "identity", "no tenant"},
		"anonymous":           {with(func(r *Rule) { r.Identity = "anonymous" }), "identity", "nobody is anonymous"},
		"prefix with a space": {with(func(r *Rule) { r.Prefix = "the ledger/" }), "prefix", "begins no resource name"},
		"prefix with a slash": {with(func(r *Rule) { r.Prefix = "/ledger" }), "prefix", "begins no resource name"},
		"prefix with a star":  {with(func(r *Rule) { r.Prefix = "ledger/*" }), "prefix", "begins no resource name"},
		"nothing allowed":     {with(func(r *Rule) { r.Allow = nil }), "allow", "is empty"},
		"unknown right":       {with(func(r *Rule) { r.Allow = []Right{"write"} }), "allow", `"write" is no right`},
		"twice":               {[]Rule{good, good}, "prefix", "rule 0 is of the same identity and prefix"},
		"too many":            {make([]Rule, maxRules+1), "identity", "are the most"},
	} {
		faults := Check(test.rules)
		if len(faults) != 1 || faults[0].Field != test.field || !strings.Contains(faults[0].Reason, test.said) {
			t.Errorf("%s: got %v, want one fault of %s that says %q", name, faults, test.field, test.said)
		}
		if _, err := New(test.rules); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, id := range []string{"*", "acme*", "acme:*", "acme:eu-*", "acme:worker", "worker"} {
		if faults := Check(with(func(r *Rule) { r.Identity = id })); len(faults) != 0 {
			t.Errorf("%s: %v", id, faults)
		}
	}
}

func TestRulesThatChangeNothing(t *testing.T) {
	for name, test := range map[string]struct {
		rules []Rule
		want  []string
	}{
		"none":               {[]Rule{{"a:*", "x/", []Right{Read}}, {"a:b", "x/", []Right{Acquire}}}, nil},
		"a shorter prefix":   {[]Rule{{"a:b", "x/y/", []Right{Read}}, {"a:b", "x/", []Right{Read, Acquire}}}, []string{"[0] changes nothing: access.rules[1]"}},
		"a wider identity":   {[]Rule{{"a:*", "", []Right{Read}}, {"a:b", "x/", []Right{Read}}}, []string{"[1] changes nothing: access.rules[0]"}},
		"a wider star":       {[]Rule{{"a:b*", "", []Right{Read}}, {"*", "", []Right{Read}}}, []string{"[0] changes nothing: access.rules[1]"}},
		"more rights":        {[]Rule{{"a:b", "", []Right{Read, Admin}}, {"*", "", []Right{Read}}}, nil},
		"a narrower exact":   {[]Rule{{"a", "", []Right{Read}}, {"a*", "", []Right{Read}}}, []string{"[0] changes nothing: access.rules[1]"}},
		"another identity":   {[]Rule{{"a", "", []Right{Read}}, {"ab", "", []Right{Read}}}, nil},
		"each other, by two": {[]Rule{{"*", "", []Right{Read}}, {"*", "", []Right{Read}}}, []string{"[1] changes nothing: access.rules[0]"}},
	} {
		got := Doubts(test.rules)
		if len(got) != len(test.want) {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
			continue
		}
		for i := range got {
			if !strings.Contains(got[i], test.want[i]) {
				t.Errorf("%s: got %q, want %q", name, got, test.want)
			}
		}
	}
}
