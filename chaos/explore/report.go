package explore

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Report is how far an exploration went and what it met.
type Report struct {
	Name       string
	States     int   // distinct
	Steps      int   // taken and judged
	Levels     []int // states by their distance from the first
	Complete   bool  // there are no more states
	Situations map[string]int
	Took       time.Duration
	Failure    *Failure
}

// Failure is the shortest way to a step that is wrong.
type Failure struct {
	Path []Step
	Err  error
}

// Depth is the distance up to which every state was gone on from.
func (r *Report) Depth() int {
	if r.Complete {
		return len(r.Levels) - 1
	}
	return max(0, len(r.Levels)-2)
}

func (x *explorer) figures() *Report {
	return &Report{
		Name: x.Name, States: int(x.states.Load()), Steps: int(x.steps.Load()), Levels: slices.Clone(x.levels),
		Took: time.Since(x.begun),
	}
}

func (x *explorer) report(workers []*worker) *Report {
	r := x.figures()
	r.Failure, r.Complete = x.failure, !x.stop.Load()
	r.Situations = make(map[string]int)
	for _, w := range workers {
		for name, n := range w.system.Situations() {
			r.Situations[name] += n
		}
	}
	return r
}

// Line is the report in one line.
func (r *Report) Line() string {
	what := "every state up to"
	if r.Complete {
		what = "all there are, the farthest"
	}
	line := fmt.Sprintf("%s: %d states, %d steps judged, %s %d steps away", r.Name, r.States, r.Steps, what, r.Depth())
	if r.Took > 0 { // else its clock stood still
		line += fmt.Sprintf(", %.0f states/s, %v", float64(r.States)/r.Took.Seconds(), r.Took.Round(100*time.Millisecond))
	}
	return line
}

// Print writes the report with its levels and situations.
func (r *Report) Print(w io.Writer) {
	fmt.Fprintf(w, "%s\n  states by distance: %v\n", r.Line(), r.Levels)
	for _, name := range slices.Sorted(maps.Keys(r.Situations)) {
		fmt.Fprintf(w, "  %12d  %s\n", r.Situations[name], name)
	}
}

// Enough says what an exploration fell short of: too few states, or a situation that was never met.
func (r *Report) Enough(states int, must []string) error {
	var errs []error
	if r.States < states {
		errs = append(errs, fmt.Errorf("%s: %d states are fewer than %d", r.Name, r.States, states))
	}
	for _, name := range must {
		if r.Situations[name] == 0 {
			errs = append(errs, fmt.Errorf("%s: never met: %s", r.Name, name))
		}
	}
	return errors.Join(errs...)
}

// Story tells a path in words, a step a line, and ends with what is wrong.
func Story(s System, path []Step) string {
	var b strings.Builder
	s.Reset()
	for i, step := range path {
		fmt.Fprintf(&b, "%3d. %s\n", i+1, s.Tell(step))
		if err := s.Take(step); err != nil {
			fmt.Fprintf(&b, "     %v\n", err)
			return b.String()
		}
	}
	return b.String()
}

// Retell tells a path that was given on a command line.
func Retell(s System, path string) (string, error) {
	steps, err := ParsePath(path)
	if err != nil {
		return "", err
	}
	return Story(s, steps), nil
}

// Told is the failure with its story, and how to see it again: a command that the path completes.
func (f *Failure) Told(s System, again string) string {
	return fmt.Sprintf("%v\n%s\nagain: %s %s", f.Err, Story(s, f.Path), again, FormatPath(f.Path))
}

// FormatPath and ParsePath are a path as a word that can be given on a command line.
func FormatPath(path []Step) string {
	words := make([]string, len(path))
	for i, s := range path {
		words[i] = strconv.FormatUint(uint64(s), 16)
	}
	return strings.Join(words, ".")
}

// ParsePath reads what FormatPath writes.
func ParsePath(text string) ([]Step, error) {
	var path []Step
	for word := range strings.SplitSeq(text, ".") {
		n, err := strconv.ParseUint(word, 16, 16)
		if err != nil {
			return nil, fmt.Errorf("a path is hexadecimal numbers with dots between them: %w", err)
		}
		path = append(path, Step(n))
	}
	return path, nil
}
