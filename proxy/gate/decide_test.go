package gate

import (
	"slices"
	"strings"
	"testing"

	"github.com/lychgate/lychgate/fencestore"
)

func claim(resource string, token fencestore.Token) fencestore.Claim {
	return fencestore.Claim{Cluster: "c", Resource: resource, Token: token}
}

func TestDecide(t *testing.T) {
	signed := func(claims ...fencestore.Claim) shown { return shown{verified: claims, cluster: "c"} }
	unsigned := func(resource, token string) shown {
		return shown{unsigned: []Unsigned{{resource, token}}, cluster: "c"}
	}
	open := rules{policy: Require, allowUnsigned: true, maxClaims: 2}
	strict := rules{policy: Require, maxClaims: 2}
	for name, c := range map[string]struct {
		rules   rules
		shown   shown
		access  Access
		claims  []fencestore.Claim
		refused Reason
	}{
		"nothing, require":      {rules{policy: Require, maxClaims: 1}, shown{}, Barred, nil, 0},
		"nothing, read-only":    {rules{policy: ReadOnly, maxClaims: 1}, shown{}, Reading, nil, 0},
		"nothing, allow":        {rules{policy: Allow, maxClaims: 1}, shown{}, Open, nil, 0},
		"one":                   {strict, signed(claim("a", 1)), Fenced, []fencestore.Claim{claim("a", 1)}, 0},
		"sorted":                {strict, signed(claim("b", 1), claim("a", 2)), Fenced, []fencestore.Claim{claim("a", 2), claim("b", 1)}, 0},
		"newest of a resource":  {strict, signed(claim("a", 1), claim("a", 2)), Fenced, []fencestore.Claim{claim("a", 2)}, 0},
		"too many":              {strict, signed(claim("a", 1), claim("b", 1), claim("c", 1)), 0, nil, TicketInvalid},
		"token 0":               {strict, signed(claim("a", 0)), 0, nil, TicketInvalid},
		"token 2^53":            {strict, signed(claim("a", 1<<53)), 0, nil, TicketInvalid},
		"unsigned, not allowed": {strict, unsigned("a", "1"), 0, nil, TicketInvalid},
		"unsigned":              {open, unsigned("a", "1"), Fenced, []fencestore.Claim{claim("a", 1)}, 0},
		"unsigned, largest":     {open, unsigned("a", "9007199254740991"), Fenced, []fencestore.Claim{claim("a", 1<<53-1)}, 0},
		"unsigned, 2^53":        {open, unsigned("a", "9007199254740992"), 0, nil, TicketInvalid},
		"unsigned, 2^63-1":      {open, unsigned("a", "9223372036854775807"), 0, nil, TicketInvalid},
		"unsigned, 0":           {open, unsigned("a", "0"), 0, nil, TicketInvalid},
		"unsigned, negative":    {open, unsigned("a", "-1"), 0, nil, TicketInvalid},
		"unsigned, no number":   {open, unsigned("a", "1x"), 0, nil, TicketInvalid},
		"unsigned, empty name":  {open, unsigned("", "1"), 0, nil, TicketInvalid},
		"unsigned, long name":   {open, unsigned(strings.Repeat("a", 257), "1"), 0, nil, TicketInvalid},
		"unsigned, bad name":    {open, unsigned("a/../b", "1"), 0, nil, TicketInvalid},
		"unsigned, no UTF-8":    {open, unsigned("a\xff", "1"), 0, nil, TicketInvalid},
		"unsigned, no cluster":  {open, shown{unsigned: []Unsigned{{"a", "1"}}}, 0, nil, NotReady},
	} {
		plan, refusal := decide(c.rules, c.shown)
		var reason Reason
		if refusal != nil {
			reason = refusal.Reason
		}
		if plan.Access != c.access || !slices.Equal(plan.Claims, c.claims) || reason != c.refused {
			t.Errorf("%s: got %+v, %v", name, plan, refusal)
		}
	}
}

func TestExplainEnd(t *testing.T) {
	claims := []fencestore.Claim{claim("a", 5), claim("b", 5)}
	for _, c := range []struct {
		floors [2]fencestore.Token
		want   string
	}{{[2]fencestore.Token{5, 5}, ""}, {[2]fencestore.Token{0, 0}, ""}, {[2]fencestore.Token{5, 6}, "b"}, {[2]fencestore.Token{7, 6}, "a"}} {
		got := ""
		r := explainEnd(claims, []fencestore.Floor{{Token: c.floors[0]}, {Token: c.floors[1]}})
		if r != nil {
			got = r.Claim.Resource
		}
		if got != c.want || r != nil && r.Reason != StaleToken {
			t.Errorf("floors %v: got %v", c.floors, r)
		}
	}
}

func TestWithout(t *testing.T) {
	got := Without([]fencestore.Claim{claim("a", 1), claim("b", 1)}, []fencestore.Claim{claim("a", 2)})
	if !slices.Equal(got, []fencestore.Claim{claim("b", 1)}) {
		t.Errorf("got %v", got)
	}
}

func TestWords(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range Reasons() {
		if strings.Contains(r.String(), "reason(") || seen[r.String()] || seen[r.Message()] || r.Message() == r.String() {
			t.Errorf("reason %d has the words %q, %q", r, r, r.Message())
		}
		seen[r.String()], seen[r.Message()] = true, true
	}
	for _, p := range []Policy{Require, ReadOnly, Allow} {
		if got, err := ParsePolicy(p.String()); err != nil || got != p {
			t.Errorf("%v: got %v, %v", p, got, err)
		}
	}
	if _, err := ParsePolicy("deny"); err == nil {
		t.Error("an unknown policy was accepted")
	}
}

func TestPlanReadOnly(t *testing.T) {
	shared := claim("a", 1)
	shared.Mode = fencestore.Shared
	for name, c := range map[string]struct {
		plan Plan
		want bool
	}{
		"nothing, require":     {Plan{Access: Barred}, false},
		"nothing, allow":       {Plan{Access: Open}, false},
		"nothing, read-only":   {Plan{Access: Reading}, true},
		"exclusive":            {Plan{Access: Fenced, Claims: []fencestore.Claim{claim("a", 1)}}, false},
		"shared":               {Plan{Access: Fenced, Claims: []fencestore.Claim{shared}}, true},
		"shared and exclusive": {Plan{Access: Fenced, Claims: []fencestore.Claim{shared, claim("b", 1)}}, false},
	} {
		if got := c.plan.ReadOnly(); got != c.want {
			t.Errorf("%s: got %v, want %v", name, got, c.want)
		}
	}
}

// What nobody has decided on executes nothing.
func TestNoAccessExecutesNothing(t *testing.T) {
	for access, want := range map[Access]bool{0: false, Barred: false, Fenced: true, Reading: true, Open: true} {
		if access.Executes() != want {
			t.Errorf("access %d executes: %v, want %v", access, !want, want)
		}
	}
}
