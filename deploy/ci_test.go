package deploy

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// CI's last step blames a run for its own processes, and for no others.
func TestLeftOversOfARun(t *testing.T) {
	const mark = "this-run"
	folder := t.TempDir()
	marked := sleeper(t, "/", "CI_RUN="+mark)
	inside := sleeper(t, folder, "")
	if err := os.Mkdir(folder+"/data", 0o755); err != nil {
		t.Fatal(err)
	}
	below := sleeper(t, folder+"/data", "")
	others := []int{sleeper(t, "/", ""), sleeper(t, "/", "CI_RUN="+mark+"-not")}
	out, err := exec.Command("../.ci/left", mark, folder).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{marked, inside, below} {
		if !strings.Contains("\n"+string(out), fmt.Sprintf("\n%d sleep", pid)) {
			t.Errorf("process %d is missing in:\n%s", pid, out)
		}
	}
	for _, pid := range others {
		if strings.Contains("\n"+string(out), fmt.Sprintf("\n%d ", pid)) {
			t.Errorf("process %d is not this run's:\n%s", pid, out)
		}
	}
}

func sleeper(t *testing.T, dir, variable string) int {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	cmd.Dir, cmd.Env = dir, []string{variable}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd.Process.Pid
}
