package judge

import (
	"strings"
	"testing"
)

// legal is a history with everything in it that may be: a takeover, holders that share a token, a write whose outcome
// nobody knows that is there and one that is not, a refused one.
func legal() History {
	return History{
		Rows: []Row{{"a", 1, 1, "w1"}, {"a", 2, 1, "w2"}, {"a", 3, 4, "w4"}, {"b", 1, 2, "w5"}},
		Attempts: map[string]Attempt{
			"w1": {"a", 1, Acknowledged}, "w2": {"a", 1, Unknown}, "w3": {"a", 1, Refused},
			"w4": {"a", 4, Acknowledged}, "w5": {"b", 2, Acknowledged}, "w6": {"a", 1, Unknown},
		},
		Contacts: []Contact{{"a", 4, 2}, {"a", 1, 0}, {"a", 3, 2}, {"b", 2, 0}, {"a", 4, 3}},
		Floors:   []Floor{{"a", 1}, {"b", 2}, {"a", 3}, {"a", 4}, {"a", 4}, {"b", 2}},
	}
}

func TestLegalHistories(t *testing.T) {
	for name, h := range map[string]History{"empty": {}, "full": legal()} {
		if found := Judge(h); len(found) > 0 {
			t.Errorf("%s: %v", name, found)
		}
	}
}

func TestIllegalHistories(t *testing.T) {
	for name, c := range map[string]struct {
		break_ func(*History)
		want   string
	}{
		"a lower token after a higher one": {func(h *History) {
			h.Rows = append(h.Rows, Row{"a", 4, 1, "w6"})
		}, "invariant 4"},
		"a write behind the back of one who only read": {func(h *History) {
			h.Contacts = append(h.Contacts, Contact{"a", 3, 1}) // w2, of token 1, came after that
		}, "invariant 4"},
		"a read of an old holder after a newer one's": {func(h *History) {
			h.Contacts = append(h.Contacts, Contact{"a", 1, 3})
		}, "invariant 3"},
		"acknowledged and lost": {func(h *History) {
			h.Attempts["w7"] = Attempt{"a", 4, Acknowledged}
		}, "w7: acknowledged, and not there"},
		"refused and there": {func(h *History) {
			h.Attempts["w4"] = Attempt{"a", 4, Refused}
		}, "w4: refused, and there"},
		"written by nobody":  {func(h *History) { delete(h.Attempts, "w4") }, "w4: a row that nobody wrote"},
		"written twice":      {func(h *History) { h.Rows = append(h.Rows, Row{"a", 4, 4, "w4"}) }, "w4: written twice"},
		"under another name": {func(h *History) { h.Attempts["w4"] = Attempt{"a", 3, Unknown} }, "w4: written as"},
		"a hole among the commits": {func(h *History) {
			h.Rows[2].Place = 4
		}, "behind the write at place 2 comes one at 4"},
		"two at one place": {func(h *History) { h.Rows[1].Place = 1 }, "behind the write at place 1 comes one at 1"},
		"a read of what is gone": {func(h *History) {
			h.Contacts = append(h.Contacts, Contact{"b", 2, 9})
		}, "token 2 saw 9 writes, and there are 1"},
		"a floor that goes down": {func(h *History) { h.Floors = append(h.Floors, Floor{"a", 3}) }, "invariant 3"},
		"a floor that was never raised": {func(h *History) {
			h.Contacts = append(h.Contacts, Contact{"a", 5, 3})
		}, "token 5 was accepted, and the floor is 4"},
	} {
		t.Run(name, func(t *testing.T) {
			h := legal()
			c.break_(&h)
			for _, err := range Judge(h) {
				if strings.Contains(err.Error(), c.want) {
					return
				}
			}
			t.Errorf("got %v, want %q", Judge(h), c.want)
		})
	}
}

// TestReportIsBounded: a run without any fence has thousands of faults.
func TestReportIsBounded(t *testing.T) {
	h := History{}
	for i := range 1000 {
		h.Rows = append(h.Rows, Row{"a", int64(i + 1), uint64(1000 - i), "nobody"})
	}
	if got := len(Judge(h)); got != 100 {
		t.Errorf("%d errors, want 100", got)
	}
}
