package feed

import (
	"math"
	"testing"
)

func TestRevisionIsReadBack(t *testing.T) {
	r := Revision{Cluster: ClusterMark("lg-a"), Groups: []Place{
		{After(17), 0}, {Position{Index: math.MaxUint64, Part: 3}, math.MaxUint32}, {Position{}, 1},
	}}
	text := r.String()
	got, err := ParseRevision(text)
	if err != nil || got.String() != text || got.Groups[1] != r.Groups[1] || got.Groups[0] != r.Groups[0] {
		t.Fatalf("%s: %v, %v", text, got, err)
	}
	for i := range text {
		for _, other := range []string{text[:i], text[:i] + "A" + text[i+1:], text + "A"} {
			if other == text {
				continue
			}
			if got, err := ParseRevision(other); err == nil {
				t.Fatalf("%q is taken for %v", other, got)
			}
		}
	}
	if ClusterMark("lg-a") == ClusterMark("lg-b") {
		t.Error("two clusters have the same mark")
	}
}

func FuzzParseRevision(f *testing.F) {
	f.Add("")
	f.Add(Revision{}.String())
	f.Add(Revision{Cluster: ClusterMark("x"), Groups: []Place{{After(1), 1}, {After(1 << 40), 0}}}.String())
	f.Fuzz(func(t *testing.T, text string) {
		r, err := ParseRevision(text)
		if err == nil && r.String() != text {
			t.Errorf("%q is %v, which is %q", text, r, r.String())
		}
	})
}
