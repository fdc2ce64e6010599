package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The test binary is also the worker that the demo starts.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "worker" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestDemo runs the demo as a person would, and holds it to the lines that a person is told to look for.
func TestDemo(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "lychgate")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/lychgate").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-lychgate", binary}, nil, &out); err != nil {
		t.Fatalf("%v\n%s", err, out.String())
	}
	story := regexp.MustCompile(`(?m)^\[ *[0-9.]+s\] `).ReplaceAllString(out.String(), "")
	rest := story
	for _, want := range []string{
		"three coordinator nodes are up",
		"A takes ledger/eu",
		"A is stopped (SIGSTOP)",
		"B waited for the lock and gets token",
		"B has written",
		"A resumes and commits; refused: ",
		"A reconnects with its old ticket; refused: ",
		"is killed (SIGKILL)",
		"B's next renewal is accepted",
		"B releases, C acquires",
		"the table's guard refuses: ERROR:  LG002: ",
		"exactly the rightful writes: by B, by C",
		"metrics: lychgate_fencing_rejections_total",
		"every step came out right",
	} {
		_, after, found := strings.Cut(rest, want)
		if !found {
			t.Fatalf("%q is missing, or out of order, in:\n%s", want, story)
		}
		rest = after
	}
}

// TestRefused proves that the demo's own judge can say no.
func TestRefused(t *testing.T) {
	for name, err := range map[string]error{"let in": nil, "another error": os.ErrNotExist, "another refusal": errors.New("ERROR:  LG002: x")} {
		if line, got := refused(err, "LG001"); got == nil {
			t.Errorf("%s: accepted as a refusal: %q", name, line)
		}
	}
}
