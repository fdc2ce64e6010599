// Package access says who may do what: rules by identity and resource prefix, and tokens that stand for identities.
// Rules only add up; what no rule allows is refused.
package access

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// Right is a kind of thing that may be allowed.
type Right string

// The rights. To renew, release and cancel takes none: a lease's own identity may, and no other.
const (
	Acquire Right = "acquire" // exclusively
	Shared  Right = "shared"  // acquire in shared mode
	Read    Right = "read"    // see who holds and who waits
	Admin   Right = "admin"   // break; with the prefix "", also change the cluster, its policies and its keys
)

// Rights lists them.
func Rights() []Right { return []Right{Acquire, Shared, Read, Admin} }

// Rule allows identities something on the resources whose name begins with a prefix.
type Rule struct {
	Identity string // exact, or with a * at its end: every identity that begins so
	Prefix   string // of resource names, by bytes; "" is every resource, and the cluster itself
	Allow    []Right
}

// Bounds of rules.
const maxRules = 1000

// Fault is what is wrong with a rule, so that nothing may start with it.
type Fault struct {
	Rule          int
	Field, Reason string
}

// Rules are a checked set, which another may take the place of. The nil *Rules is no access control: everything is allowed.
type Rules struct {
	set     atomic.Pointer[ruleSet]
	changes changes
}

type ruleSet struct {
	exact map[lease.Identity][]Rule
	begin []Rule // those whose identity ends with *, without it
}

// New makes a set of rules that Check finds no fault with.
func New(rules []Rule) (*Rules, error) {
	if faults := Check(rules); len(faults) > 0 {
		f := faults[0]
		return nil, fmt.Errorf("access rule %d: %s: %s", f.Rule, f.Field, f.Reason)
	}
	r := &Rules{}
	r.set.Store(newSet(rules))
	return r, nil
}

func newSet(rules []Rule) *ruleSet {
	s := &ruleSet{exact: make(map[lease.Identity][]Rule)}
	for _, rule := range rules {
		if begin, wild := strings.CutSuffix(rule.Identity, "*"); wild {
			rule.Identity = begin
			s.begin = append(s.begin, rule)
			continue
		}
		id := lease.Identity(rule.Identity)
		s.exact[id] = append(s.exact[id], rule)
	}
	return s
}

// Take has the rules of another set count from now on.
func (r *Rules) Take(from *Rules) {
	r.set.Store(from.set.Load())
	r.changes.tell()
}

// Changed is closed when other rules count. Ask for it before asking for a right; nil never is.
func (r *Rules) Changed() <-chan struct{} {
	if r == nil {
		return nil
	}
	return r.changes.next()
}

// of yields the rules of an identity.
func (r *Rules) of(id lease.Identity, yield func(Rule) bool) {
	set := r.set.Load()
	for _, rule := range set.exact[id] {
		if !yield(rule) {
			return
		}
	}
	for _, rule := range set.begin {
		if strings.HasPrefix(string(id), rule.Identity) && !yield(rule) {
			return
		}
	}
}

// Allows reports whether an identity has a right on a resource, or on every resource whose name begins with a prefix;
// empty: on the cluster as a whole.
func (r *Rules) Allows(id lease.Identity, right Right, resource string) (allowed bool) {
	if r == nil {
		return true
	}
	r.of(id, func(rule Rule) bool {
		allowed = strings.HasPrefix(resource, rule.Prefix) && slices.Contains(rule.Allow, right)
		return !allowed
	})
	return allowed
}

// Knows reports whether an identity has any right at all.
func (r *Rules) Knows(id lease.Identity) (known bool) {
	if r == nil {
		return true
	}
	r.of(id, func(Rule) bool {
		known = true
		return false
	})
	return known
}

// Prefixes are the parts below a prefix on which an identity has a right: sorted, none below another. One that is the
// prefix itself stands for all of it; none means nothing of it.
func (r *Rules) Prefixes(id lease.Identity, right Right, prefix string) []string {
	if r.Allows(id, right, prefix) {
		return []string{prefix}
	}
	var below []string
	r.of(id, func(rule Rule) bool {
		if strings.HasPrefix(rule.Prefix, prefix) && slices.Contains(rule.Allow, right) {
			below = append(below, rule.Prefix)
		}
		return true
	})
	slices.Sort(below)
	var out []string
	for _, p := range below { // what is below another comes right behind it
		if len(out) == 0 || !strings.HasPrefix(p, out[len(out)-1]) {
			out = append(out, p)
		}
	}
	return out
}

// Check says what is wrong with rules.
func Check(rules []Rule) (faults []Fault) {
	add := func(i int, field, format string, args ...any) {
		faults = append(faults, Fault{i, field, fmt.Sprintf(format, args...)})
	}
	if len(rules) > maxRules {
		add(maxRules, "identity", "there are %d rules, and %d are the most", len(rules), maxRules)
		return faults
	}
	seen := make(map[string]int)
	for i, rule := range rules {
		if reason := identityFault(rule.Identity); reason != "" {
			add(i, "identity", "%s", reason)
		}
		if reason := prefixFault(rule.Prefix); reason != "" {
			add(i, "prefix", "%s", reason)
		}
		if len(rule.Allow) == 0 {
			add(i, "allow", "is empty: known are acquire, shared, read, admin")
		}
		for _, right := range rule.Allow {
			if !slices.Contains(Rights(), right) {
				add(i, "allow", "%q is no right: known are acquire, shared, read, admin", right)
			}
		}
		key := rule.Identity + " " + rule.Prefix
		if earlier, twice := seen[key]; twice {
			add(i, "prefix", "rule %d is of the same identity and prefix: put what both allow into one", earlier)
		}
		seen[key] = i
	}
	return faults
}

func identityFault(pattern string) string {
	text, wild := strings.CutSuffix(pattern, "*")
	switch {
	case pattern == "":
		return `is missing: name one, or "acme:*", or "*" for everybody who is authenticated`
	case pattern == string(lease.Anonymous):
		return "nobody is anonymous where there are rules"
	case strings.Contains(text, "*"):
		return fmt.Sprintf("%q: a * may only stand at the end", pattern)
	case text == "":
		return ""
	case wild:
		text += "x" // as good as whatever may follow
	}
	if _, err := lease.ParseIdentity(text); err != nil {
		return fmt.Sprintf("%q: %v", pattern, err)
	}
	return ""
}

func prefixFault(prefix string) string {
	if prefix == "" {
		return ""
	}
	// A prefix may end anywhere in a name.
	if _, err := lease.ParseResource(prefix + "x"); err != nil {
		return fmt.Sprintf("%q begins no resource name", prefix)
	}
	return ""
}

// Doubts names rules that change nothing, because another allows all that they do.
func Doubts(rules []Rule) (doubts []string) {
	for i, rule := range rules {
		for j, other := range rules {
			if i != j && other.covers(rule) && (i > j || !rule.covers(other)) {
				doubts = append(doubts, fmt.Sprintf("access.rules[%d] changes nothing: access.rules[%d] allows all of it", i, j))
				break
			}
		}
	}
	return doubts
}

// covers reports whether everything that other allows is allowed by r.
func (r Rule) covers(other Rule) bool {
	for _, right := range other.Allow {
		if !slices.Contains(r.Allow, right) {
			return false
		}
	}
	begin, wild := strings.CutSuffix(r.Identity, "*")
	same := r.Identity == other.Identity
	return (same || (wild && strings.HasPrefix(strings.TrimSuffix(other.Identity, "*"), begin))) &&
		strings.HasPrefix(other.Prefix, r.Prefix)
}
