package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const root = "../.."

var (
	anyBlock = regexp.MustCompile("(?ms)^```.*?^```$")
	inline   = regexp.MustCompile("(?s)`((?:lychgate|make) .+?)`")
	shBlock  = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")
	refusal  = regexp.MustCompile(`# refused: (\w+)$`)
	httpPort = "127.0.0.1:7601"
	metrics  = "127.0.0.1:7610"
)

// notYet begins the part of the README that names what does not exist.
const notYet = "Not there yet:"

func readme(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestReadme runs every command of the README's blocks, in order, in one shell, as a reader does. "make" is asked
// whether it knows the target (the demo and the tests have tests of their own), and "lychgate dev" runs on free ports;
// a line that ends in "# refused: CODE" must fail and say the code, every other line must work.
func TestReadme(t *testing.T) {
	var lines []string
	for _, block := range shBlock.FindAllStringSubmatch(readme(t), -1) {
		lines = append(lines, strings.Split(strings.TrimSpace(block[1]), "\n")...)
	}
	if len(lines) < 10 {
		t.Fatalf("only %d commands were found in the README", len(lines))
	}
	vars := startDev(t)
	var commands []string
	for _, line := range lines {
		switch {
		case line == "make help":
			commands = append(commands, "make -C "+moduleRoot(t)+" help")
		case strings.HasPrefix(line, "make "):
			if out, err := exec.Command("make", "-C", root, "-n", strings.Fields(line)[1]).CombinedOutput(); err != nil {
				t.Errorf("%s: %v\n%s", line, err, out)
			}
		case strings.HasPrefix(line, "bin/lychgate dev"):
		default:
			line = strings.ReplaceAll(line, httpPort, strings.TrimPrefix(vars["DEV_HTTP"], "http://"))
			commands = append(commands, strings.ReplaceAll(line, metrics, strings.TrimPrefix(vars["DEV_ADMIN"], "http://")))
		}
	}
	runLikeReader(t, commands, vars)
}

// TestReadmeNamesWhatThereIs holds the commands that the README only mentions against the program: the command, its
// flags and the number of its arguments. What it says is not there must not be there.
func TestReadmeNamesWhatThereIs(t *testing.T) {
	there, missing, ok := strings.Cut(anyBlock.ReplaceAllString(readme(t), ""), notYet)
	if !ok {
		t.Fatalf("the README has no part %q", notYet)
	}
	mentioned := inline.FindAllStringSubmatch(there, -1)
	if len(mentioned) < 8 {
		t.Errorf("only %d commands are mentioned: %q", len(mentioned), mentioned)
	}
	for _, m := range mentioned {
		if err := mention(strings.Fields(m[1])); err != nil {
			t.Errorf("%s: %v", m[1], err)
		}
	}
	for _, m := range inline.FindAllStringSubmatch(missing, -1) {
		if mention(strings.Fields(m[1])) == nil {
			t.Errorf("%s: is there, says the program", m[1])
		}
	}
}

// mention says whether a command line is one that the program would take. A bare name needs no arguments.
func mention(words []string) error {
	if words[0] == "make" {
		return exec.Command("make", "-C", root, "-n", words[1]).Run()
	}
	tree, _ := rootCommand()
	c, rest, err := tree.Find(words[1:])
	if err != nil || len(rest) == 0 {
		return err
	}
	if err := c.ParseFlags(rest); err != nil {
		return err
	}
	return c.ValidateArgs(c.Flags().Args())
}

// startDev runs the binary under test as "lychgate dev" until the test ends, and returns what a reader pastes.
func startDev(t *testing.T) map[string]string {
	t.Helper()
	cmd := exec.Command("lychgate", "dev", "--port-base", "0", "--json")
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt) // it may have ended
		if err := cmd.Wait(); err != nil {
			t.Errorf("dev: %v", err)
		}
	})
	vars, err := readEndpoints(stdout)
	if err != nil {
		t.Fatalf("dev: %v", err)
	}
	return vars
}

func runLikeReader(t *testing.T, commands []string, vars map[string]string) {
	dir := t.TempDir()
	var script strings.Builder
	for i, command := range commands {
		fmt.Fprintf(&script, "{ %s\n} >%s/%d.out 2>&1; echo $? >%s/%d.code\n", command, dir, i, dir, i)
	}
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script.String())
	cmd.Dir = dir // the README's bin/lychgate is the program under test, which is in the PATH
	if err := os.Symlink(filepath.Join(moduleRoot(t), "deploy"), filepath.Join(dir, "deploy")); err != nil {
		t.Fatal(err)
	}
	cmd.Env = append(os.Environ(), "PSQLRC="+os.DevNull)
	for name, value := range vars {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for i, command := range commands {
		out := readFile(t, dir, i, "out")
		code, err := strconv.Atoi(strings.TrimSpace(readFile(t, dir, i, "code")))
		if err != nil {
			t.Fatal(err)
		}
		want := refusal.FindStringSubmatch(command)
		switch {
		case want == nil && code != 0:
			t.Errorf("%s\nexit code %d\n%s", command, code, out)
		case want != nil && (code == 0 || !strings.Contains(out, want[1])):
			t.Errorf("%s\nis not refused with %s: exit code %d\n%s", command, want[1], code, out)
		}
	}
}

func readFile(t *testing.T, dir string, i int, suffix string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, fmt.Sprintf("%d.%s", i, suffix)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
