package proxybench

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestLogOfPgbench(t *testing.T) {
	got, err := readLog(strings.NewReader("0 1 250 0 1700000000 999999\n3 17 12345 0 1700000001 1 40\n"))
	if err != nil {
		t.Fatal(err)
	}
	want := []transaction{
		{client: 0, took: 250 * time.Microsecond, ended: 1_700_000_000_999_999},
		{client: 3, took: 12345 * time.Microsecond, ended: 1_700_000_001_000_001},
	}
	if len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestLogThatIsNotUnderstood(t *testing.T) {
	for line, failed := range map[string]bool{
		"0 1 failed 0 1700000000 1":      true,
		"0 1 skipped 0 1700000000 1":     true,
		"0 1 250 0 1700000000":           false, // cut off
		"x 1 250 0 1700000000 1":         false,
		"0 1 2.5 0 1700000000 1":         false,
		"0 1 250 0 yesterday 1":          false,
		"0 1 250 0 1700000000 milliseco": false,
	} {
		_, err := readLog(strings.NewReader("0 1 250 0 1700000000 1\n" + line + "\n"))
		if err == nil || !strings.Contains(err.Error(), line) || errors.Is(err, errFailed) != failed {
			t.Errorf("%q: got %v, want an error that names it, of a failed transaction: %v", line, err, failed)
		}
	}
}

// worked is the log of clients that ended their first transaction at one moment and their last at another.
func worked(spans ...[2]int64) (all []transaction) {
	for client, s := range spans {
		all = append(all, transaction{client: client, ended: s[1]}, transaction{client: client, ended: s[0]})
	}
	return all
}

func TestTimeInWhichClientsWorkTogether(t *testing.T) {
	var twenty [][2]int64
	for i := range int64(20) {
		twenty = append(twenty, [2]int64{100 + i, 1000 + i})
	}
	for name, tt := range map[string]struct {
		all      []transaction
		clients  int
		from, to int64
		ok       bool
	}{
		"one":                       {worked([2]int64{5, 95}), 1, 5, 95, true},
		"a few":                     {worked([2]int64{5, 95}, [2]int64{20, 90}, [2]int64{10, 99}), 3, 20, 90, true},
		"many, but for two each":    {worked(twenty...), 20, 117, 1002, true},
		"one after the other":       {worked([2]int64{5, 20}, [2]int64{30, 90}), 2, 30, 20, false},
		"one transaction only":      {worked([2]int64{5, 5}), 1, 5, 5, false},
		"one that was never heard":  {worked([2]int64{5, 95}), 2, 0, 0, false},
		"none":                      {nil, 1, 0, 0, false},
		"a straggler of many":       {worked(twenty[:19]...), 20, 117, 1002, true},
		"three stragglers of many ": {worked(twenty[:17]...), 20, 0, 0, false},
	} {
		from, to, ok := together(tt.all, tt.clients)
		if from != tt.from || to != tt.to || ok != tt.ok {
			t.Errorf("%s: got %d to %d, %v, want %d to %d, %v", name, from, to, ok, tt.from, tt.to, tt.ok)
		}
	}
}
