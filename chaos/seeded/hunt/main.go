// Command hunt plants one bug after the other and runs the layer of tests that has to find it. It fails if a layer finds
// nothing, takes too long, or finds something where no bug is planted, and if a release build knows of any bug.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"time"

	"github.com/lychgate/lychgate/chaos/seeded"
)

func main() {
	only := flag.String("only", "", "plant this bug alone")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, seeded.Bug(*only)); err != nil {
		fmt.Fprintln(os.Stderr, "hunt:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, only seeded.Bug) error {
	folder, err := os.MkdirTemp("", "hunt-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	h := &hunt{
		folder: folder, binaries: make(map[string]string), sound: make(map[string]bool),
		planted: make(map[seeded.Bug]bool), missed: make(map[seeded.Bug]bool),
	}
	var errs []error
	if only == "" {
		errs = append(errs, releaseIsClean(ctx, folder))
	}
	fmt.Printf("%-34s %-24s %8s %8s  %s\n", "bug", "layer", "seconds", "cpu", "verdict")
	for _, p := range prey {
		if only == "" || p.bug == only {
			errs = append(errs, h.catch(ctx, p))
		}
	}
	if len(h.planted) == 0 {
		errs = append(errs, fmt.Errorf("there is no bug %q", only))
	}
	fmt.Printf("%d bugs planted, %d caught by every layer that must\n", len(h.planted), len(h.planted)-len(h.missed))
	return errors.Join(errs...)
}

// hunt is one run.
type hunt struct {
	folder          string
	binaries        map[string]string // of the tests, by package
	sound           map[string]bool   // layers that pass without a bug, by name
	planted, missed map[seeded.Bug]bool
}

// outcome is what a layer said.
type outcome struct {
	passed   bool
	overdue  bool
	text     string
	took     time.Duration
	computed time.Duration // time of processors
}

func (h *hunt) catch(ctx context.Context, p quarry) error {
	if err := h.mustPass(ctx, p.layer); err != nil {
		return err
	}
	h.planted[p.bug] = true
	o, err := h.test(ctx, p.layer, p.bug)
	if err != nil {
		return err
	}
	verdict := "caught: " + o.says(p.says)
	switch {
	case o.overdue:
		verdict = fmt.Sprintf("NOT CAUGHT in %v", p.layer.bound)
	case o.passed:
		verdict = "NOT CAUGHT"
	case !strings.Contains(o.text, p.says):
		verdict = fmt.Sprintf("NOT CAUGHT: it fails without a word of %q", p.says)
	}
	fmt.Printf("%-34s %-24s %8.2f %8.2f  %s\n", p.bug, p.layer.name, o.took.Seconds(), o.computed.Seconds(), verdict)
	if strings.HasPrefix(verdict, "NOT") {
		h.missed[p.bug] = true
		return fmt.Errorf("%s: %s", p.bug, verdict)
	}
	return nil
}

// mustPass runs a layer without a bug, once.
func (h *hunt) mustPass(ctx context.Context, l layer) error {
	if h.sound[l.name] {
		return nil
	}
	o, err := h.test(ctx, l, "")
	if err != nil {
		return err
	}
	if !o.passed || o.overdue || strings.Contains(o.text, "no tests to run") {
		return fmt.Errorf("%s does not pass without a bug:\n%s", l.name, o.text)
	}
	h.sound[l.name] = true
	fmt.Printf("%-34s %-24s %8.2f %8.2f  %s\n", "(none)", l.name, o.took.Seconds(), o.computed.Seconds(), "passes")
	return nil
}

// test runs a layer with a bug planted.
func (h *hunt) test(ctx context.Context, l layer, b seeded.Bug) (outcome, error) {
	binary, err := h.binary(ctx, l.pkg)
	if err != nil {
		return outcome{}, err
	}
	bounded, cancel := context.WithTimeout(ctx, l.bound)
	defer cancel()
	cmd := exec.CommandContext(bounded, binary, append([]string{"-test.failfast", "-test.timeout", "0"}, l.args...)...)
	cmd.Dir = l.pkg
	cmd.Env = append(os.Environ(), "LYCHGATE_BUG="+string(b))
	begun := time.Now()
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return outcome{}, fmt.Errorf("run %s: %w", l.name, err)
	}
	if ctx.Err() != nil {
		return outcome{}, context.Cause(ctx)
	}
	return outcome{
		passed: err == nil, overdue: bounded.Err() != nil, text: string(out), took: time.Since(begun),
		computed: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(),
	}, nil
}

// binary builds the tests of a package, with all bugs in them.
func (h *hunt) binary(ctx context.Context, pkg string) (string, error) {
	if b, ok := h.binaries[pkg]; ok {
		return b, nil
	}
	name := filepath.Join(h.folder, filepath.Base(pkg)+".test")
	if out, err := exec.CommandContext(ctx, "go", "test", "-tags", "seededbugs", "-c", "-o", name, pkg).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the tests of %s: %w\n%s", pkg, err, out)
	}
	h.binaries[pkg] = name
	return name, nil
}

// says is the line that has the words.
func (o outcome) says(words string) string {
	for line := range strings.Lines(o.text) {
		if strings.Contains(line, words) {
			line = strings.TrimSpace(line)
			return line[:min(len(line), 100)]
		}
	}
	return ""
}

// releaseIsClean looks for the names of bugs in the binary that is released, and in one that has them.
func releaseIsClean(ctx context.Context, folder string) error {
	for _, tags := range []string{"", "seededbugs"} {
		name := filepath.Join(folder, "lychgate")
		if out, err := exec.CommandContext(ctx, "go", "build", "-tags", tags, "-o", name, "./cmd/lychgate").CombinedOutput(); err != nil {
			return fmt.Errorf("build: %w\n%s", err, out)
		}
		binary, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		found := 0
		for _, p := range prey {
			if strings.Contains(string(binary), string(p.bug)) {
				found++
			}
		}
		if planted := tags != ""; planted != (found > 0) {
			return fmt.Errorf("a build with the tags %q has the names of %d bugs", tags, found)
		}
		fmt.Printf("a build with the tags %q has the names of %d bugs\n", tags, found)
	}
	return nil
}
