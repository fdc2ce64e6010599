package main

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The test binary is also the client that the soak starts.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "client" {
		main()
		return
	}
	os.Exit(m.Run())
}

func build(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "lychgate")
	if out, err := exec.Command("go", "build", "-o", binary, "../../cmd/lychgate").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

// TestSoak is a short run. A long one is `make soak ARGS="-time 10m"`.
func TestSoak(t *testing.T) {
	var out bytes.Buffer
	err := run(t.Context(), []string{"-lychgate", build(t), "-time", "15s", "-workers", "4"}, &out)
	t.Log(out.String())
	if err != nil {
		t.Fatal(err)
	}
}

// TestWithoutAFenceTheJudgeFindsIt proves that the run can fail.
func TestWithoutAFenceTheJudgeFindsIt(t *testing.T) {
	var out bytes.Buffer
	err := run(t.Context(), []string{"-lychgate", build(t), "-time", "3s", "-unfenced"}, &out)
	if err != nil || !strings.Contains(out.String(), "invariant 4") && !strings.Contains(out.String(), "invariant 3") {
		t.Errorf("%v, %s", err, &out)
	}
}
