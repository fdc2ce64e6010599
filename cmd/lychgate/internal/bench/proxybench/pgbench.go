package proxybench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/figures"
)

// job is one run of pgbench.
type job struct {
	clients int
	time    time.Duration // whole seconds
	history bool          // each transaction leaves a row in pgbench_history
	args    []string      // what to run, and by which protocol
}

// errTooShort is of a run in which not all clients worked at the same time.
var errTooShort = errors.New("the clients did not all work at the same time: give them longer with --time")

// observed is what came of a job while all of its clients worked.
type observed struct {
	perSecond float64
	p50, p99  time.Duration
	cpu       time.Duration // of the target's process, for each transaction
}

// pgbenchReserve is how much longer than its time a run of pgbench may take.
const pgbenchReserve = time.Minute

// pgbench points pgbench at a target and watches the target's process. What was too short for a machine that is busy with
// other things is done again, longer.
func (r *run) pgbench(ctx context.Context, t target, j job) (observed, error) {
	o, err := r.pgbenchOnce(ctx, t, j)
	if errors.Is(err, errTooShort) {
		j.time *= longer
		r.progress("  %s: %v was too short, now %v", t.name, j.time/longer, j.time)
		o, err = r.pgbenchOnce(ctx, t, j)
	}
	if err != nil {
		return observed{}, fmt.Errorf("%s: %w", t.name, err)
	}
	return o, nil
}

// longer is how many times longer.
const longer = 3

func (r *run) pgbenchOnce(ctx context.Context, t target, j job) (observed, error) {
	dir := r.path("pgbench")
	if err := os.Mkdir(dir, 0o755); err != nil {
		return observed{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, j.time+pgbenchReserve)
	defer cancel()
	watching := startWatch(ctx, t)
	sum, err := r.runPgbench(ctx, t, j, dir)
	readings, watchErr := watching.stop()
	if err := errors.Join(err, watchErr); err != nil {
		return observed{}, err
	}
	if j.history {
		r.judge.history += sum.processed
	}
	all, err := readLogs(dir)
	if err == nil {
		err = os.RemoveAll(dir)
	}
	if err != nil {
		return observed{}, err
	}
	return observe(all, readings, sum, j.clients)
}

// runPgbench runs it to its end.
func (r *run) runPgbench(ctx context.Context, t target, j job, dir string) (summary, error) {
	host, port := t.hostPort()
	args := []string{
		"-h", host, "-p", port, "-U", role, "-n", "-c", strconv.Itoa(j.clients), "-j", strconv.Itoa(min(j.clients, runtime.NumCPU())),
		"-T", strconv.Itoa(int(j.time / time.Second)), "--log", "--log-prefix=" + filepath.Join(dir, "log"),
	}
	cmd := exec.Command(filepath.Join(r.bin, "pgbench"), append(append(args, j.args...), database)...)
	cmd.Env = append(pgEnvironment(), "PGOPTIONS="+t.options, "PGSSLMODE=disable")
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	p, err := r.children.Start(cmd)
	if err != nil {
		return summary{}, err
	}
	select {
	case <-p.Exited():
	case <-ctx.Done():
		p.Kill()
		return summary{}, fmt.Errorf("pgbench: %w", context.Cause(ctx))
	}
	if err := p.Err(); err != nil {
		return summary{}, fmt.Errorf("pgbench: %w: %s", err, tailOf(errOut.String()))
	}
	return parseSummary(out.String())
}

// pgEnvironment is ours without what would steer pgbench.
func pgEnvironment() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "PG") })
}

// tailOf is the end of what a program wrote.
func tailOf(s string) string {
	s = strings.TrimSpace(s)
	return s[max(0, len(s)-1000):]
}

// readLogs reads the logs of all threads.
func readLogs(dir string) ([]transaction, error) {
	names, err := filepath.Glob(filepath.Join(dir, "log.*"))
	if err != nil {
		return nil, err
	}
	var all []transaction
	for _, name := range names {
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		some, err := readLog(f)
		_ = f.Close() // it was only read
		if errors.Is(err, errFailed) {
			err = fmt.Errorf("%w: %w", ErrViolated, err)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, some...)
	}
	return all, nil
}

// observe puts together what pgbench logged and what the process used, for the time in which all clients worked.
func observe(all []transaction, w watched, sum summary, clients int) (observed, error) {
	switch {
	case sum.failed > 0:
		return observed{}, fmt.Errorf("%w: %d transactions failed", ErrViolated, sum.failed)
	case sum.processed != len(all):
		return observed{}, fmt.Errorf("pgbench processed %d transactions and logged %d", sum.processed, len(all))
	}
	from, to, ok := together(all, clients)
	first, last, enough := w.within(from, to)
	if !ok || !enough {
		return observed{}, errTooShort
	}
	var took []time.Duration
	for _, tx := range all {
		if tx.ended > first.at && tx.ended <= last.at {
			took = append(took, tx.took)
		}
	}
	if len(took) == 0 {
		return observed{}, errTooShort
	}
	return observed{
		perSecond: float64(len(took)) / (float64(last.at-first.at) / 1e6),
		p50:       figures.Quantile(took, 0.5),
		p99:       figures.Quantile(took, 0.99),
		cpu:       (last.used - first.used) / time.Duration(len(took)),
	}, nil
}
