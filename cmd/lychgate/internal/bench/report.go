package bench

import (
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
	Peer  *float64 `json:"peer,omitempty"`  // etcd's, from the same run
	Ratio *float64 `json:"ratio,omitempty"` // ours over the peer's
	Goal  string   `json:"goal,omitempty"`
	Met   *bool    `json:"met,omitempty"`
}

// Report is what a run tells. It is complete only if the run ended without an error.
type Report struct {
	Notes   []string `json:"notes,omitempty"` // how it was measured, where that is not as always
	Results []Result `json:"results"`
}

// goal is what a figure should be; sizes that are not the full ones have none.
type goal struct {
	text string
	met  func(Result) bool
}

func atMost(v float64) goal {
	return goal{"≤ " + number(v), func(r Result) bool { return r.Value <= v }}
}

func atLeast(v float64) goal {
	return goal{"≥ " + number(v), func(r Result) bool { return r.Value >= v }}
}

func ratioAtMost(v float64) goal {
	return goal{"≤ " + number(v) + " × etcd", func(r Result) bool { return r.Ratio != nil && *r.Ratio <= v }}
}

func ratioAtLeast(v float64) goal {
	return goal{"≥ " + number(v) + " × etcd", func(r Result) bool { return r.Ratio != nil && *r.Ratio >= v }}
}

// add adds a figure; peer is nil if there is none.
func (r *Report) add(name, unit string, value float64, peer *float64, goals ...goal) {
	result := Result{Name: name, Value: value, Unit: unit, Peer: peer}
	if peer != nil && *peer != 0 {
		result.Ratio = new(value / *peer)
	}
	for _, g := range goals {
		if strings.Contains(g.text, "etcd") && result.Ratio == nil {
			continue
		}
		result.Goal, result.Met = g.text, new(g.met(result))
	}
	r.Results = append(r.Results, result)
}

// Line is the form for programs: RESULT name=value unit=… peer=… ratio=…
func (r Result) Line() string {
	line := "RESULT " + r.Name + "=" + number(r.Value) + " unit=" + r.Unit
	if r.Peer != nil {
		line += " peer=" + number(*r.Peer)
	}
	if r.Ratio != nil {
		line += " ratio=" + number(*r.Ratio)
	}
	return line
}

// Print writes the table, the notes and the lines. A column that no figure has is left out.
func (r Report) Print(w io.Writer) error {
	peers := slices.ContainsFunc(r.Results, func(x Result) bool { return x.Peer != nil })
	goals := slices.ContainsFunc(r.Results, func(x Result) bool { return x.Goal != "" })
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(tw, row("WHAT", "UNIT", "LYCHGATE", peers, "ETCD", "RATIO", goals, "GOAL", ""))
	for _, x := range r.Results {
		fmt.Fprintln(tw, row(x.Name, x.Unit, number(x.Value), peers, orDash(x.Peer), orDash(x.Ratio), goals, dash(x.Goal), x.verdict()))
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

// row is a line of the table, with the columns that there are.
func row(what, unit, value string, peers bool, peer, ratio string, goals bool, goal, verdict string) string {
	cells := []string{what, unit, value}
	if peers {
		cells = append(cells, peer, ratio)
	}
	if goals {
		cells = append(cells, goal, verdict)
	}
	return strings.Join(cells, "\t")
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
