package lock

import (
	"strings"
	"testing"

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
		texts, model := new(texts), make(map[text]words)
		frozen, frozenModel := texts.freeze(), map[text]words{}
		for range rapid.IntRange(1, 300).Draw(t, "steps") {
			switch rapid.SampledFrom([]string{"spell", "spell", "id", "remove", "freeze"}).Draw(t, "step") {
			case "spell":
				w := words{
					resource: lease.Resource(someText(t, 700)), owner: someText(t, 20), id: lease.RequestID(someText(t, 200)),
				}
				model[texts.spell(w)] = w
			case "id":
				w := words{id: lease.RequestID(someText(t, 20))}
				model[texts.spellID(w.id)] = w
			case "remove":
				for at := range model {
					texts.remove(at)
					delete(model, at)
					break
				}
			case "freeze":
				frozen, frozenModel = texts.freeze(), make(map[text]words)
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

func compareTexts(t *rapid.T, texts *texts, model map[text]words) {
	want := make(map[string]int)
	for at, w := range model {
		if got := texts.words(at); got != w || string(texts.id(at)) != string(w.id) || string(texts.resource(at)) != string(w.resource) {
			t.Fatalf("%v has %q, want %q", at, got, w)
		}
		if claims, _ := headOf(texts.peek(at)); claims {
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
