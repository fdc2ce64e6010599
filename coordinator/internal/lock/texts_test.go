package lock

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lychgate/lychgate/coordinator/lease"
)

// TestSizesOfTexts walks the sizes of cells: each is in the smallest class that has room for it, with little to spare.
func TestSizesOfTexts(t *testing.T) {
	for n := 1; n < 1<<20; n += 1 + n/97 {
		class := classFor(n)
		size := sizeOf(class)
		if size < n || class > 0 && sizeOf(class-1) >= n || size > n+max(7, n/8) {
			t.Fatalf("%d bytes are in class %d of %d bytes", n, class, size)
		}
		if page := size << cellBits(class); page > 32<<10 && cellBits(class) > 0 {
			t.Fatalf("a page of class %d has %d bytes", class, page)
		}
	}
}

// TestTexts compares texts with a map, and frozen ones with what the map was.
func TestTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		texts, model := new(texts), make(map[text]said)
		frozen, frozenModel := texts.freeze(), map[text]said{}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"spell", "spell", "id", "remove", "freeze"}).Draw(t, "step") {
			case "spell":
				w := words{
					resource: lease.Resource(someText(t, rapid.SampledFrom([]int{100, 700, 20_000}).Draw(t, "most"))), owner: someText(t, 20), id: lease.RequestID(someText(t, 200)),
				}
				s := someTerms(t, true)
				model[texts.spell(&w, &s)] = said{w, s}
			case "id":
				w := words{id: lease.RequestID(someText(t, 20))}
				s := someTerms(t, false)
				model[texts.spell(&w, &s)] = said{w, s}
			case "remove":
				for at := range model {
					texts.remove(at)
					delete(model, at)
					break
				}
			case "freeze":
				frozen, frozenModel = texts.freeze(), make(map[text]said)
				for at, w := range model {
					frozenModel[at] = w
				}
			}
		}
		compareTexts(t, texts, model)
		compareTexts(t, frozen, frozenModel)
	})
}

func someText(t *rapid.T, most int) string {
	return strings.Repeat("\xffé", most)[:rapid.IntRange(0, most).Draw(t, "length")]
}

// said is what a text says.
type said struct {
	words
	terms
}

// someTerms has numbers of all lengths, those of a claim or not.
func someTerms(t *rapid.T, claims bool) terms {
	s := terms{claims: claims, waiter: none, sequence: someNumber(t), imprint: imprint(rapid.IntRange(0, 3).Draw(t, "print"))}
	if s.imprint == imprintKept {
		s.fingerprint = someNumber(t)
	}
	if !claims {
		return s
	}
	s.lease, s.ttl, s.until = lease.ID{1: byte(someNumber(t))}, time.Duration(someNumber(t)), LeaseTime(someNumber(t))
	if rapid.Bool().Draw(t, "waits") {
		s.waiter = slot(rapid.Int32Min(0).Draw(t, "waiter"))
		return s
	}
	s.token, s.since, s.behind = lease.Token(someNumber(t)), LeaseTime(someNumber(t)), someNumber(t)
	return s
}

func someNumber(t *rapid.T) uint64 {
	n := rapid.Uint64().Draw(t, "number") >> rapid.IntRange(0, 63).Draw(t, "shift")
	if rapid.Bool().Draw(t, "whole") {
		n *= 1e6
	}
	return n
}

func compareTexts(t *rapid.T, texts *texts, model map[text]said) {
	want := make(map[string]int)
	for at, w := range model {
		if got := (said{texts.words(at), texts.terms(at)}); got != w || texts.sequence(at) != w.sequence || string(texts.id(at)) != string(w.id) || string(texts.resource(at)) != string(w.resource) {
			t.Fatalf("%v has %+v, want %+v", at, got, w)
		}
		if claims, _ := headOf(texts.peek(at)); claims != w.claims {
			t.Fatalf("%v has a claim: %v", at, claims)
		} else if claims {
			want[string(w.resource)]++
		}
	}
	for name := range texts.resources {
		want[string(name)]--
	}
	for name, n := range want {
		if n != 0 {
			t.Fatalf("resource %q is missing %d times", name, n)
		}
	}
}
