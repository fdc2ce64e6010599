package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/dev"
)

func devCommand() *cobra.Command {
	var c dev.Config
	var asJSON bool
	var logLevel string
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run everything on this machine, to try it out",
		Long: `Run three coordinator nodes in one process, a proxy, and a throw-away PostgreSQL with a
fenced demo table "ledger". Prints what to paste into another terminal, and the line "ready"
once everything can be used. Ctrl-C stops all of it. Not for data that matters: whoever can
log in to this machine can do everything.

With --postgres an own server is used: give a superuser's connection string; the roles
lychgate_proxy and app and the database app are made in it.`,
		Example: `  lychgate dev
  lychgate dev --dir ./data              # the data is there again next time
  lychgate dev --port-base 0 --json      # free ports, for scripts`,
		Args: named(),
		RunE: func(cmd *cobra.Command, _ []string) error {
			var level slog.LevelVar
			if err := setLevel(&level, logLevel); err != nil {
				return usageError("--log-level %w", err)
			}
			c.Logger = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: &level}))
			c.Stopping = func() { // nodes that miss each other then are nothing to look at
				level.Set(slog.LevelError)
				fmt.Fprintln(cmd.ErrOrStderr(), "stopping")
			}
			return dev.Run(cmd.Context(), c, func(e dev.Endpoints) error {
				return printEndpoints(cmd.OutOrStdout(), e, asJSON)
			})
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&c.Dir, "dir", "", "keep the data in this `folder`; default: a temporary one, removed at the end")
	flags.StringVar(&c.Postgres, "postgres", "", "connection string (`DSN`) of a superuser to a PostgreSQL that runs already")
	flags.IntVar(&c.Ports.Base, "port-base", dev.DefaultBase, "first `port`; 0: free ones")
	flags.IntVar(&c.Ports.GRPC, "grpc-port", 0, "`port` of the first coordinator's gRPC (default: base)")
	flags.IntVar(&c.Ports.HTTP, "http-port", 0, "`port` of the first coordinator's HTTP (default: base + 1)")
	flags.IntVar(&c.Ports.Admin, "admin-port", 0, "`port` of the proxy's metrics and health (default: base + 10)")
	flags.IntVar(&c.Ports.Proxy, "proxy-port", 0, "`port` of the proxy for PostgreSQL clients (default: base + 32)")
	flags.IntVar(&c.PostgresPort, "postgres-port", 0, "`port` of the throw-away PostgreSQL (default: a free one)")
	flags.StringVar(&logLevel, "log-level", "warn", "debug, info, warn or error; the log goes to stderr")
	completes(cmd, "log-level", logLevels...)
	flags.BoolVar(&asJSON, "json", false, "print one line of JSON with the endpoints once everything is ready")
	return cmd
}

// printEndpoints tells a person what to do next, or a script where everything is.
func printEndpoints(w io.Writer, e dev.Endpoints, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(e)
	}
	if err := dev.WriteTour(w, e, program()); err != nil {
		return err
	}
	_, err := fmt.Fprintln(w, "ready")
	return err
}

// program is how a person calls this binary from where they are.
func program() string {
	path, err := os.Executable()
	if err != nil {
		return "lychgate"
	}
	for _, dir := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.Join(dir, "lychgate") == path {
			return "lychgate"
		}
	}
	return path
}
