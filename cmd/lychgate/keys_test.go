package main

import (
	"strings"
	"testing"

	"github.com/lychgate/lychgate/coordinator/lockpb"
)

// A node that lost its disk made itself another key; the old one still verifies, and nobody can sign with it.
func TestKeysOfALostDiskAreTold(t *testing.T) {
	var out strings.Builder
	err := printKeys(&out, []*lockpb.Key{
		{KeyId: "a", Node: "n1"}, {KeyId: "b", Node: "n2"}, {KeyId: "c", Node: "n2"}, {KeyId: "d", Node: "n3"}, {KeyId: "e", Node: "n3", Retiring: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Split(out.String(), "\n")
	for i, want := range []string{"KEY ID", "n1 signs", "n2 signs, or lost", "n2 signs, or lost", "n3 signs", "n3 retiring", "n2 has several keys"} {
		if !strings.Contains(strings.Join(strings.Fields(got[i]), " "), want) {
			t.Errorf("line %d is %q, want %q", i, got[i], want)
		}
	}
	if strings.Contains(out.String(), "n3 has") || !strings.HasSuffix(strings.TrimSpace(out.String()), "lychgate keys rotate") {
		t.Errorf("got %s", &out)
	}
}
