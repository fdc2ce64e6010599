package explore_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/lychgate/lychgate/chaos/explore"
)

// counters is a system of two numbers, each of which can be raised up to 9.
type counters struct {
	now, kept [2]int
	wrong     [2]int // in this state something is wrong
	forgets   bool   // Back returns to another state
	met       map[string]int
}

var errWrong = errors.New("it is wrong")

func (c *counters) Reset() { c.now = [2]int{} }
func (c *counters) Keep()  { c.kept = c.now }
func (c *counters) Back() {
	if c.now = c.kept; c.forgets && c.now == [2]int{2, 1} {
		c.now[1] = 5
	}
}

func (c *counters) Steps(room []explore.Step) []explore.Step {
	for i, n := range c.now {
		if n < 9 {
			room = append(room, explore.Step(i))
		}
	}
	return room
}

func (c *counters) Take(s explore.Step) error {
	c.now[s]++
	c.met[fmt.Sprintf("raised %d", s)]++
	if c.wrong == c.now && c.now != [2]int{} {
		return errWrong
	}
	return nil
}

func (c *counters) Key() (k explore.Key) {
	binary.LittleEndian.PutUint64(k[:], uint64(c.now[0]+1)*10+uint64(c.now[1]))
	return k
}

func (c *counters) Tell(s explore.Step) string { return fmt.Sprintf("raise %d from %d", s, c.now[s]) }

func (c *counters) Situations() map[string]int { return c.met }

func system(c counters) func() explore.System {
	return func() explore.System {
		twin := c
		twin.met = make(map[string]int)
		return &twin
	}
}

func TestAllStatesAreVisited(t *testing.T) {
	for _, workers := range []int{1, 3} {
		r := explore.Run(explore.Config{Name: "counters", System: system(counters{}), Workers: workers})
		if r.Failure != nil || !r.Complete || r.States != 100 || r.Steps != 180 || r.Depth() != 18 {
			t.Errorf("%d workers: got %+v", workers, r)
		}
		if want := []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1}; !slices.Equal(r.Levels, want) {
			t.Errorf("%d workers: got levels %v, want %v", workers, r.Levels, want)
		}
		if err := r.Enough(100, []string{"raised 0", "raised 1"}); err != nil {
			t.Error(err)
		}
	}
}

func TestEnoughStates(t *testing.T) {
	r := explore.Run(explore.Config{Name: "counters", System: system(counters{}), States: 20})
	if r.Complete || r.States < 20 || r.States > 22 || r.Depth() != 4 {
		t.Errorf("got %+v, depth %d", r, r.Depth())
	}
	if err := r.Enough(r.States+1, nil); err == nil || !strings.Contains(err.Error(), "are fewer") {
		t.Errorf("too few states: got %v", err)
	}
	if err := r.Enough(1, []string{"lowered"}); err == nil || !strings.Contains(err.Error(), "never met: lowered") {
		t.Errorf("a situation is missing: got %v", err)
	}
}

// The first way to what is wrong is a shortest one, and taking it again shows it again.
func TestFailureIsShort(t *testing.T) {
	for _, workers := range []int{1, 3} {
		c := counters{wrong: [2]int{2, 1}}
		r := explore.Run(explore.Config{System: system(c), Workers: workers})
		if r.Failure == nil || !errors.Is(r.Failure.Err, errWrong) || len(r.Failure.Path) != 3 {
			t.Fatalf("got %+v", r.Failure)
		}
		path, err := explore.ParsePath(explore.FormatPath(r.Failure.Path))
		if err != nil || !slices.Equal(path, r.Failure.Path) {
			t.Errorf("read back: %v, %v", path, err)
		}
		story := explore.Story(system(c)(), path)
		if got := strings.Count(story, "raise"); got != 3 || !strings.HasSuffix(story, "it is wrong\n") {
			t.Errorf("the story is\n%s", story)
		}
	}
}

// A state that is found by one way and not reached again by its whole path is a failure of its own.
func TestTwoStates(t *testing.T) {
	r := explore.Run(explore.Config{System: system(counters{forgets: true})})
	if r.Failure == nil || !errors.Is(r.Failure.Err, explore.ErrTwoStates) {
		t.Errorf("got %+v", r.Failure)
	}
}

func TestParsePathRefuses(t *testing.T) {
	for _, text := range []string{"", "x", "1.", "10000", "-1"} {
		if _, err := explore.ParsePath(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
}
