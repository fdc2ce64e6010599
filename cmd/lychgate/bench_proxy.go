package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/proxybench"
)

// benchProxyFlags is how "bench proxy" was called.
type benchProxyFlags struct {
	config proxybench.Config
	asJSON bool
}

func benchProxyCommand() *cobra.Command {
	var f benchProxyFlags
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Measure the proxy beside PgBouncer",
		Long: `Measure the proxy beside PgBouncer in session mode, and beside PostgreSQL itself: a throw-away
PostgreSQL, a coordinator, the proxy and PgBouncer are started for it on free ports of this machine,
and pgbench is pointed at each in turn, so that what else the machine does meets all alike. The
proxy fences every session by the signed ticket of a lease; PgBouncer fences nothing. Progress
goes to stderr; the table, and one line for each figure, to stdout:

  RESULT name=value unit=U peer=PGBOUNCER ratio=OURS/PGBOUNCER direct=POSTGRESQL

Phases:
` + listPairs(proxybench.Phases()) + `
Processor time is that of the proxy's and PgBouncer's own processes, while all clients work. A run
in which an invariant did not hold (a transaction that failed, an acknowledged one that is not in
the database, a stale ticket that writes, a floor that goes down) reports no figure and fails.
All of it takes about twenty minutes, with --quick about one.`,
		Example: `  make bench-proxy ARGS=--quick
  lychgate bench proxy --only load --workload update --protocol prepared --clients 8`,
		Args: named(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.complete(); err != nil {
				return err
			}
			f.config.Progress = cmd.ErrOrStderr()
			report, err := proxybench.Run(cmd.Context(), f.config)
			return printFigures(cmd, f.asJSON, report, err)
		},
	}
	f.add(cmd)
	return cmd
}

func (f *benchProxyFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.config.Quick, "quick", false, "smaller and shorter: about a minute")
	flags.StringSliceVar(&f.config.Only, "only", nil, "`phase`s to run instead of all")
	flags.StringSliceVar(&f.config.Workloads, "workload", nil, "`workload`s of the load instead of both: "+strings.Join(proxybench.Workloads(), ", "))
	flags.StringSliceVar(&f.config.Protocols, "protocol", nil, "`protocol`s of the load instead of all: "+strings.Join(proxybench.Protocols(), ", "))
	flags.IntSliceVar(&f.config.Clients, "clients", nil, "`number`s of clients of the load (default 1,8,64)")
	flags.IntVar(&f.config.Rounds, "rounds", 0, "`number` of rounds, of which the medians are told (default 3; 1 with --quick)")
	flags.DurationVar(&f.config.Time, "time", 0, "`duration` of each run of pgbench, in whole seconds (default 5s; 1s with --quick)")
	flags.StringVar(&f.config.PgBouncer, "pgbouncer", "", "PgBouncer's `program` (default: that of the PATH or of /usr/sbin)")
	flags.StringVar(&f.config.Dir, "dir", "", "`folder` for all data, on the disk that is to be measured (default a temporary one)")
	jsonFlag(cmd, &f.asJSON)
	var names []string
	for _, p := range proxybench.Phases() {
		names = append(names, p[0])
	}
	completes(cmd, "only", names...)
	completes(cmd, "workload", proxybench.Workloads()...)
	completes(cmd, "protocol", proxybench.Protocols()...)
	completes(cmd, "clients")
	completes(cmd, "time")
}

// complete checks the flags and finds the programs.
func (f *benchProxyFlags) complete() (err error) {
	for _, n := range f.config.Clients {
		if n < 1 || n > proxybench.MaxClients {
			return usageError("--clients: %d is not a number from 1 to %d", n, proxybench.MaxClients)
		}
	}
	if f.config.Rounds < 0 || f.config.Rounds > maxRounds {
		return usageError("--rounds: %d is not a number from 1 to %d", f.config.Rounds, maxRounds)
	}
	if t := f.config.Time; t < 0 || t > maxTime || t%time.Second != 0 {
		return usageError("--time: %v is not a number of whole seconds up to %v", t, maxTime)
	}
	if f.config.Program, err = os.Executable(); err != nil {
		return err
	}
	if f.config.PgBouncer == "" {
		f.config.PgBouncer, err = proxybench.PgBouncer()
		return err
	}
	if f.config.PgBouncer, err = exec.LookPath(f.config.PgBouncer); err != nil {
		return usageError("--pgbouncer: %w", err)
	}
	return nil
}

// maxTime bounds what a run of pgbench logs: 100 MB or so.
const maxTime = time.Minute

// listPairs lists names with what they are.
func listPairs(pairs [][2]string) string {
	var b strings.Builder
	for _, p := range pairs {
		fmt.Fprintf(&b, "  %-15s %s\n", p[0], p[1])
	}
	return b.String()
}
