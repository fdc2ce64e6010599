package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/adapters/postgres"
	"github.com/lychgate/lychgate/coordinator/client"
)

// Exit codes that shells and env(1) use for a command that could not be started.
const (
	exitNotExecutable = 126
	exitNotFound      = 127
	exitSignalled     = 128 // plus the signal's number
)

// runFlags is how "lychgate run" was called.
type runFlags struct {
	to       target
	clientID string
	ttl      time.Duration
	wait     time.Duration
	proxy    []string // only "none": no listener
	database string
	user     string
	resource string
	command  []string
	options  []client.Option
}

func runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run RESOURCE [flags] -- COMMAND [ARG...]",
		Short: "Run a command under a lock",
		Long: `Take the lock, waiting for it, run COMMAND, keep the lock for as long as it runs, and give the
lock back at the end.

COMMAND finds a PostgreSQL listener on this machine that leads to the proxy and shows the
lock's ticket there; programs that use the usual variables need no change:
  PGHOST PGPORT PGSSLMODE     the listener (PGHOSTADDR and PGSERVICE are removed)
  DATABASE_URL                the same as a URL, with --user and --database
  PGUSER PGDATABASE           if --user and --database are given
  FENCE_TICKET FENCE_TOKEN FENCE_RESOURCE
Before COMMAND starts the ticket is shown to the proxy once, so that an earlier holder is
fenced. Whoever can connect to the listener uses the ticket. It ends with "lychgate run".

COMMAND runs in a process group of its own, to which signals are passed on. If the lock is
about to be lost because no coordinator answers, or has been held as long as its policy allows
(--max-hold), the group gets SIGTERM; it gets SIGKILL
before the lock could run out and be granted to anybody else. That somebody has broken the
lock shows at its next renewal, after a third of the TTL at most: then the group is killed.
What COMMAND leaves behind in the group is killed before the lock is given back. Processes
that leave the group are not, but the listener is gone for them too. When "lychgate run"
itself is killed with SIGKILL, only COMMAND dies with it, and that only on Linux; its
children go on without the listener.

Exit codes: that of COMMAND; 128 plus the signal's number if a signal ended it;
  75   the lock was not obtained; it may be later: it is held, or stays closed after its last
       lease expired; a bound of the tenant; a deadlock; no coordinator answers
  126  COMMAND cannot be executed     127  COMMAND was not found
  1, 2 failed before COMMAND started, called wrongly
  130  interrupted (143: terminated) while it waited for the lock`,
		Example: `  lychgate run ledger/eu -- psql -d app -c 'UPDATE account SET …'
  lychgate run nightly/report --wait 0 --proxy none -- ./report.sh`,
		Args: runArgs,
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			if len(args) == 0 { // the resource
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return nil, cobra.ShellCompDirectiveDefault
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			f.resource, f.command = args[0], args[1:]
			f.to.waitGiven = cmd.Flags().Changed("wait")
			if err := f.check(); err != nil {
				return err
			}
			f.options = f.acquireOptions(cmd.Flags().Changed("ttl"), cmd.Flags().Changed("wait"))
			return f.run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.add(cmd)
	return cmd
}

// runArgs wants one resource, then --, then the command.
func runArgs(cmd *cobra.Command, args []string) error {
	const form = "lychgate run RESOURCE -- COMMAND"
	dash := cmd.ArgsLenAtDash()
	switch {
	case len(args) == 0, dash == 0:
		return errors.New("RESOURCE is missing: " + form)
	case len(args) == 1:
		return errors.New("COMMAND is missing: " + form)
	case dash != 1:
		return errors.New("want one resource, then --, then the command: " + form)
	}
	return nil
}

// check refuses what cannot work before a lock is taken for it.
func (f *runFlags) check() error {
	if os.Getenv("FENCE_RESOURCE") == f.resource {
		return usageError("this is a command of \"lychgate run %[1]s\", which holds %[1]s: it would wait for itself for ever; "+
			"unset FENCE_RESOURCE if that is not so", f.resource)
	}
	for _, addr := range f.proxies() {
		if _, _, err := postgres.ParseUpstream(addr); err != nil {
			return usageError("--proxy (or LYCHGATE_PROXY): %w", err)
		}
	}
	return nil
}

// proxies are the addresses of --proxy; none without a listener.
func (f *runFlags) proxies() []string {
	if len(f.proxy) == 1 && f.proxy[0] == "none" {
		return nil
	}
	return f.proxy
}

func (f *runFlags) add(cmd *cobra.Command) {
	proxy := []string{"127.0.0.1:7632"}
	if env := os.Getenv("LYCHGATE_PROXY"); env != "" {
		proxy = strings.Split(env, ",")
	}
	f.to.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.clientID, "client-id", "", "`name` to hold the lock under (default: one made for this call)")
	flags.DurationVar(&f.ttl, "ttl", 0, "`duration` of the lease (default: the cluster's)")
	flags.DurationVar(&f.wait, "wait", 0, "`duration` to wait for the lock, 0 for not at all (default: for ever)")
	flags.StringSliceVar(&f.proxy, "proxy", proxy,
		"PostgreSQL `address`es of proxies, each new connection goes to one that is up; or none for no listener; default from LYCHGATE_PROXY")
	flags.StringVar(&f.database, "database", "", "`name` of the database (default: PGDATABASE, then the user's name)")
	flags.StringVar(&f.user, "user", "", "`name` of the database user (default: PGUSER, then the system's user)")
}

func (f *runFlags) acquireOptions(ttl, wait bool) []client.Option {
	var opts []client.Option
	if ttl {
		opts = append(opts, client.TTL(f.ttl))
	}
	if wait {
		opts = append(opts, client.Wait(f.wait))
	}
	return opts
}

// run is the command from the lookup of the program to the release of the lock.
func (f *runFlags) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) error {
	path, err := findProgram(f.command[0])
	if err != nil {
		return err
	}
	// From here on a signal is not lost: it ends the wait for the lock, or goes to the command.
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM)
	defer signal.Stop(signals)

	c, err := f.to.dial(client.Config{ClientID: f.clientID})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }() // a connection that does not close well ends with the process
	say := func(format string, args ...any) { fmt.Fprintf(stderr, "lychgate run: "+format+"\n", args...) }
	patient := time.AfterFunc(patience, func() { say("waiting for %s", f.resource) })
	defer patient.Stop()
	l, err := c.Acquire(ctx, f.resource, f.options...)
	if err != nil {
		if ctx.Err() != nil {
			return interrupted(ctx, err)
		}
		return explain(err, &f.to)
	}
	patient.Stop()
	signal.Notify(signals, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGWINCH)

	// The first signal has ended ctx, but it is the command's to answer it.
	ctx = context.WithoutCancel(ctx)
	s := session{
		lease: l, signals: signals, say: say,
		start: func(env []string) (process, error) {
			return startChild(&exec.Cmd{Path: path, Args: f.command, Env: env, Stdin: stdin, Stdout: stdout, Stderr: stderr})
		},
	}
	if proxies := f.proxies(); len(proxies) > 0 {
		s.door = &door{proxies: proxies, user: f.user, database: f.database, lease: l}
	}
	code, err := s.run(ctx)
	if err == nil && code == exitOK {
		return nil
	}
	return &exitError{Code: code, Err: err}
}

// findProgram looks a command up before a lock is taken for it.
func findProgram(name string) (string, error) {
	path, err := exec.LookPath(name)
	switch {
	case err == nil:
		return path, nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, os.ErrNotExist):
		return "", &exitError{Code: exitNotFound, Err: fmt.Errorf("run: %w", err)}
	}
	return "", &exitError{Code: exitNotExecutable, Err: fmt.Errorf("run: %w", err)}
}
