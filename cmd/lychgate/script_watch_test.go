package main

import (
	"bufio"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// watch REGEXP FLAGS... runs "lychgate lock watch" until a line matches, interrupts it as Ctrl-C does, wants it to end
// with 0, and prints what it printed.
func cmdWatch(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: watch REGEXP FLAGS...")
	}
	last, err := regexp.Compile(args[0])
	ts.Check(err)
	path, err := exec.LookPath("lychgate")
	ts.Check(err)
	cmd := exec.Command(path, append([]string{"lock", "watch"}, args[1:]...)...)
	var stderr strings.Builder
	cmd.Dir, cmd.Stderr = ts.MkAbs("."), &stderr
	cmd.Env = append(devEnviron(ts), "LYCHGATE_ADDR="+ts.Getenv("LYCHGATE_ADDR"))
	stdout, err := cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(cmd.Start())
	watchdog := time.AfterFunc(storyTimeout, func() { _ = cmd.Process.Kill() })
	defer watchdog.Stop()
	var printed strings.Builder
	lines := bufio.NewScanner(stdout)
	for lines.Scan() {
		printed.WriteString(lines.Text() + "\n")
		if last.MatchString(lines.Text()) {
			_ = cmd.Process.Signal(os.Interrupt) // Wait says what became of it
		}
	}
	if err := cmd.Wait(); err != nil {
		ts.Fatalf("lock watch: %v\n%s%s", err, printed.String(), stderr.String())
	}
	_, err = ts.Stdout().Write([]byte(printed.String()))
	ts.Check(err)
}
