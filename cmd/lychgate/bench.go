package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench"
	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/figures"
	"github.com/lychgate/lychgate/cmd/lychgate/internal/bench/load"
	"github.com/lychgate/lychgate/coordinator/client"
)

func benchCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure it, on this machine",
	}
	cmd.AddCommand(benchLockCommand(), benchProxyCommand(), benchWorkerCommand())
	return cmd
}

// etcdProgram is what the Makefile calls the peer's program, beside this one.
const etcdProgram = "lychgate-bench-etcd"

// benchFlags is how "bench lock" was called.
type benchFlags struct {
	config      bench.Config
	auth        clientAuth // of a cluster that runs already
	withoutEtcd bool
	asJSON      bool
}

func benchLockCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "lock",
		Short: "Measure the coordinator beside etcd",
		Long: `Measure the coordinator beside etcd 3.6: three durable nodes each, started for it on free ports of
this machine, and workers in processes of their own, in turn, so that what else the machine does
meets both alike. "make bench-lock" builds etcd and calls this. Progress goes to stderr; the
table, and one line for each figure, to stdout:

  RESULT name=value unit=U peer=VALUE ratio=OURS/PEER

Phases:
` + listPairs(bench.Phases()) + `
A run in which an invariant did not hold (two holders at a time, a token that does not grow, a
lease that ended before its time) reports no figure and fails.

With --address it asks a cluster that runs already, gently, without etcd and without what kills
or fills nodes; the locks have names that begin with "bench/". LYCHGATE_ADDR is not looked at.`,
		Example: `  make bench-lock ARGS=--quick
  lychgate bench lock --without-etcd --only cycles
  lychgate bench lock --address n1:7600,n2:7600,n3:7600`,
		Args: named(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := f.complete(); err != nil {
				return err
			}
			f.config.Progress = cmd.ErrOrStderr()
			report, err := bench.Run(cmd.Context(), f.config)
			return printFigures(cmd, f.asJSON, report, err)
		},
	}
	f.add(cmd)
	return cmd
}

// printFigures ends a command that measures: with its report, or with what came in between.
func printFigures(cmd *cobra.Command, asJSON bool, report *figures.Report, err error) error {
	switch {
	case errors.Is(err, figures.ErrUsage):
		return usageError("%w", err)
	case err != nil && cmd.Context().Err() != nil:
		return interrupted(cmd.Context(), err)
	case err != nil:
		return err
	case asJSON:
		return printJSON(cmd.OutOrStdout(), report)
	}
	return report.Print(cmd.OutOrStdout())
}

func (f *benchFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.BoolVar(&f.config.Quick, "quick", false, "smaller and shorter: about a minute")
	flags.StringSliceVar(&f.config.Only, "only", nil, "`phase`s to run instead of all")
	flags.IntSliceVar(&f.config.Workers, "workers", nil, "`number`s of workers of the cycles (default 1,64,512)")
	flags.IntVar(&f.config.Rounds, "rounds", 0, "`number` of rounds, of which the medians are told (default 3; 1 with --quick)")
	flags.BoolVar(&f.withoutEtcd, "without-etcd", false, "measure the coordinator alone")
	flags.StringVar(&f.config.Etcd, "etcd", "", "`program` that \"make bench-lock\" builds (default "+etcdProgram+" beside this one)")
	flags.BoolVar(&f.config.NoTickets, "no-tickets", false, "grants that are not signed, as for holders that show no ticket to anybody")
	flags.StringVar(&f.config.Dir, "dir", "", "`folder` for the nodes' data, on the disk that is to be measured (default a temporary one)")
	flags.StringSliceVar(&f.config.Addrs, "address", nil, "gRPC `address`es of a cluster that runs already")
	jsonFlag(cmd, &f.asJSON)
	var names []string
	for _, p := range bench.Phases() {
		names = append(names, p[0])
	}
	completes(cmd, "only", names...)
	completes(cmd, "workers")
	completes(cmd, "address")
	f.auth.add(cmd)
}

// complete checks the flags and finds the programs.
func (f *benchFlags) complete() (err error) {
	for _, addr := range f.config.Addrs {
		if err := checkAddress(addr); err != nil {
			return usageError("--address: %w", err)
		}
	}
	for _, n := range f.config.Workers {
		if n < 1 || n > maxWorkers {
			return usageError("--workers: %d is not a number from 1 to %d", n, maxWorkers)
		}
	}
	if f.config.Rounds < 0 || f.config.Rounds > maxRounds {
		return usageError("--rounds: %d is not a number from 1 to %d", f.config.Rounds, maxRounds)
	}
	if f.config.Program, err = os.Executable(); err != nil {
		return err
	}
	if len(f.config.Addrs) > 0 {
		f.config.Etcd, f.config.Flags = "", f.auth.flags()
		return f.auth.into(&f.config.Client)
	}
	if f.withoutEtcd {
		f.config.Etcd = ""
		return nil
	}
	if f.config.Etcd == "" {
		f.config.Etcd = filepath.Join(filepath.Dir(f.config.Program), etcdProgram)
	}
	if _, err := exec.LookPath(f.config.Etcd); err != nil {
		return usageError("--etcd: %w; build it with \"make bench-lock\", or say --without-etcd", err)
	}
	return nil
}

// Bounds of the flags.
const (
	maxWorkers = 10_000
	maxRounds  = 100
)

// benchWorkerCommand is what "bench lock" starts for its workers.
func benchWorkerCommand() *cobra.Command {
	var auth clientAuth
	cmd := &cobra.Command{
		Use:     "worker",
		Short:   "Be the workers of \"lychgate bench lock\"",
		Long:    `Be the workers of "lychgate bench lock": read a plan on standard input, and tell what came of it.`,
		Example: `  lychgate bench worker <plan.json`,
		Hidden:  true,
		Args:    named(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var base client.Config
			if err := auth.into(&base); err != nil {
				return err
			}
			return load.Work(context.WithoutCancel(cmd.Context()), cmd.InOrStdin(), cmd.OutOrStdout(), base)
		},
	}
	auth.add(cmd)
	return cmd
}

// flags say the same to a worker.
func (a *clientAuth) flags() []string {
	return []string{"--tls-ca=" + a.files.CA, "--tls-cert=" + a.files.Cert, "--tls-key=" + a.files.Key, "--token-file=" + a.tokenFile}
}
