// Package figures holds what a bench tells: measured figures, beside those of a peer in the same run, and the goals
// that they should meet.
package figures

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Result is one measured figure.
type Result struct {
	Name  string   `json:"name"`
	Value float64  `json:"value"`
	Unit  string   `json:"unit"`
	Peer  *float64 `json:"peer,omitempty"`  // the peer's, from the same run
	Ratio *float64 `json:"ratio,omitempty"` // ours over the peer's
	// Direct is the figure without anything in between, from the same run.
	Direct *float64 `json:"direct,omitempty"`
	Goal   string   `json:"goal,omitempty"`
	Met    *bool    `json:"met,omitempty"`
}

// ErrUsage is in the errors of a run that was asked for what it cannot measure.
var ErrUsage = errors.New("cannot measure that")

// Report is what a run tells. It is complete only if the run ended without an error.
type Report struct {
	Peer    string   `json:"peer"`            // its name
	Notes   []string `json:"notes,omitempty"` // how it was measured, where that is not as always
	Results []Result `json:"results"`
}

// Goal is what a figure should be; sizes that are not the full ones have none.
type Goal struct {
	text     string
	compared bool // with the peer
	met      func(Result) bool
}

// AtMost is met by a value up to v.
func AtMost(v float64) Goal {
	return Goal{"≤ " + number(v), false, func(r Result) bool { return r.Value <= v }}
}

// AtLeast is met by a value from v.
func AtLeast(v float64) Goal {
	return Goal{"≥ " + number(v), false, func(r Result) bool { return r.Value >= v }}
}

// RatioAtMost is met by a value up to v times the peer's. Without a peer's it is no goal.
func RatioAtMost(v float64) Goal {
	return Goal{"≤ " + number(v) + " × ", true, func(r Result) bool { return r.Ratio != nil && *r.Ratio <= v }}
}

// RatioAtLeast is met by a value from v times the peer's. Without a peer's it is no goal.
func RatioAtLeast(v float64) Goal {
	return Goal{"≥ " + number(v) + " × ", true, func(r Result) bool { return r.Ratio != nil && *r.Ratio >= v }}
}

// Add adds a figure; peer is nil if there is none.
func (r *Report) Add(name, unit string, value float64, peer *float64, goals ...Goal) {
	r.AddResult(Result{Name: name, Unit: unit, Value: value, Peer: peer}, goals...)
}

// AddResult adds a figure and finds out its ratio, and whether it meets its goals; the last one is told.
func (r *Report) AddResult(x Result, goals ...Goal) {
	if x.Peer != nil && *x.Peer != 0 {
		x.Ratio = new(x.Value / *x.Peer)
	}
	for _, g := range goals {
		switch {
		case !g.compared:
			x.Goal = g.text
		case x.Ratio == nil:
			continue
		default:
			x.Goal = g.text + r.Peer
		}
		x.Met = new(g.met(x))
	}
	r.Results = append(r.Results, x)
}

// Line is the form for programs: RESULT name=value unit=… peer=… ratio=… direct=…, without what there is not.
func (r Result) Line() string {
	line := "RESULT " + r.Name + "=" + number(r.Value) + " unit=" + r.Unit
	if r.Peer != nil {
		line += " peer=" + number(*r.Peer)
	}
	if r.Ratio != nil {
		line += " ratio=" + number(*r.Ratio)
	}
	if r.Direct != nil {
		line += " direct=" + number(*r.Direct)
	}
	return line
}

// Print writes the table, the notes and the lines. A column that no figure has is left out.
func (r Report) Print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, line := range r.table() {
		fmt.Fprintln(tw, strings.TrimRight(strings.Join(line, "\t"), "\t"))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, n := range r.Notes {
		fmt.Fprintf(w, "note: %s\n", n)
	}
	fmt.Fprintln(w)
	for _, x := range r.Results {
		if _, err := fmt.Fprintln(w, x.Line()); err != nil {
			return err
		}
	}
	return nil
}

// table has a head and a line for each figure, with the columns that there are.
func (r Report) table() [][]string {
	any := func(has func(Result) bool) bool { return slices.ContainsFunc(r.Results, has) }
	columns := []struct {
		name string
		has  bool
		cell func(Result) string
	}{
		{"WHAT", true, func(x Result) string { return x.Name }},
		{"UNIT", true, func(x Result) string { return x.Unit }},
		{"DIRECT", any(func(x Result) bool { return x.Direct != nil }), func(x Result) string { return orDash(x.Direct) }},
		{"LYCHGATE", true, func(x Result) string { return number(x.Value) }},
		{strings.ToUpper(r.Peer), any(func(x Result) bool { return x.Peer != nil }), func(x Result) string { return orDash(x.Peer) }},
		{"RATIO", any(func(x Result) bool { return x.Peer != nil }), func(x Result) string { return orDash(x.Ratio) }},
		{"GOAL", any(func(x Result) bool { return x.Goal != "" }), func(x Result) string { return dash(x.Goal) }},
		{"", any(func(x Result) bool { return x.Goal != "" }), Result.verdict},
	}
	lines := make([][]string, 1+len(r.Results))
	for _, c := range columns {
		if !c.has {
			continue
		}
		lines[0] = append(lines[0], c.name)
		for i, x := range r.Results {
			lines[i+1] = append(lines[i+1], c.cell(x))
		}
	}
	return lines
}

func (r Result) verdict() string {
	switch {
	case r.Met == nil:
		return ""
	case *r.Met:
		return "met"
	}
	return "missed"
}

// number writes a value with at most four digits that matter, and never as a power of ten.
func number(v float64) string {
	switch {
	case v >= 1000 || v <= -1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v == float64(int64(v)):
		return strconv.FormatFloat(v, 'f', 0, 64)
	case v >= 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	case v >= 1:
		return strconv.FormatFloat(v, 'f', 2, 64)
	}
	return strconv.FormatFloat(v, 'f', 4, 64)
}

func orDash(v *float64) string {
	if v == nil {
		return "-"
	}
	return number(*v)
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}
