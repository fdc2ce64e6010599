package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/dev"
)

type devKey struct{}

// devRun is the "lychgate dev" of one story.
type devRun struct {
	cmd    *exec.Cmd
	stderr strings.Builder // read after it has ended
}

var (
	exportLine = regexp.MustCompile(`^ +export (\w+)='([^']+)'$`)
	adminLine  = regexp.MustCompile(`curl -s (http://\S+)/metrics`)
)

// dev FLAGS... starts "lychgate dev" on free ports, waits for the line "ready", and does what a person is told
// to: paste the exports. With --json the endpoints come from there. $DEV_ADMIN, $DEV_HTTP (with --json) and
// $DEV_DIRECT (with --json) are set beside them.
func cmdDev(ts *testscript.TestScript, _ bool, args []string) {
	run := ts.Value(devKey{}).(*devRun)
	path, err := exec.LookPath("lychgate")
	ts.Check(err)
	*run = devRun{cmd: exec.Command(path, append([]string{"dev", "--port-base", "0"}, args...)...)}
	run.cmd.Dir, run.cmd.Stderr, run.cmd.Env = ts.MkAbs("."), &run.stderr, devEnviron(ts)
	stdout, err := run.cmd.StdoutPipe()
	ts.Check(err)
	ts.Check(run.cmd.Start())
	ts.Defer(func() { _ = run.stop() }) // of a story that failed
	process := run.cmd.Process
	watchdog := time.AfterFunc(storyTimeout, func() { _ = process.Kill() })
	defer watchdog.Stop()
	read := readTour
	if slices.Contains(args, "--json") {
		read = readEndpoints
	}
	vars, err := read(stdout)
	if err != nil {
		_ = run.stop()
		ts.Fatalf("dev: %v\n%s", err, run.stderr.String())
	}
	for name, value := range vars {
		ts.Setenv(name, value)
	}
}

// devEnviron is the story's environment without what would steer dev's own connections.
func devEnviron(ts *testscript.TestScript) []string {
	return []string{"PATH=" + ts.Getenv("PATH"), "HOME=" + ts.Getenv("HOME"), "TMPDIR=" + os.TempDir()}
}

func readTour(r io.Reader) (map[string]string, error) {
	vars := map[string]string{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := lines.Text()
		if m := exportLine.FindStringSubmatch(line); m != nil {
			vars[m[1]] = m[2]
		}
		if m := adminLine.FindStringSubmatch(line); m != nil {
			vars["DEV_ADMIN"] = m[1]
		}
		if line == "ready" {
			return vars, nil
		}
	}
	return nil, errors.Join(errors.New("ended before the line \"ready\""), lines.Err())
}

func readEndpoints(r io.Reader) (map[string]string, error) {
	var e dev.Endpoints
	if err := json.NewDecoder(r).Decode(&e); err != nil {
		return nil, err
	}
	vars := map[string]string{"HTTP_PORT": strings.TrimPrefix(e.HTTP[0], "http://"), "DEV_ADMIN": e.Admin, "DEV_HTTP": e.HTTP[0], "DEV_DIRECT": e.Direct}
	for _, v := range e.Environment() {
		vars[v[0]] = v[1]
	}
	return vars, nil
}

// devstop interrupts dev as Ctrl-C does and wants it to end well.
func cmdDevStop(ts *testscript.TestScript, _ bool, _ []string) {
	run := ts.Value(devKey{}).(*devRun)
	if err := run.stop(); err != nil {
		ts.Fatalf("dev: %v\n%s", err, run.stderr.String())
	}
	ts.Logf("dev's log:\n%s", run.stderr.String())
}

// stop interrupts the process and waits for it; nil when none runs.
func (r *devRun) stop() error {
	if r.cmd == nil {
		return nil
	}
	cmd := r.cmd
	r.cmd = nil
	_ = cmd.Process.Signal(os.Interrupt) // it may have ended
	watchdog := time.AfterFunc(storyTimeout, func() { _ = cmd.Process.Kill() })
	defer watchdog.Stop()
	return cmd.Wait()
}
