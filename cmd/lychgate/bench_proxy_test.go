package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/figures"
)

// TestBenchProxyMeasuresEverything is a short run of all phases, with real processes. What it has to tell is every figure,
// and none may be zero; that they say something takes a longer run.
func TestBenchProxyMeasuresEverything(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var out, progress bytes.Buffer
	args := []string{"bench", "proxy", "--quick", "--json", "--workload", "update", "--protocol", "prepared", "--clients", "1", "--dir", dir}
	if code := execute(t.Context(), args, nil, &out, &progress); code != exitOK {
		t.Fatalf("exit code %d: %s", code, &progress)
	}
	var report figures.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatalf("%v: %s", err, &out)
	}
	got := map[string]figures.Result{}
	for _, x := range report.Results {
		got[x.Name] = x
	}
	for _, want := range benchProxyFigures {
		x, ok := got[want.name]
		if !ok || x.Value == 0 {
			t.Errorf("%s: got %+v, want a figure", want.name, x)
		}
		if positive(x.Peer) != want.peer || positive(x.Direct) != want.direct {
			t.Errorf("%s: got %s, want PgBouncer's: %v, PostgreSQL's: %v", want.name, x.Line(), want.peer, want.direct)
		}
		delete(got, want.name)
	}
	for name := range got {
		t.Errorf("%s was not expected", name)
	}
	if left, err := filepath.Glob(filepath.Join(dir, "*")); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	if !slices.ContainsFunc(report.Notes, func(s string) bool { return len(s) > 0 }) {
		t.Error("a quick run has no note that says so")
	}
}

// A run that could not measure reports nothing, and keeps and names the folder with the logs.
func TestBenchProxyWithAPeerThatEnds(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var out, progress bytes.Buffer
	code := execute(t.Context(), []string{"bench", "proxy", "--quick", "--dir", dir, "--pgbouncer", "false"}, nil, &out, &progress)
	kept, _ := filepath.Glob(filepath.Join(dir, "*"))
	if code != exitFailure || out.Len() > 0 || len(kept) != 1 {
		t.Fatalf("exit code %d, %q, kept %v: %s", code, &out, kept, &progress)
	}
	for _, want := range []string{"PgBouncer ended: exit status 1", "(kept: " + kept[0] + ")"} {
		if !strings.Contains(progress.String(), want) {
			t.Errorf("%q is missing in: %s", want, &progress)
		}
	}
}

func positive(v *float64) bool { return v != nil && *v > 0 }

// benchProxyFigures are those of one client that updates by prepared statements.
var benchProxyFigures = []struct {
	name         string
	peer, direct bool
}{
	{"proxy_cpu_us_per_tx_update_prepared_c1", true, false},
	{"tps_update_prepared_c1", true, true},
	{"p50_ms_update_prepared_c1", true, true},
	{"p99_ms_update_prepared_c1", true, true},
	{"proxy_cpu_us_per_tx_fenced_update_c1", true, false},
	{"tps_fenced_update_c1", true, false},
	{"p50_ms_fenced_update_c1", true, false},
	{"p99_ms_fenced_update_c1", true, false},
	{"connects_per_s", true, true},
	{"proxy_cpu_us_per_connect", true, false},
	{"connect_p50_ms", true, true},
	{"bind_ms", false, false},
	{"takeover_p50_ms", false, false},
	{"takeover_p99_ms", false, false},
	{"idle_connection_kb", true, false},
}
