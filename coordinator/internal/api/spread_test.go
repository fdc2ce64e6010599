package api

import (
	"testing"
	"time"
)

func TestPreferredLeadersTakeTurns(t *testing.T) {
	for number, want := range []string{"a", "b", "c", "a", "b"} {
		if got := preferred(uint16(number), []string{"c", "a", "b"}); got != want {
			t.Errorf("group %d: %s, want %s", number, got, want)
		}
	}
	if got := preferred(0, nil); got != "" {
		t.Errorf("of nobody: %q", got)
	}
}

// A leader hands over to one that has been fit for a while, once, and less and less often to one that does not stay.
func TestWhenLeadershipIsGiven(t *testing.T) {
	began := time.Unix(0, 0)
	type look struct {
		at   time.Duration
		term uint64
		fit  bool
		want bool
	}
	const s = time.Second
	for name, looks := range map[string][]look{
		"steady":               {{0, 1, true, false}, {4 * s, 1, true, false}, {5 * s, 1, true, true}},
		"does not lead":        {{0, 0, true, false}, {9 * s, 0, true, false}},
		"not fit for a moment": {{0, 1, true, false}, {4 * s, 1, false, false}, {5 * s, 1, true, false}, {9 * s, 1, true, false}, {10 * s, 1, true, true}},
		"another term":         {{0, 1, true, false}, {4 * s, 3, true, false}, {6 * s, 3, true, false}, {9 * s, 3, true, true}},
		"it does not take over": {
			{0, 1, true, false},
			{5 * s, 1, true, true},
			{6 * s, 1, true, false},
			{20 * s, 1, true, false},
			{25 * s, 1, true, true},
			{26 * s, 1, true, false},
			{60 * s, 1, true, false},
			{65 * s, 1, true, true},
		},
		"it comes and goes": {
			{0, 1, true, false},
			{5 * s, 1, true, true},
			{6 * s, 0, false, false},
			{8 * s, 4, true, false},
			{14 * s, 4, true, false},
			{25 * s, 4, true, true},
			{26 * s, 0, false, false},
			{30 * s, 6, true, false},
			{36 * s, 6, true, false},
			{65 * s, 6, true, true},
		},
		"it stayed for long": {
			{0, 1, true, false},
			{5 * s, 1, true, true},
			{6 * s, 0, false, false},
			{3600 * s, 5, true, false},
			{3605 * s, 5, true, true},
			{3606 * s, 5, true, false},
			{3625 * s, 5, true, true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			turn := turn{hold: 5 * s}
			for _, l := range looks {
				if got := turn.due(began.Add(l.at), l.term, l.fit); got != l.want {
					t.Errorf("at %v: %v", l.at, got)
				}
			}
		})
	}
}
