package client

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// The agenda against a map: due always names the earliest, whatever was set, moved and removed before.
func TestAgendaAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := agenda{changed: make(chan struct{}, 1)}
		model := make(map[*Lease]time.Duration)
		var leases [6]Lease
		t.Repeat(map[string]func(*rapid.T){
			"set": func(t *rapid.T) {
				l := &leases[rapid.IntRange(0, len(leases)-1).Draw(t, "lease")]
				at := time.Duration(rapid.IntRange(0, 9).Draw(t, "at"))
				a.set(l, at)
				model[l] = at
			},
			"remove": func(t *rapid.T) {
				l := &leases[rapid.IntRange(0, len(leases)-1).Draw(t, "lease")]
				a.remove(l)
				delete(model, l)
			},
			"": func(t *rapid.T) {
				first := time.Duration(-1)
				for _, at := range model {
					if first < 0 || at < first {
						first = at
					}
				}
				l, wait := a.due(5, 100)
				switch {
				case first < 0 && (l != nil || wait != 100):
					t.Fatalf("empty: got %v, wait %v", l, wait)
				case first > 5 && (l != nil || wait != first-5):
					t.Fatalf("nothing due: got %v, wait %v, want %v", l, wait, first-5)
				case first >= 0 && first <= 5 && (l == nil || model[l] != first):
					t.Fatalf("got %v, want one due at %v", l, first)
				}
			},
		})
		if got := len(a.clear()); got != len(model) {
			t.Fatalf("cleared %d, want %d", got, len(model))
		}
	})
}
