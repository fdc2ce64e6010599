package figures

import (
	"strings"
	"testing"
)

func TestResultLines(t *testing.T) {
	r := Report{Peer: "etcd"}
	r.Add("lock_cycles_per_s_w512", "1/s", 18000, new(2000.0), RatioAtLeast(8))
	r.Add("acquire_p99_ms_w512", "ms", 50.125, new(200.5), RatioAtMost(0.2))
	r.Add("bytes_per_lease", "B", 180, nil, AtMost(200), RatioAtMost(1))
	r.Add("nothing", "ms", 0.01234, new(0.0))
	want := []string{
		"RESULT lock_cycles_per_s_w512=18000 unit=1/s peer=2000 ratio=9",
		"RESULT acquire_p99_ms_w512=50.12 unit=ms peer=200.5 ratio=0.2500",
		"RESULT bytes_per_lease=180 unit=B",
		"RESULT nothing=0.0123 unit=ms peer=0",
	}
	for i, x := range r.Results {
		if got := x.Line(); got != want[i] {
			t.Errorf("got  %s\nwant %s", got, want[i])
		}
	}
	for i, want := range []string{"met", "missed", "met", ""} {
		if got := r.Results[i].verdict(); got != want {
			t.Errorf("%s: got %q, want %q", r.Results[i].Name, got, want)
		}
	}
	r.Notes = []string{"grants are not signed"}
	var out strings.Builder
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	for _, part := range append(want, "WHAT", "≥ 8 × etcd", "note: grants are not signed", "≤ 200") {
		if !strings.Contains(out.String(), part) {
			t.Errorf("%q is missing in:\n%s", part, &out)
		}
	}
}

// Without the other side, and without goals, their columns would be empty.
func TestReportLeavesOutColumnsThatNobodyHas(t *testing.T) {
	r := Report{Peer: "etcd"}
	r.Add("acquire_p99_ms_w512", "ms", 50.125, nil, RatioAtMost(0.2))
	var out strings.Builder
	if err := r.Print(&out); err != nil {
		t.Fatal(err)
	}
	if first, _, _ := strings.Cut(out.String(), "\n"); strings.Join(strings.Fields(first), " ") != "WHAT UNIT LYCHGATE" {
		t.Errorf("the columns are %q", first)
	}
}

func TestNumbers(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 3: "3", 0.5: "0.5000", 1.5: "1.50", 123.456: "123.5", 70123.4: "70123", 1e12: "1000000000000"} {
		if got := number(v); got != want {
			t.Errorf("%v: got %s, want %s", v, got, want)
		}
	}
}
