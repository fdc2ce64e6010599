//go:build linux

// Command cluster runs the real lychgate, coordinators and proxies each in a network namespace of its own, before a real
// PostgreSQL, with clients whose histories are judged, while it kills, stops and cuts off what it runs, at random from a
// seed that it prints. All lives in namespaces of processes, mounts and the network that belong to one child and end with
// it, however that ends: nothing can be left behind, and nothing outside is touched. It takes root and iproute2.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"
	"time"
)

// options are how it was called.
type options struct {
	binary  string
	time    time.Duration
	seed    uint64
	nodes   int
	noFence bool
	report  string
}

// grace is what a run may take besides its time.
const grace = 4 * time.Minute

func main() {
	err := dispatch(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		os.Exit(1)
	}
}

func dispatch(args []string) error {
	if len(args) == 1 && args[0] == "client" {
		return runClient(os.Stdin, os.Stdout)
	}
	var o options
	inside := false
	flags := flag.NewFlagSet("cluster", flag.ContinueOnError)
	flags.StringVar(&o.binary, "lychgate", "bin/lychgate", "the lychgate binary to run")
	flags.DurationVar(&o.time, "time", 45*time.Second, "how long to make trouble")
	flags.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "of all that is random")
	flags.IntVar(&o.nodes, "nodes", 3, "coordinators")
	flags.BoolVar(&o.noFence, "no-fence", false, "clients go past the proxies: an update has to be lost")
	flags.StringVar(&o.report, "report", "", "folder of the report; empty: a new one")
	flags.BoolVar(&inside, "inside", false, "used by the program itself")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctx, cancel := context.WithTimeout(ctx, o.time+grace)
	defer cancel()
	if inside {
		return run(ctx, o, os.Stdout)
	}
	return enter(ctx, o, os.Stdout)
}

// enter runs the program again in namespaces of its own. Its child is the first process there: when it ends, or we do, the
// kernel ends every other one.
func enter(ctx context.Context, o options, out io.Writer) error {
	if _, err := exec.LookPath("ip"); err != nil || os.Geteuid() != 0 {
		fmt.Fprintln(out, "SKIPPED: it takes root and iproute2 to make network namespaces")
		return nil
	}
	if o.report == "" {
		dir, err := os.MkdirTemp("", "lychgate-chaos-")
		if err != nil {
			return err
		}
		o.report = dir
	}
	report, err1 := filepath.Abs(o.report)
	binary, err2 := filepath.Abs(o.binary)
	self, err3 := os.Executable()
	if err := errors.Join(err1, err2, err3, os.MkdirAll(report, 0o755)); err != nil {
		return err
	}
	fmt.Fprintf(out, "seed %d, %v, %d coordinators, report in %s\n", o.seed, o.time, o.nodes, report)
	cmd := exec.CommandContext(ctx, self, "-inside", "-lychgate", binary, "-time", o.time.String(), "-report", report,
		"-seed", fmt.Sprint(o.seed), "-nodes", fmt.Sprint(o.nodes), fmt.Sprintf("-no-fence=%v", o.noFence))
	cmd.Stdout, cmd.Stderr = out, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
	}
	runtime.LockOSThread() // the signal comes when the thread ends that started the child
	return cmd.Run()
}
