package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
)

// Exit codes. A command that ran and failed is told from one that was called wrongly, so that scripts can
// tell their own mistakes from the world's.
const (
	exitOK      = 0
	exitFailure = 1
	exitUsage   = 2
)

// exitError is an error that chooses its own exit code, as "lychgate run" does with that of its child.
// With a nil Err nothing is printed.
type exitError struct {
	Code int
	Err  error
}

func (e *exitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit status %d", e.Code)
	}
	return e.Err.Error()
}

func (e *exitError) Unwrap() error { return e.Err }

// usageError marks a mistake in how a command was called that only the command itself can see.
func usageError(format string, args ...any) error {
	return &exitError{Code: exitUsage, Err: fmt.Errorf(format, args...)}
}

// execute runs one command line and returns its exit code. It prints an error as one line on stderr, with --json as a JSON object.
// It blocks until the command has ended; ctx asks a long-running one to stop.
func execute(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	root, started := rootCommand()
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	called, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	code := exitFailure
	if !*started { // cobra refused the flags or arguments
		code = exitUsage
	}
	if exit, ok := errors.AsType[*exitError](err); ok {
		code = exit.Code
		if exit.Err == nil {
			return code
		}
	}
	if wantsJSON(called, args) {
		_ = printError(stderr, err, code) // there is nowhere else to say it
		return code
	}
	hint := ""
	if code == exitUsage {
		hint = fmt.Sprintf(" (see '%s --help')", called.CommandPath())
	}
	fmt.Fprintf(stderr, "lychgate: %s%s\n", oneLine(err.Error()), hint)
	return code
}

// oneLine folds an error that came from several into one line.
func oneLine(s string) string {
	lines := strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' })
	for i := range lines {
		lines[i] = strings.TrimSpace(lines[i])
	}
	return strings.Join(lines, "; ")
}

// rootCommand builds the command tree; started tells whether a command's own code has begun.
func rootCommand() (root *cobra.Command, started *bool) {
	root = &cobra.Command{
		Use:   "lychgate",
		Short: "Leases with fencing tokens, and a proxy that enforces them",
		Long: `Lychgate grants leases on named resources, each with a fencing token that only grows, and
stands as a proxy in front of the stores those resources live in. Once a store has accepted
a token, nothing that carries a lower one can change that resource again.`,
		Example: `  lychgate dev                                  # everything on this machine, to try it out
  lychgate lock acquire ledger/eu --ttl 30s     # take a lock
  lychgate run ledger/eu -- psql -c 'UPDATE …'  # run a command under a lock`,
		SilenceErrors: true,
		SilenceUsage:  true,
		Version:       currentBuild().String(),
		Args:          subcommand,
		RunE:          func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetVersionTemplate("{{.Version}}\n")
	root.AddGroup(
		&cobra.Group{ID: groupServe, Title: "Servers:"},
		&cobra.Group{ID: groupUse, Title: "Locks:"},
		&cobra.Group{ID: groupManage, Title: "Administration:"},
	)
	addGrouped(root, groupServe, devCommand(), coordinatorCommand(), gatewayCommand(), proxyCommand())
	addGrouped(root, groupUse, lockCommand(), runCommand())
	addGrouped(root, groupManage, sqlCommand(), clusterCommand(), keysCommand(), policyCommand(), configCommand(), benchCommand(), versionCommand())
	started = new(bool)
	markStart(root, started)
	return root, started
}

// Groups of the help text.
const (
	groupServe  = "serve"
	groupUse    = "use"
	groupManage = "manage"
)

func addGrouped(root *cobra.Command, group string, commands ...*cobra.Command) {
	for _, c := range commands {
		c.GroupID = group
		root.AddCommand(c)
	}
}

// markStart wraps every command of the tree to note that cobra's own checks are behind it. A command that
// only holds others answers a bare call with its help and a wrong word with an error.
func markStart(c *cobra.Command, started *bool) {
	completeArguments(c)
	if c.RunE == nil && c.Run == nil && c.HasSubCommands() {
		c.Args = subcommand
		c.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
	}
	if run := c.RunE; run != nil {
		c.RunE = func(cmd *cobra.Command, args []string) error {
			*started = true
			return run(cmd, args)
		}
	}
	for _, sub := range c.Commands() {
		markStart(sub, started)
	}
}
