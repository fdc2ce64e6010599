// Command demo tells, with real processes, the story that Lychgate exists for: a worker that held a lock is
// stopped, its lease runs out, a second worker takes over, and the first one wakes up and goes on writing.
// It starts three coordinator nodes, a proxy and a throw-away PostgreSQL on free loopback ports, prints one
// line a step, and exits 0 only if every step came out right.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// bound is how long the whole demo may take before it counts as stuck.
const bound = 3 * time.Minute

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdin, os.Stdout)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "demo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	if len(args) > 0 && args[0] == "worker" {
		return runWorker(ctx, args[1:], in, out)
	}
	flags := flag.NewFlagSet("demo", flag.ContinueOnError)
	binary := flags.String("lychgate", "bin/lychgate", "the lychgate binary to run")
	keep := flags.Bool("keep", false, "keep the folder with configurations, data and logs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, bound, errors.New("the demo did not end within its bound"))
	defer cancel()
	dir, err := os.MkdirTemp("", "lychgate-demo-")
	if err != nil {
		return err
	}
	if *keep {
		fmt.Fprintln(out, "everything is kept in", dir)
	} else {
		defer func() { _ = os.RemoveAll(dir) }()
	}
	s := &story{out: out, stage: stage{dir: dir, binary: *binary}, start: time.Now(), tokens: map[string]uint64{}}
	defer s.close()
	if err := s.tell(ctx); err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
		return fmt.Errorf("%w%s", err, s.logs())
	}
	return nil
}
