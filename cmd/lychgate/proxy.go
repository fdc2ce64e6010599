package main

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/lychgate/lychgate/cmd/lychgate/internal/config"
	"github.com/lychgate/lychgate/proxy"
)

func proxyCommand() *cobra.Command {
	var from configFlags
	cmd := &cobra.Command{
		Use:   "proxy",
		Short: "Run a proxy in front of a store",
		Long: `Run one proxy until SIGINT or SIGTERM. Then it stops listening, lets transactions that are
open end, for drain_timeout at most, and exits; a second signal ends it at once. What hangs is left
behind half a minute later: exit code 1.

At SIGHUP it takes the users of its console, its limits, its log level and its listeners' policies,
max_connections and certificates anew, all or nothing; what else has changed needs a restart, and is named. A new process may listen before
the old one is stopped (reuse_port), so that no connection is refused.

A proxy holds no state, so any number may stand side by side. It starts also while its store
or all coordinators are down: /readyz says so, and connections are refused with LG007 until
they are back.`,
		Example: `  lychgate proxy --config proxy.yaml
  lychgate proxy --config proxy.yaml --set postgres[0].policy=read-only
  LYCHGATE_POSTGRES__0__STORE='postgres://lychgate_proxy:…@db/app' lychgate proxy -c proxy.yaml`,
		Args: named(),
	}
	from.add(cmd, map[string]string{"node": "node", "admin": "admin", "log-level": "log.level", "log-format": "log.format"})
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		src, err := from.source(cmd)
		if err != nil {
			return err
		}
		c, err := loadProxy(src)
		if err != nil {
			return err
		}
		level := new(slog.LevelVar)
		logger := newLoggerAt(cmd.ErrOrStderr(), level, c.Log.Level, c.Log.Format)
		load := func() (proxy.Config, error) { return loadProxy(src) }
		server, err := proxy.New(c, proxy.Deps{Logger: logger, Load: load, Level: level})
		if err != nil {
			return err
		}
		defer onHangup(context.WithoutCancel(cmd.Context()), logger, server.Reload)()
		return stopsWithin(cmd.Context(), c.DrainTimeout+stopReserve, server.Run)
	}
	return cmd
}

// loadProxy reads, completes and checks the configuration of a proxy.
func loadProxy(src config.Source) (proxy.Config, error) {
	c := proxy.DefaultConfig()
	if err := config.Load(&c, src); err != nil {
		return c, err
	}
	c = c.WithDefaults()
	return c, inFile(src.File, c.Validate())
}
