package proxybench

import (
	"fmt"
	"strconv"
	"strings"
)

// summary is what pgbench prints at its end.
type summary struct {
	processed int // transactions
	failed    int // PostgreSQL 15 and newer say so; in older ones a failure ends the client
}

// parseSummary reads the lines "number of transactions actually processed: 12" (or "12/12") and "number of failed
// transactions: 0 (0.000%)".
func parseSummary(text string) (summary, error) {
	s := summary{processed: -1}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		to := map[string]*int{
			"number of transactions actually processed": &s.processed,
			"number of failed transactions":             &s.failed,
		}[name]
		if to == nil {
			continue
		}
		digits, _, _ := strings.Cut(strings.TrimSpace(value), " ")
		digits, _, _ = strings.Cut(digits, "/")
		n, err := strconv.Atoi(digits)
		if err != nil {
			return summary{}, fmt.Errorf("pgbench says %q: %w", strings.TrimSpace(line), err)
		}
		*to = n
	}
	if s.processed < 0 {
		return summary{}, fmt.Errorf("pgbench does not say how many transactions it processed: %q", text)
	}
	return s, nil
}
