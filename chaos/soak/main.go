// Command soak runs three proxies before one PostgreSQL, with clients that take locks over from each other, vanish,
// are stopped and come back with old tickets, while proxies are killed, stopped and started again, connections are cut
// and the server crashes; all at random, from a seed that it prints. In the end an independent judge says whether the
// table, the answers and the floors are of a run in which the fence held, and nothing may be left behind.
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

func main() {
	if len(os.Args) == 2 && os.Args[1] == "client" {
		exit(runClient(os.Stdin, os.Stdout))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	exit(run(ctx, os.Args[1:], os.Stdout))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// options are how the soak was called.
type options struct {
	binary   string
	time     time.Duration
	seed     uint64
	clients  int
	workers  int
	unfenced bool
	keep     bool
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	flags := flag.NewFlagSet("soak", flag.ContinueOnError)
	flags.StringVar(&o.binary, "lychgate", "bin/lychgate", "the lychgate binary to run")
	flags.DurationVar(&o.time, "time", 20*time.Second, "how long to make trouble")
	flags.Uint64Var(&o.seed, "seed", uint64(time.Now().UnixNano()), "of all that is random")
	flags.IntVar(&o.clients, "clients", 3, "client processes")
	flags.IntVar(&o.workers, "workers", 8, "sessions of each")
	flags.BoolVar(&o.unfenced, "unfenced", false, "clients show no tickets: the judge has to find that out")
	flags.BoolVar(&o.keep, "keep", false, "keep the folder with data and logs")
	if err := flags.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "lychgate-soak-")
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "seed %d, %v, logs in %s\n", o.seed, o.time, dir)
	err = newSoak(o, dir, out).run(ctx)
	if err == nil && !o.keep {
		return os.RemoveAll(dir)
	}
	return err
}

// run is the whole story.
func (s *soak) run(ctx context.Context) (err error) {
	defer func() { err = errors.Join(err, s.close()) }()
	if err := s.open(ctx); err != nil {
		return err
	}
	polled, stop := context.WithCancel(ctx)
	polling := make(chan struct{})
	go func() {
		defer close(polling)
		s.poll(polled)
	}()
	s.makeTrouble(ctx)
	s.calm(ctx)
	finish := s.finish(ctx)
	stop()
	<-polling
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(finish, s.verdict(ctx))
}
