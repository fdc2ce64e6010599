package group

import (
	"errors"
	"slices"
	"testing"
)

func TestHowANodeWithoutMemoryBegins(t *testing.T) {
	type sight = map[string]sighting
	met := sighting{blank: true, told: true}
	proof := Proof{Term: 3, Index: 9}
	for name, test := range map[string]struct {
		had  bool // it was catching up before
		seen sight
		want beginning
	}{
		"alone":                              {seen: sight{}, want: creates},
		"nobody answers":                     {seen: sight{"b": {}, "c": {}}, want: undecided},
		"one does not answer":                {seen: sight{"b": met, "c": {}}, want: undecided},
		"all are blank":                      {seen: sight{"b": met, "c": met}, want: creates},
		"one asked and was not reached":      {seen: sight{"b": met, "c": {blank: true}}, want: undecided},
		"one was blank and has created":      {seen: sight{"b": met, "c": {blank: true, told: true, settled: true}}, want: creates},
		"one remembers":                      {seen: sight{"b": met, "c": {told: true, settled: true}}, want: undecided},
		"one leads":                          {seen: sight{"b": {}, "c": {told: true, settled: true, answered: proof}}, want: rejoins},
		"one leads, one is blank":            {seen: sight{"b": met, "c": {told: true, settled: true, answered: proof}}, want: rejoins},
		"all created, and one leads":         {seen: sight{"b": met, "c": {blank: true, told: true, settled: true, answered: proof}}, want: creates},
		"it was catching up, all are blank":  {had: true, seen: sight{"b": met, "c": met}, want: undecided},
		"it was catching up, alone":          {had: true, seen: sight{}, want: undecided},
		"it was catching up, and one leads":  {had: true, seen: sight{"b": met, "c": {told: true, settled: true, answered: proof}}, want: rejoins},
		"five: one of the others is missing": {seen: sight{"b": met, "c": met, "d": met, "e": {}}, want: undecided},
	} {
		got, p := decide(!test.had, test.seen)
		if got != test.want || (got == rejoins) != (p == proof) {
			t.Errorf("%s: it %s with %+v, want that it %s", name, got, p, test.want)
		}
	}
}

// Of two that say that they lead, the later one does.
func TestTheLatestLeaderCounts(t *testing.T) {
	older, newer := Proof{Term: 3, Index: 90}, Proof{Term: 4, Index: 80}
	for range 20 {
		if _, got := decide(true, map[string]sighting{"b": {answered: older}, "c": {answered: newer}}); got != newer {
			t.Fatalf("got %+v", got)
		}
	}
}

func TestWhatIsSeenOfTheOthers(t *testing.T) {
	s := newSightings(Config{Node: "a", Members: []Member{{ID: "a"}, {ID: "b"}, {ID: "c"}}})
	s.asked(Question{From: "c", Blank: false})
	s.asked(Question{From: "x", Blank: true})
	s.asked(Question{From: "a", Blank: true})
	if got := unseen(s.now()); !slices.Equal(got, []string{"b", "c"}) || len(s.news) != 0 {
		t.Errorf("after questions that say nothing: %v are missing, %d news", got, len(s.news))
	}
	s.asked(Question{From: "b", Blank: true})
	if len(s.news) != 1 {
		t.Error("that a member is blank is no news")
	}
	if got := unseen(s.now()); !slices.Equal(got, []string{"b", "c"}) {
		t.Errorf("%v are missing, but b does not know of this node", got)
	}
	s.answered("b", Answer{})
	s.answered("c", Answer{Blank: true})
	if seen := s.now(); len(unseen(seen)) != 0 || len(remembering(seen)) != 0 {
		t.Errorf("missing %v, remembering %v", unseen(seen), remembering(seen))
	}
}

func TestAnswersAreForOtherMembers(t *testing.T) {
	g, err := New(Config{Node: "a", Dir: t.TempDir(), Cluster: "x", Lock: testLockConfig(), Members: []Member{{"a", "a:1"}, {"b", "b:1"}}})
	if err != nil {
		t.Fatal(err)
	}
	for _, from := range []string{"", "a", "x"} {
		if _, err := g.Answer(t.Context(), Question{From: from, Blank: true}); err == nil {
			t.Errorf("%q is answered", from)
		}
	}
	var e *Error
	if _, err := g.Answer(t.Context(), Question{From: "b", Blank: true}); !errors.As(err, &e) || e.Kind != NotLeader {
		t.Errorf("before the stores are open: %v", err)
	}
}
