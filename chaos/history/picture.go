package history

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

// Picture draws steps as bars over time, a line for each client, as SVG.
func Picture(steps []Step) string {
	const width, row, left = 900, 34, 90
	if len(steps) == 0 {
		return `<svg xmlns="http://www.w3.org/2000/svg"/>`
	}
	from, to := steps[0].Call, steps[0].Call+1
	var clients []int
	for _, s := range steps {
		from, to = min(from, s.Call), max(to, s.Call)
		if s.Return != Forever {
			to = max(to, s.Return)
		}
		if !slices.Contains(clients, s.Client) {
			clients = append(clients, s.Client)
		}
	}
	slices.Sort(clients)
	x := func(at float64) float64 { return left + at/float64(to-from)*(width-left-20) }
	colour := map[Kind]string{Acquire: "#8fbc8f", End: "#d0a080", Look: "#a0b8d8"}
	var b strings.Builder
	height := row*len(steps) + 30
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`, width, height)
	for i, s := range steps {
		end := width - 10.0 // an open end
		if s.Return != Forever {
			end = x(float64(s.Return - from))
		}
		begin, y := x(float64(s.Call-from)), i*row+10
		fmt.Fprintf(&b, `<text x="4" y="%d">client %d</text>`, y+12, s.Client)
		fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="14" fill="%s"/>`, begin, y, max(end-begin, 2), colour[s.Kind])
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`, left, y+25, html.EscapeString(s.String()))
	}
	b.WriteString("</svg>\n")
	return b.String()
}
