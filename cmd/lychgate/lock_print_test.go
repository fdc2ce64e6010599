package main

import (
	"strings"
	"testing"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

func TestWhatIsSaidOfALock(t *testing.T) {
	holder := &lockpb.Holder{ClientId: "A", FencingToken: 7}
	for name, test := range map[string]struct {
		lock *lockpb.Lock
		says []string
	}{
		"free":      {&lockpb.Lock{}, []string{"free"}},
		"held":      {&lockpb.Lock{Holders: []*lockpb.Holder{holder}, Holding: 1}, []string{"A, token 7"}},
		"by many":   {&lockpb.Lock{Holders: []*lockpb.Holder{holder}, Holding: 101}, []string{"A, token 7", "and 100 more"}},
		"delayed":   {&lockpb.Lock{ClosedFor: 1500}, []string{"closed by its lock-delay for 1.5s"}},
		"to others": {&lockpb.Lock{Holders: []*lockpb.Holder{holder}, Holding: 1, ClosedFor: 2000}, []string{"closed by its lock-delay for 2s", "A, token 7"}},
	} {
		var out strings.Builder
		if err := lockText(&out, &lockpb.GetResponse{Lock: test.lock}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, want := range test.says {
			if !strings.Contains(out.String(), want) {
				t.Errorf("%s: want %q in:\n%s", name, want, out.String())
			}
		}
		if strings.Contains(out.String(), "free") != (name == "free") || strings.Contains(out.String(), "more") != (name == "by many") {
			t.Errorf("%s:\n%s", name, out.String())
		}
	}
}
