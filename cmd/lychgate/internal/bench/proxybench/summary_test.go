package proxybench

import (
	"strings"
	"testing"
)

func TestSummaryOfPgbench(t *testing.T) {
	for name, tt := range map[string]struct {
		text string
		want summary
		says string
	}{
		"by time": {"pgbench (15.18)\nnumber of clients: 8\nnumber of transactions actually processed: 1234\n" +
			"number of failed transactions: 0 (0.000%)\ntps = 12.5\n", summary{processed: 1234}, ""},
		"by number":     {"number of transactions actually processed: 80/80\n", summary{processed: 80}, ""},
		"with failures": {"number of transactions actually processed: 9\nnumber of failed transactions: 3 (25.000%)\n", summary{9, 3}, ""},
		"nothing":       {"", summary{}, "does not say how many"},
		"not a number":  {"number of transactions actually processed: many\n", summary{}, "many"},
	} {
		got, err := parseSummary(tt.text)
		if tt.says != "" {
			if err == nil || !strings.Contains(err.Error(), tt.says) {
				t.Errorf("%s: got %v, want an error that says %q", name, err, tt.says)
			}
			continue
		}
		if got != tt.want || err != nil {
			t.Errorf("%s: got %+v, %v, want %+v", name, got, err, tt.want)
		}
	}
}
